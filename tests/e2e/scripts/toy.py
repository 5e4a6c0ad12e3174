"""What the scripts beside this file share: a small model, data for it, and the line that reports a loss."""

import torch
from torch import nn
from torch.utils.data import TensorDataset

FEATURES = 8


class Block(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.activation = nn.GELU()
        self.down = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return x + self.dropout(self.down(self.activation(self.up(self.norm(x)))))


class ToyNet(nn.Module):
    """Shape (batch, features) to (batch, 1). Blocks that repeat, GELU and dropout: something to recompute."""

    def __init__(self, features=FEATURES, width=16, num_blocks=3, dropout=0.1):
        super().__init__()
        self.embed = nn.Linear(features, width)
        self.blocks = nn.ModuleList(Block(width, dropout) for _ in range(num_blocks))
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def toy_data(num_samples=512, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num_samples, FEATURES, generator=generator)
    noise = torch.randn(num_samples, 1, generator=generator)
    return TensorDataset(x, torch.sin(x.sum(1, keepdim=True)) + 0.1 * noise)


def report(loss):
    """Print a loss so that not a bit of it is lost."""
    print("LOSS", float(loss.detach()).hex(), flush=True)
