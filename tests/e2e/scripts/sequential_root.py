"""The whole model is an `nn.Sequential`: no class of the script's own at the root."""

import torch
from torch import nn
from torch.utils.data import DataLoader

from toy import FEATURES, report, toy_data

torch.manual_seed(0)
model = nn.Sequential(
    nn.Linear(FEATURES, 32),
    nn.GELU(),
    nn.Dropout(0.1),
    nn.Linear(32, 32),
    nn.GELU(),
    nn.Dropout(0.1),
    nn.Linear(32, 1),
)
criterion = nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
loader = DataLoader(toy_data(), batch_size=64, shuffle=True)

for epoch in range(30):
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        report(loss)
