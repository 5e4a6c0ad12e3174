"""Models whose blocks Dynamo cannot trace in one piece, so that few graphs serve all of them."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

__all__ = ["WIDTH", "Block", "Checkpointing", "Mixed", "Net", "Pyramid"]

WIDTH = 32


class Block(nn.Module):
    """Dynamo cannot trace it in one piece."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(self.up(x))
        torch._dynamo.graph_break()
        return x + self.down(torch.sin(torch.exp(y)))


class Mixed(Block):
    """Its experts, which repeat too, break it further."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.experts[0](x.exp().tanh())
        x = self.experts[1](x.sin().exp())
        return x.exp().tanh()


class Net(nn.Module):
    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class Pyramid(Net):
    """Its blocks work on fewer and fewer rows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)[::2]
        return x


class Checkpointing(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, block in enumerate(self.blocks):
            x = checkpoint(block, x, use_reentrant=False) if number % 2 else block(x)
        return x
