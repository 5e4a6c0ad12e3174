"""Trains blocks that are sharded over the processes of torchrun; tells what a step of the first one takes, in seconds.

In a trial it also tells what autotune's hooks take of a step: before and after a model's call, at a backward and at an
optimizer's step. Not in it: what they do as a loader gives a batch, and the look at each inner module's call.
"""

import gc
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset

WIDTH, LENGTH, BATCH, STEPS = 64, 64, 4, 200
# Hooks are timed from here on: the first steps are not like later ones.
TIMED_FROM = 6
in_hooks_s = [0.0]


def time_hooks():
    for hooks in gc.get_objects():
        if type(hooks).__name__ in ("RootHooks", "StepHooks"):
            for name in ("_enter", "_leave", "_guarded"):
                if hasattr(hooks, name):
                    setattr(hooks, name, timed(getattr(hooks, name)))


def timed(hook):
    def call(*arguments, **keywords):
        began_s = time.perf_counter()
        try:
            return hook(*arguments, **keywords)
        finally:
            in_hooks_s[-1] += time.perf_counter() - began_s

    return call


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
began_s = time.perf_counter()
try:
    for (x,) in DataLoader(TensorDataset(torch.randn(BATCH * STEPS, LENGTH, WIDTH)), batch_size=BATCH):
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        times_s.append(time.perf_counter() - began_s)
        in_hooks_s.append(0.0)
        if len(times_s) == TIMED_FROM:
            time_hooks()
        began_s = time.perf_counter()
finally:  # a trial ends the script
    if dist.get_rank() == 0:
        # A step is over where the optimizer's hook ends the trial, and with it the last one is not whole.
        figures = (statistics.median(each[TIMED_FROM + 1 : len(times_s)]) for each in (times_s, in_hooks_s))
        print("STEP_S", *figures, flush=True)
