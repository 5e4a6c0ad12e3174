"""`python -m package.train`, from the folder above the package."""

import sys

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from toy import report, toy_data

from .net import make_net

torch.manual_seed(0)
model = make_net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = DataLoader(toy_data(), batch_size=8, shuffle=True)

for epoch in range(int(sys.argv[1])):
    for x, y in loader:
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)
print("done", __package__)
