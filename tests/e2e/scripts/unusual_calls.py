"""Models that are not called the usual way: `forward` itself, a `__call__` of their own, TorchScript."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

from toy import FEATURES, ToyNet, report, toy_data


class OwnCall(ToyNet):
    def __call__(self, *arguments):
        return self.forward(*arguments)


class WrappedCall(ToyNet):
    def __call__(self, *arguments):
        return super().__call__(*arguments)


torch.manual_seed(0)
own, wrapped, direct = OwnCall(), WrappedCall(), ToyNet()
scripted = torch.jit.trace(nn.Sequential(nn.Linear(FEATURES, 8), nn.GELU(), nn.Linear(8, 1)), torch.zeros(2, FEATURES))
models = nn.ModuleList([own, wrapped, direct, scripted])
optimizer = torch.optim.SGD(models.parameters(), lr=1e-2)
loader = DataLoader(toy_data(), batch_size=8, shuffle=True)

for epoch in range(3):
    for x, y in loader:
        loss = F.mse_loss(own(x) + wrapped(x) + direct.forward(x) + scripted(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)
