"""The data has nine features, the model takes eight: the first step fails."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

for step in range(1, 101):
    loss = model(torch.randn(8, 9)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
