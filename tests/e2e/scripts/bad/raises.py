"""An exception in the third step, from a function of the script's own."""

import torch
from torch import nn


def next_batch(step):
    if step == 3:
        raise LookupError(f"no batch for step {step}")
    return torch.randn(8, 8)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

for step in range(1, 101):
    loss = model(next_batch(step)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("LOSS", loss.item().hex(), flush=True)
