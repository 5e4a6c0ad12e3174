"""Two steps are trained before the script compiles its model: by then it has been called as it is."""

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from toy import ToyNet, report, toy_data

torch.manual_seed(0)
model = ToyNet()
forward = model
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
loader = DataLoader(toy_data(), batch_size=8, shuffle=True)

step = 0
for epoch in range(4):
    for x, y in loader:
        if step == 2:
            forward = torch.compile(model, backend="aot_eager")
        loss = F.mse_loss(forward(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)
        step += 1
