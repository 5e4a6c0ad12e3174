"""Trains for some steps and tells how long one takes: `python timed_steps.py --width 64 --steps 400`.

The processor's time, on which other programs have the least influence, and of the later half of the steps.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "e2e/scripts"))

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
from toy import ToyNet, toy_data

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--steps", type=int, default=400)
options = parser.parse_args()
torch.manual_seed(0)
model = ToyNet(width=options.width)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
loader = DataLoader(toy_data(64 * options.steps), batch_size=64)
times_s = []
began_s = time.process_time()
try:
    for x, y in loader:
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ended_s = time.process_time()
        times_s.append(ended_s - began_s)
        began_s = ended_s
finally:  # a trial ends the script
    print("STEP_S", statistics.median(times_s[len(times_s) // 2 :]), flush=True)
