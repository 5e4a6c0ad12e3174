"""A small model whose checkpointing loses or changes gradients or buffers in the way that its argument says, or not."""

import sys

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

WIDTH = 32
way = sys.argv[1]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down, self.dropout = nn.Linear(WIDTH, 64), nn.Linear(64, WIDTH), nn.Dropout(0.1)
        self.norm = nn.BatchNorm1d(WIDTH) if way == "buffer" else nn.LayerNorm(WIDTH)

    def forward(self, x):
        return x + self.dropout(self.down(functional.gelu(self.up(self.norm(x)))))


class Detaching(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x):
        return checkpoint(self.block, x.detach().requires_grad_(), use_reentrant=False)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(16, WIDTH).requires_grad_(way != "inputs")
        blocks = [Block() for _ in range(3)]
        self.blocks = nn.ModuleList(map(Detaching, blocks) if way == "wrapper" else blocks)
        self.head = nn.Linear(WIDTH, 8)
        self.probe, self.unused = nn.Linear(WIDTH, 8), nn.Linear(WIDTH, 4)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            if way == "wrapper":
                x = block(x)
            elif way == "inside":
                x = checkpoint(lambda one, block=block: block(one.detach()), x, use_reentrant=False)
            elif way == "inputs":
                x = checkpoint(block, x, use_reentrant=True)
            elif way == "no_grad" and block is self.blocks[1]:
                with torch.no_grad():
                    x = checkpoint(block, x, use_reentrant=False)
            else:
                x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=way != "dropout")
        # A probe learns from what it must not change, and not every model uses all of its outputs.
        return self.head(x), checkpoint(self.probe, x.detach(), use_reentrant=False), self.unused(x)


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=0.01)
for x, y in DataLoader(TensorDataset(torch.randn(640, 16), torch.randint(0, 8, (640,))), 16):
    optimizer.zero_grad()
    first, second, _ = model(x)
    (functional.cross_entropy(first, y) + functional.cross_entropy(second, y)).backward()
    optimizer.step()
