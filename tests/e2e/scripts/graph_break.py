"""A graph break inside every block: `.item()` decides in Python what runs next."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

from toy import FEATURES, report, toy_data


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        hidden = self.dropout(F.gelu(self.first(x)))
        if hidden.abs().max().item() > 1e3:
            hidden = hidden / 1e3
        return x + F.gelu(self.second(hidden))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block(FEATURES) for _ in range(3))
        self.head = nn.Linear(FEATURES, 1)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


torch.manual_seed(0)
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = DataLoader(toy_data(), batch_size=8, shuffle=True)

for epoch in range(4):
    for x, y in loader:
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)
