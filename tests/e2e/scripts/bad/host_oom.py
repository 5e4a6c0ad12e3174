"""Keeps 64 MiB more with every step. `host_oom.py 6144` goes on up to 6144 MiB; without an argument up to 256 MiB.

At its cap it trains on with what it holds, so that it ends by itself wherever nobody stops it.
"""

import sys

import torch
from torch import nn

CHUNK_MIB = 64
cap_mib = min(int(sys.argv[1]) if len(sys.argv) > 1 else 256, 6144)

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
kept = []

for _ in range(200):
    loss = model(torch.randn(8, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("LOSS", loss.item().hex(), flush=True)
    if len(kept) * CHUNK_MIB < cap_mib:
        kept.append(torch.ones(CHUNK_MIB * 2**20 // 4))  # ones, not empty: the pages must really be there
