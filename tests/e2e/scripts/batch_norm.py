"""BatchNorm, whose running statistics and counters every forward changes. Prints what they hold at the end."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

from toy import FEATURES, toy_data

torch.manual_seed(0)
model = nn.Sequential(
    *(nn.Linear(FEATURES, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Dropout(0.2)),
    *(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Linear(16, 1)),
)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)

for x, y in DataLoader(toy_data(), batch_size=16, shuffle=True):
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
