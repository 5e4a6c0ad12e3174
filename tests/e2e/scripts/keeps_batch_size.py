"""Keeps its own batch size in a second place: in the length of its schedule, or in the shape of a state."""

import argparse

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from toy import ToyNet, report, toy_data

parser = argparse.ArgumentParser()
parser.add_argument("place", choices=("schedule", "state"))
parser.add_argument("-b", "--bs", type=int, default=8)
parser.add_argument("--threads", type=int, default=1)
args = parser.parse_args()

torch.manual_seed(0)
model, data = ToyNet(), toy_data()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
steps = 4 * (len(data) // args.bs)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=steps)
state = torch.zeros(args.bs, 1) if args.place == "state" else torch.zeros(1)

for epoch in range(4):
    for x, y in DataLoader(data, batch_size=args.bs, shuffle=True):
        loss = F.mse_loss(model(x) + state, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        report(loss)
