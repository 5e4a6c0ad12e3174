"""The model is a ScriptModule, which Dynamo does not look into."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

from toy import FEATURES, report, toy_data

torch.manual_seed(0)
model = torch.jit.script(nn.Sequential(nn.Linear(FEATURES, 32), nn.GELU(), nn.Linear(32, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
loader = DataLoader(toy_data(), batch_size=8, shuffle=True)

for epoch in range(4):
    for x, y in loader:
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)
