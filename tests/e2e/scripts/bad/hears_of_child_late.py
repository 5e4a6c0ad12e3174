"""The connection to another process breaks; that the process is gone becomes known while that exception is shown."""

import os
import signal

import torch
from torch import nn


class BrokenConnection(ConnectionResetError):
    def __str__(self):
        os.kill(os.getpid(), signal.SIGCHLD)
        return "connection reset by peer"


def child_is_gone(number, frame):
    """Raises wherever the main thread is, as a DataLoader's handler does."""
    raise RuntimeError("a child is gone")


signal.signal(signal.SIGCHLD, child_is_gone)
model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

for step in range(1, 101):
    if step == 3:
        raise BrokenConnection
    loss = model(torch.randn(8, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
