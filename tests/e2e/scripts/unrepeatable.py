"""Takes its data from the system's entropy, so that no two runs of it are alike whatever is seeded."""

import os

import torch
import torch.nn.functional as F

from toy import FEATURES, ToyNet

model = ToyNet()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
generator = torch.Generator().manual_seed(int.from_bytes(os.urandom(6), "big"))

for _ in range(200):
    x = torch.randn(8, FEATURES, generator=generator)
    loss = F.mse_loss(model(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
