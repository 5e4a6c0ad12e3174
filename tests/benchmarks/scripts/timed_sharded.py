"""Trains blocks that are sharded over the processes of torchrun, and tells how long a step of the first one takes.

The time is that of the main thread, which hooks run in, and of the later half of the steps.
"""

import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset

WIDTH, LENGTH, BATCH, STEPS = 64, 64, 4, 200


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(WIDTH), nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.down(nn.functional.gelu(self.up(x)))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(*(Block() for _ in range(3)), nn.Linear(WIDTH, 1))
for block in model[:3]:
    fully_shard(block)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
times_s = []
began_s = time.thread_time()
try:
    for (x,) in DataLoader(TensorDataset(torch.randn(BATCH * STEPS, LENGTH, WIDTH)), batch_size=BATCH):
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        ended_s = time.thread_time()
        times_s.append(ended_s - began_s)
        began_s = ended_s
finally:  # a trial ends the script
    if dist.get_rank() == 0:
        print("STEP_S", statistics.median(times_s[len(times_s) // 2 :]), flush=True)
