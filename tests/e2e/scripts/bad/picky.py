"""Trains at its own batch size; a larger one does not fit the mask that was made for that."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(512, 8)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
mask = torch.ones(8, 8)

for epoch in range(4):
    for x, y in loader:
        loss = F.mse_loss(model(x * mask), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
