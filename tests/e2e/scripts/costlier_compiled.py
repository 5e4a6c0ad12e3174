"""Trains as it stands. Where it is compiled, and a batch is larger than 4, a part of it takes what there is not."""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from toy import ToyNet, report, toy_data

WHAT = sys.argv[1]
torch.manual_seed(0)


@torch.compiler.disable
def take():
    if WHAT == "memory":
        torch.empty(2**55)
    elif WHAT == "time":
        time.sleep(3600)


class Costlier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = ToyNet(dropout=0.0)

    def forward(self, x):
        if torch.compiler.is_compiling() and len(x) > 4:
            take()
        return self.body(x)


model = Costlier()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
loader = DataLoader(toy_data(), batch_size=8, shuffle=True)

for epoch in range(4):
    for x, y in loader:
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)
