"""A frozen feature extractor called by itself, without `no_grad`, before the model that learns."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

from toy import FEATURES, ToyNet, report, toy_data

torch.manual_seed(0)
backbone = nn.Sequential(nn.Linear(FEATURES, 32), nn.GELU(), nn.Linear(32, FEATURES)).requires_grad_(False)
head = ToyNet()
optimizer = torch.optim.AdamW(head.parameters(), lr=1e-2)
loader = DataLoader(toy_data(), batch_size=8, shuffle=True)

for epoch in range(4):
    for x, y in loader:
        loss = F.mse_loss(head(backbone(x)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)
