"""LBFGS: the optimizer calls forward and backward itself, several times in one step."""

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from toy import ToyNet, report, toy_data

torch.manual_seed(0)
model = ToyNet(dropout=0.0)
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.02, max_iter=4)
loader = DataLoader(toy_data(), batch_size=8, shuffle=True)

for epoch in range(3):
    for x, y in loader:

        def closure():
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            report(loss)
            return loss

        optimizer.step(closure)
