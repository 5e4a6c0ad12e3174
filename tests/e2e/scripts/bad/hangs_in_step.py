"""Trains four steps, then waits for ever between the backward pass and the optimizer step of the fifth."""

import time

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

for step in range(1, 101):
    loss = model(torch.randn(8, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    print("LOSS", loss.item().hex(), flush=True)
    while step == 5:
        time.sleep(1)
    optimizer.step()
