"""What torchrun starts, sharded: in its sixth step one rank does what its argument says, as in ``kill 1``."""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

fault, rank = sys.argv[1], int(sys.argv[2])
dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(100_000):
    if step == 5 and dist.get_rank() == rank:
        if fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "quit":
            os._exit(7)
        if fault == "memory":
            raise torch.OutOfMemoryError("Tried to allocate 2.00 GiB")
        if fault == "hang":
            time.sleep(10_000)
    model(torch.randn(8, 16)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
