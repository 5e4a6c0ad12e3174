"""A script whose rate is known by construction: every step takes exactly one period, 25 ms unless told otherwise.

The arithmetic takes a fraction of a millisecond; the rest of the period is slept away, up to a deadline, so that
neither the arithmetic nor a late wake-up lengthens the period: 16 samples / 25 ms = 640 samples/s.
"""

import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, RandomSampler

from toy import FEATURES, report, toy_data

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--period-s", type=float, default=0.025)
parser.add_argument("--steps", type=int, default=400)
options = parser.parse_args()

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(FEATURES, 8), nn.GELU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
data = toy_data()
sampler = RandomSampler(data, replacement=True, num_samples=options.steps * options.batch_size)
loader = DataLoader(data, options.batch_size, sampler=sampler)

deadline = time.perf_counter()
for x, y in loader:
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    report(loss)
    deadline += options.period_s
    left = deadline - time.perf_counter()
    if left > 0:
        time.sleep(left)
    else:
        deadline = time.perf_counter()  # a slow step, such as the first one, is not made up for
