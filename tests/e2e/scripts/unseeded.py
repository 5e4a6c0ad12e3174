"""Seeds nothing: weights, the order of the data, noise from three libraries and dropout come from global generators."""

import random

import numpy

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from toy import ToyNet, toy_data

model = ToyNet(dropout=0.3)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = DataLoader(toy_data(), batch_size=8, shuffle=True, num_workers=2)

for x, y in loader:
    x = x + 0.1 * random.random() + 0.1 * float(numpy.random.rand())
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
