"""Looks at its own memory with autotune's function."""

import autotune
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from toy import ToyNet, report, toy_data

torch.manual_seed(0)
model = ToyNet()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = DataLoader(toy_data(), batch_size=8, shuffle=True)

with autotune.memory_matrix(model):
    for x, y in loader:
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)
