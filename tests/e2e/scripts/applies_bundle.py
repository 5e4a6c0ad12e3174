"""A loop of one's own: a bundle is applied to its model, and its batch size is the bundle's."""

import sys

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

import autotune
from toy import ToyNet, report, toy_data

torch.manual_seed(0)
model = ToyNet()
applied = autotune.apply(model, sys.argv[1])
optimizer = applied.optimizer(torch.optim.AdamW(model.parameters(), lr=1e-2))
loader = DataLoader(toy_data(), batch_size=applied.batch_size, shuffle=True)

for epoch in range(4):
    for x, y in loader:
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)
print("BATCH", applied.batch_size, "OVERRULED", applied.is_overruled, "CONFIRMED", applied.is_confirmed, flush=True)
