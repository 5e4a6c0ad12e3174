"""No optimizer: the parameters are moved by hand, after two accumulated micro-batches."""

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from toy import ToyNet, report, toy_data

LEARNING_RATE = 1e-2

torch.manual_seed(0)
model = ToyNet()
loader = DataLoader(toy_data(), batch_size=8, shuffle=True)

for epoch in range(4):
    for i, (x, y) in enumerate(loader):
        loss = F.mse_loss(model(x), y) / 2
        loss.backward()
        report(loss)
        if i % 2 == 1:
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= LEARNING_RATE * parameter.grad
                    parameter.grad = None
