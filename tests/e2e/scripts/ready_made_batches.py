"""The dataset holds whole batches; the DataLoader is told not to make any (`batch_size=None`)."""

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

from toy import FEATURES, ToyNet, report


class Batches(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        x = torch.randn(6, FEATURES, generator=generator)
        return x, torch.sin(x.sum(dim=1, keepdim=True))


torch.manual_seed(0)
model = ToyNet()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

for epoch in range(4):
    for x, y in DataLoader(Batches(), batch_size=None, shuffle=True):
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)
