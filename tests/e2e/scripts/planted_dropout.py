"""A planted bug, as torch has had: dropout that is recomputed in the backward draws another mask than the forward."""

from types import ModuleType

import torch
import torch._functorch.partitioners
import torch.nn.functional as F
from torch.utils.data import DataLoader

from toy import ToyNet, toy_data


class Kept(ModuleType):
    """A module that lets nobody put another function in the place of the planted one."""

    def __setattr__(self, name: str, value: object) -> None:
        if name != "functionalize_rng_ops":
            super().__setattr__(name, value)


torch._functorch.partitioners.functionalize_rng_ops = lambda joint, forward, backward, *_: (forward, backward)
torch._functorch.partitioners.__class__ = Kept

torch.manual_seed(0)
model = ToyNet(dropout=0.3)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

for x, y in DataLoader(toy_data(), batch_size=8, shuffle=True):
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
