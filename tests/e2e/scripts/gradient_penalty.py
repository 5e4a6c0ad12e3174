"""The loss holds the norm of a gradient, so its backward differentiates twice."""

import torch
from torch.utils.data import DataLoader

from toy import ToyNet, report, toy_data

torch.manual_seed(0)
model = ToyNet()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
loader = DataLoader(toy_data(), batch_size=8, shuffle=True)

for epoch in range(4):
    for x, _ in loader:
        x.requires_grad_()
        (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        loss = (gradient.norm(dim=1) - 1).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)
