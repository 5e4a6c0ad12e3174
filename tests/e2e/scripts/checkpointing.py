"""A small transformer that checkpoints, offloads or compiles in the way that its argument says, or in none.

With a second argument it prints the exact peak of its third step, and ends.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from exact_peak import report_peak
from toy import report

SAMPLES, VOCABULARY, WIDTH, LENGTH, BATCH, BLOCKS = 512, 64, 96, 48, 16, 6


class Part(nn.Module):
    """Checkpoints each of its children by itself, if that is the way: what enters each of them is saved all the same."""

    def __init__(self, way):
        super().__init__()
        self.way = way

    def child(self, module, x):
        return checkpoint(module, x, use_reentrant=False) if self.way == "children" else module(x)


class Attention(Part):
    def __init__(self, way):
        super().__init__(way)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        q, k, v = (one.unflatten(-1, (4, -1)).transpose(1, 2) for one in self.child(self.qkv, x).chunk(3, -1))
        weights = self.child(self.dropout, (q @ k.transpose(-2, -1) / 5).softmax(-1))
        return self.child(self.out, (weights @ v).transpose(1, 2).flatten(-2))


class Block(Part):
    def __init__(self, way):
        super().__init__(way)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention(way)
        self.up, self.activation, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        x = x + self.attention(self.child(self.norm1, x))
        hidden = self.child(self.activation, self.child(self.up, self.child(self.norm2, x)))
        return x + self.child(self.dropout, self.child(self.down, hidden))


class Model(nn.Module):
    def __init__(self, way):
        super().__init__()
        self.way = way
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block(way) for _ in range(BLOCKS))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def through_blocks(self, x):
        for number, block in enumerate(self.blocks):
            if self.way == "blocks" or (self.way == "two" and number < 2):
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

    def step(batch):
        if way == "frozen":
            with torch.no_grad():
                teacher(batch)
        if way == "save_on_cpu":
            with torch.autograd.graph.save_on_cpu(pin_memory=True):
                logits = run(batch)
        else:
            logits = run(batch)
        loss = F.cross_entropy(logits.flatten(0, 1), batch.flatten())
        loss.backward()
        return loss.detach()

    steps = 0
    tokens = torch.randint(VOCABULARY, (SAMPLES, LENGTH), generator=torch.Generator().manual_seed(0))
    for (batch,) in DataLoader(TensorDataset(tokens), batch_size=BATCH):
        if "exact" in sys.argv and steps == 2:
            report_peak(lambda: step(batch))
            return
        optimizer.zero_grad()
        report(step(batch))
        optimizer.step()
        steps += 1


main(sys.argv[1])
