"""A process that loads data is killed, as by a kernel that is short of memory."""

import os
import signal

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Dies(Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, index):
        if index == 300:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.randn(8), torch.randn(1)


model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

for x, y in DataLoader(Dies(), batch_size=8, num_workers=2):
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
