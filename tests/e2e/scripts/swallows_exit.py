"""A bare `except:` around the optimizer step swallows whatever is raised there and trains on."""

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from toy import ToyNet, report, toy_data

torch.manual_seed(0)
model = ToyNet()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
loader = DataLoader(toy_data(), batch_size=8, shuffle=True, num_workers=1, persistent_workers=True)

for epoch in range(4):
    for x, y in loader:
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        try:
            optimizer.step()
        except:
            print("swallowed", flush=True)
        report(loss)
