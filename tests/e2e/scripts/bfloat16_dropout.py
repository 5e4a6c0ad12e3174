"""Dropout in bfloat16, which AOTAutograd's graphs compute with another rounding than eager PyTorch does on a CPU."""

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from toy import ToyNet, toy_data

torch.manual_seed(0)
model = ToyNet(dropout=0.3).bfloat16()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

for x, y in DataLoader(toy_data(), batch_size=8):
    loss = F.mse_loss(model(x.bfloat16()), y.bfloat16())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
