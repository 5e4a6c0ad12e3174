"""Crashes like a broken extension would: a segmentation fault in the third backward pass."""

import os
import signal

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

for step in range(1, 101):
    output = model(torch.randn(8, 8))
    if step == 3:
        output.register_hook(lambda grad: os.kill(os.getpid(), signal.SIGSEGV))
    loss = output.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("LOSS", loss.item().hex(), flush=True)
