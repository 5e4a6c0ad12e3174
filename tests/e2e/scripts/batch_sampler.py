"""Batches come from a batch sampler: torch's own, or with the argument `pairs` one that has no batch size to set."""

import sys

import torch
import torch.nn.functional as F
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Sampler

from toy import ToyNet, report, toy_data


class Pairs(Sampler):
    """Two samples from the front and two from the back at a time."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length // 4

    def __iter__(self):
        for i in range(0, self.length // 2, 2):
            yield [i, i + 1, self.length - 1 - i, self.length - 2 - i]


torch.manual_seed(0)
model = ToyNet()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
data = toy_data()
sampler = Pairs(len(data)) if "pairs" in sys.argv else BatchSampler(RandomSampler(data), batch_size=8, drop_last=True)
loader = DataLoader(data, batch_sampler=sampler)

for epoch in range(4):
    for x, y in loader:
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)
