"""The script compiles a function that calls the model, not the model."""

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from toy import ToyNet, report, toy_data

torch.manual_seed(0)
model = ToyNet()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
loader = DataLoader(toy_data(), batch_size=8, shuffle=True)


@torch.compile(backend="aot_eager")
def loss_of(x, y):
    return F.mse_loss(model(x), y)


for epoch in range(4):
    for x, y in loader:
        loss = loss_of(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)
