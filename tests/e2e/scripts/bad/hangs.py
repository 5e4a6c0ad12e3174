"""Waits for ever before its first step. `hangs.py stubborn` also ignores the signals that ask it to end."""

import signal
import sys
import time

import torch
from torch import nn

if "stubborn" in sys.argv:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)

model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
print("waiting for data", flush=True)
while True:
    time.sleep(1)
