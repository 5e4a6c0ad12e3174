"""The model returns what it made of its input, and the penalty is on the loss's gradient with respect to that.

In one graph for the whole model the prediction does not come from the hidden values that are returned beside it.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader

from toy import ToyNet, report, toy_data

torch.manual_seed(0)


class Penalized(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, 8)
        self.body = ToyNet(dropout=0.0)

    def forward(self, x):
        hidden = self.embed(x)
        return self.body(hidden), hidden


model = Penalized()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
loader = DataLoader(toy_data(), batch_size=8, shuffle=True)

for epoch in range(4):
    for x, y in loader:
        prediction, hidden = model(x)
        (gradient,) = torch.autograd.grad(prediction.sum(), hidden, create_graph=True)
        loss = (prediction - y).square().mean() + (gradient.norm(dim=1) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)
