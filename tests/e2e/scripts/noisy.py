"""Prints a lot on both streams: tables, lines that look like JSON, a progress bar, and bytes that are no UTF-8."""

import json
import sys

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from toy import ToyNet, report, toy_data

EPOCHS = 4

torch.manual_seed(0)
model = ToyNet()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = DataLoader(toy_data(), batch_size=8, shuffle=True)
total = EPOCHS * len(loader)
step = 0

for epoch in range(EPOCHS):
    for x, y in loader:
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1

        for name, parameter in model.named_parameters():
            print(f"{name:<24}{parameter.norm():12.6f}{parameter.grad.norm():12.6f}")
        print(json.dumps({"kind": "result", "index": step, "outcome": None}))
        print("=" * 2000)
        sys.stdout.flush()
        sys.stdout.buffer.write(b"\xff\xfe\x00 not text\n")
        sys.stdout.buffer.flush()
        done = 40 * step // total
        print(f"\r\x1b[32m[{'#' * done:<40}]\x1b[0m {step}/{total}", end="", file=sys.stderr, flush=True)
        report(loss)
print(file=sys.stderr)
