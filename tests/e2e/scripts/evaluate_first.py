"""Evaluates before it trains, and again between training steps, in evaluation mode and in training mode."""

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from toy import ToyNet, report, toy_data

torch.manual_seed(0)
model = ToyNet()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
training = DataLoader(toy_data(), batch_size=8, shuffle=True)
validation = DataLoader(toy_data(num_samples=30, seed=5), batch_size=10)


@torch.no_grad()
def evaluate():
    model.eval()
    losses = [F.mse_loss(model(x), y).item() for x, y in validation]
    model.train()
    print("VALIDATION", sum(losses).hex(), flush=True)


@torch.no_grad()
def sample_with_dropout():
    """One batch in training mode, and the rest of the loader left unread."""
    for x, _ in validation:
        model(x)
        break


evaluate()
sample_with_dropout()
for epoch in range(3):
    for i, (x, y) in enumerate(training):
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)
        if i % 8 == 1:
            evaluate()
        if i % 8 == 5:
            sample_with_dropout()
evaluate()
