"""Trains a model in evaluation mode, as from_pretrained() leaves it, and evaluates it now and then."""

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from toy import ToyNet, report, toy_data

torch.manual_seed(0)
model = ToyNet().eval()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = DataLoader(toy_data(), batch_size=8, shuffle=True)
validation = DataLoader(toy_data(num_samples=30, seed=5), batch_size=10)

for epoch in range(4):
    with torch.no_grad():
        print("VALIDATION", sum(F.mse_loss(model(x), y).item() for x, y in validation), flush=True)
    for x, y in loader:
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)
