"""Training stands in a `try`: `except Exception` for failures, and a `finally` that says good-bye."""

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from toy import ToyNet, report, toy_data

torch.manual_seed(0)
model = ToyNet()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
loader = DataLoader(toy_data(), batch_size=8, shuffle=True)

try:
    for epoch in range(4):
        for x, y in loader:
            loss = F.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            report(loss)
    print("training done")
except Exception as error:
    print("training failed", repr(error))
    raise
finally:
    print("finally", flush=True)
