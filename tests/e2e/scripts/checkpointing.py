"""A small transformer that checkpoints, offloads or compiles in the way that its argument says, or in none."""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from toy import report

TOKENS, VOCABULARY, WIDTH, LENGTH, BATCH, BLOCKS = 4096, 64, 96, 48, 16, 6


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        q, k, v = (one.unflatten(-1, (4, -1)).transpose(1, 2) for one in self.qkv(x).chunk(3, -1))
        weights = self.dropout((q @ k.transpose(-2, -1) / 5).softmax(-1))
        return self.out((weights @ v).transpose(1, 2).flatten(-2))


class Block(nn.Module):
    def __init__(self, way):
        super().__init__()
        self.way = way
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.up, self.activation, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        x = self.norm2(x) + x
        # What enters and leaves the activation is saved by its neighbours in any case.
        hidden = self.up(x)
        hidden = checkpoint(self.activation, hidden, use_reentrant=False) if self.way == "children" else self.activation(hidden)
        return x + self.dropout(self.down(hidden))


class Model(nn.Module):
    def __init__(self, way):
        super().__init__()
        self.way = way
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block(way) for _ in range(BLOCKS))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def through_blocks(self, x):
        for block in self.blocks:
            if self.way == "blocks":
                x = checkpoint(block, x, use_reentrant=False)
            elif self.way == "reentrant":
                x = checkpoint(block, x, use_reentrant=True)
            else:
                x = block(x)
        return x

    def forward(self, tokens):
        x = self.embed(tokens)
        x = checkpoint(self.through_blocks, x, use_reentrant=False) if self.way == "whole" else self.through_blocks(x)
        return self.head(x)


def main(way):
    torch.manual_seed(0)
    model = Model(way)
    if way == "wrapper":
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

        apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Block))
    if way == "frozen":
        teacher = Model("blocks").train()
    run = torch.compile(model, backend="aot_eager") if way == "compile" else model
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    tokens = torch.randint(VOCABULARY, (TOKENS, LENGTH), generator=torch.Generator().manual_seed(0))
    for epoch in range(4):
        for (batch,) in DataLoader(TensorDataset(tokens), batch_size=BATCH):
            if way == "frozen":
                with torch.no_grad():
                    teacher(batch)
            if way == "save_on_cpu":
                with torch.autograd.graph.save_on_cpu(pin_memory=True):
                    logits = run(batch)
            else:
                logits = run(batch)
            loss = F.cross_entropy(logits.flatten(0, 1), batch.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            report(loss)


main(sys.argv[1])
