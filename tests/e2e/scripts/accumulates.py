"""Gradients accumulated in a loop of the script's own, over as many micro-batches as its arguments say."""

import argparse

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from toy import ToyNet, report, toy_data

parser = argparse.ArgumentParser()
parser.add_argument("--accumulate", type=int, default=4)
accumulate = parser.parse_args().accumulate

torch.manual_seed(0)
model = ToyNet()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = DataLoader(toy_data(), batch_size=8, shuffle=True)

for epoch in range(8):
    for i, (x, y) in enumerate(loader):
        loss = F.mse_loss(model(x), y) / accumulate
        loss.backward()
        report(loss)
        if (i + 1) % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
