"""torch's own `nn.TransformerEncoder` called by the script, and a second small module after it."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

from toy import FEATURES, report, toy_data

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(FEATURES, nhead=2, dim_feedforward=32, activation="gelu", batch_first=True)
encoder = nn.TransformerEncoder(layer, num_layers=2)
head = nn.Linear(FEATURES, 1)
optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=1e-2)
loader = DataLoader(toy_data(), batch_size=8, shuffle=True)

for epoch in range(3):
    for x, y in loader:
        tokens = torch.stack([x.roll(i, dims=1) for i in range(5)], dim=1)  # (batch, 5, features)
        loss = F.mse_loss(head(encoder(tokens).mean(dim=1)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)
