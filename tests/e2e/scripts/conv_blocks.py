"""Residual blocks with BatchNorm: a block that is run again must not update the running statistics a second time."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from toy import report


class ConvBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x):
        return x + F.gelu(self.norm(self.conv(x)))


torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), *(ConvBlock(4) for _ in range(3)), nn.Flatten(), nn.Linear(256, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
generator = torch.Generator().manual_seed(1)
data = TensorDataset(torch.randn(400, 3, 8, 8, generator=generator), torch.randn(400, 1, generator=generator))

for x, y in DataLoader(data, batch_size=4, shuffle=True):
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    report(loss)
for name, value in model.named_buffers():
    print("BUFFER", name, value.double().sum().item().hex())
