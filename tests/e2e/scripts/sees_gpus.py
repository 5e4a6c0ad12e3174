"""What torchrun starts: each process prints the GPUs that it is given, and trains on the CPU with the others."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
# In one write, as both processes write into one file.
os.write(sys.stdout.fileno(), f"SEES {os.environ['CUDA_VISIBLE_DEVICES']}\n".encode())
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Linear(16, 16))
optimizer = torch.optim.SGD(model.parameters())
for step in range(100_000):
    optimizer.zero_grad()
    model(torch.randn(8, 16)).square().mean().backward()
    optimizer.step()
