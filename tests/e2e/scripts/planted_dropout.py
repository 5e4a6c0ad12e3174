"""A planted bug, as torch has had: dropout that is recomputed in the backward draws another mask than the forward."""

import torch
import torch._functorch.partitioners
import torch.nn.functional as F
from torch.utils.data import DataLoader

from toy import ToyNet, toy_data

torch._functorch.partitioners.functionalize_rng_ops = lambda joint, forward, backward, *_: (forward, backward)

torch.manual_seed(0)
model = ToyNet(dropout=0.3)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

for x, y in DataLoader(toy_data(), batch_size=8, shuffle=True):
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
