"""Leaves by `sys.exit(1)` after the third step, as after a check of its own."""

import sys

import torch
from torch import nn

model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

for step in range(1, 101):
    loss = model(torch.randn(8, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 3:
        print("the checksum of the data is wrong", file=sys.stderr)
        sys.exit(1)
