"""An IterableDataset: no sampler, no index lists, and the last batch is smaller."""

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset

from toy import FEATURES, ToyNet, report


class Stream(IterableDataset):
    def __iter__(self):
        generator = torch.Generator().manual_seed(0)
        for _ in range(2500):
            x = torch.randn(FEATURES, generator=generator)
            yield x, torch.sin(x.sum()).unsqueeze(0)


torch.manual_seed(0)
model = ToyNet()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

for x, y in DataLoader(Stream(), batch_size=16):
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    report(loss)
