"""bfloat16 autocast, a gradient scaler, two micro-batches per step, and clipped gradients."""

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from toy import ToyNet, report, toy_data

ACCUMULATE = 2

torch.manual_seed(0)
model = ToyNet()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu")
loader = DataLoader(toy_data(), batch_size=8, shuffle=True, drop_last=True)

for epoch in range(6):
    for i, (x, y) in enumerate(loader):
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.mse_loss(model(x).float(), y) / ACCUMULATE
        scaler.scale(loss).backward()
        report(loss)
        if (i + 1) % ACCUMULATE == 0:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
