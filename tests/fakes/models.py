"""Small models for the memory optimizer, each with the thing that a plan could get wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

__all__ = ["CASES", "Broken", "Case", "Gpt", "Shared"]

WIDTH = 32


class GptBlock(nn.Module):
    """Pre-norm attention written out, with dropout on the scores."""

    def __init__(self, width: int = WIDTH, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm_1(x)).split(width, dim=2)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.size(-1))
        mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
        weights = self.dropout(F.softmax(scores.masked_fill(~mask, -math.inf), dim=-1))
        x = x + self.dropout(self.out((weights @ v).transpose(1, 2).reshape(batch, length, width)))
        return x + self.dropout(self.down(F.gelu(self.up(self.norm_2(x)))))


class Gpt(nn.Module):
    """Three blocks; the output layer shares its weight with the embedding; gives its loss."""

    def __init__(self, *, checkpointed: bool = False) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(50, WIDTH), nn.Embedding(24, WIDTH)
        self.blocks = nn.ModuleList(GptBlock() for _ in range(3))
        self.norm, self.dropout = nn.LayerNorm(WIDTH), nn.Dropout(0.1)
        self.head = nn.Linear(WIDTH, 50, bias=False)
        self.head.weight = self.tokens.weight
        self.checkpointed = checkpointed

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.dropout(self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device)))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), ids.flatten())


class BertLayer(nn.Module):
    """Post-norm, attention by the fused operator, whose three inputs are views of one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(x).split(width, dim=2)
        q, k, v = (part.view(batch, length, 2, -1).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
        x = self.norm_1(x + self.dropout(self.out(y)))
        return self.norm_2(x + self.dropout(self.down(F.gelu(self.up(x)))))


class Bert(nn.Module):
    """Its layers in a Sequential, its loss outside."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(50, WIDTH)
        self.layers = nn.Sequential(*(BertLayer() for _ in range(3)))
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.layers(self.tokens(ids))[:, 0])).pow(2)


class ConvBlock(nn.Module):
    """Residual, with BatchNorm and an activation in place."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv_1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv_2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm_1, self.norm_2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm_1(self.conv_1(x)))
        return F.relu(x + self.norm_2(self.conv_2(y)), inplace=True)


class ConvNet(nn.Module):
    """BatchNorm's running statistics change in the forward."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)
        self.blocks = nn.Sequential(ConvBlock(8), ConvBlock(8))
        self.pool, self.dropout = nn.MaxPool2d(2), nn.Dropout2d(0.2)
        self.head = nn.Linear(8, 4)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.dropout(self.pool(self.blocks(self.stem(images)))).mean((2, 3))).logsumexp(1)


class Expert(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.up(x)))


class Encoder(nn.Module):
    """A repeated block that holds repeated blocks."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.experts = nn.ModuleList(Expert(width) for _ in range(2))
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.norm(x)
        return x + self.dropout(sum(torch.tanh(expert(normed)) for expert in self.experts))


class Decoder(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.own, self.cross, self.norm = nn.Linear(width, width), nn.Linear(width, width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        x = x + torch.tanh(self.own(x))
        return self.norm(x + torch.softmax(x @ memory.transpose(1, 2), -1) @ self.cross(memory))


class EncoderDecoder(nn.Module):
    """Two lists of blocks; what the encoder gives is read by every decoder block."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.ModuleList(Encoder(WIDTH) for _ in range(2))
        self.decoder = nn.ModuleList(Decoder(WIDTH) for _ in range(3))

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        for block in self.encoder:
            source = block(source)
        for block in self.decoder:
            target = block(target, source)
        return target.pow(2)


class BrokenBlock(nn.Module):
    """Dynamo cannot trace it in one piece."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.middle, self.down = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.middle(F.gelu(torch.tanh(self.up(x))))
        torch._dynamo.graph_break()
        return x + self.down(self.dropout(F.gelu(torch.tanh(y))))


class Broken(nn.Module):
    def __init__(self, blocks: int = 3) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(BrokenBlock() for _ in range(blocks)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks(x).pow(2)


class Counting(nn.Module):
    """Reads a buffer and an input, then changes both."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("count", torch.ones(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale, shift = torch.sin(self.count * 2), torch.cos(x * 3)
        self.count.add_(1)
        x.mul_(2)
        return torch.exp(self.inner(torch.sin(x)) * scale) * scale * torch.exp(self.inner.bias * shift)


class ChangesActivation(nn.Module):
    """Changes an activation in place that autograd watches, after a value of it was read."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x) * 1.0
        torch._dynamo.graph_break()
        before = torch.cos(torch.exp(hidden))
        hidden.mul_(2)
        return self.second(F.gelu(torch.tanh(hidden))) * before + hidden


class Spectral(nn.Module):
    """Spectral normalization updates its vectors in every forward."""

    def __init__(self) -> None:
        super().__init__()
        self.old = nn.utils.spectral_norm(nn.Linear(WIDTH, WIDTH))
        self.new = nn.utils.parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(self.new(F.gelu(self.old(x))))


class Codebook(nn.Module):
    """Replaces vectors by their nearest in a codebook, which averages them; ``one_hot`` checks what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = (
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH)) for _ in range(2)
        )
        self.register_buffer("vectors", torch.randn(16, WIDTH))
        self.vectors: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = self.encoder(x)
        nearest = torch.cdist(z.detach(), self.vectors, compute_mode="donot_use_mm_for_euclid_dist").argmin(1)
        weights = F.one_hot(nearest, len(self.vectors)).to(z.dtype)
        quantized = weights @ self.vectors
        with torch.no_grad():
            self.vectors.data.mul_(0.9).add_(weights.t() @ z, alpha=0.1)
        return F.gelu(self.decoder(z + (quantized - z).detach()))


class _NoisyGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(torch.rand(x.shape, device=x.device))
        return x * 1.0

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * ctx.saved_tensors[0]


class Noisy(nn.Module):
    """Draws in the forward what only the backward uses, and after it draws for the forward."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.dropout = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.dropout(F.gelu(_NoisyGradient.apply(self.first(x)))))


class Checkpointed(nn.Module):
    """The script checkpoints one of its blocks itself, with dropout inside, and the layer before the last gelu."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.last, self.dropout = nn.Linear(WIDTH, WIDTH), nn.Dropout(0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for index, layer in enumerate(self.layers):
            x = checkpoint(self._block, x, layer, use_reentrant=False) if index == 1 else self._block(x, layer)
        return self.last(F.gelu(checkpoint(self.layers[0], x, use_reentrant=False)))

    def _block(self, x: torch.Tensor, layer: nn.Module) -> torch.Tensor:
        return x + self.dropout(F.gelu(layer(x)))


class Shared(nn.Module):
    """Two blocks, each called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Expert(WIDTH) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in [*self.blocks, *self.blocks]:
            x = x + block(x)
        return x.pow(2)


class MixedPrecision(nn.Module):
    """Under autocast weights are cast in every forward."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast(x.device.type, torch.bfloat16):
            for layer in self.layers:
                x = F.gelu(layer(x))
        return x.float().pow(2)


@dataclass(frozen=True)
class Case:
    """A model and inputs for it; its output's mean is the loss."""

    make: Callable[[], nn.Module]
    inputs: Callable[[], tuple[torch.Tensor, ...]]


def _ids() -> tuple[torch.Tensor, ...]:
    return (torch.randint(0, 50, (8, 24)),)


def _rows() -> tuple[torch.Tensor, ...]:
    return (torch.randn(64, WIDTH),)


CASES = {
    "gpt": Case(Gpt, _ids),
    "bert": Case(Bert, _ids),
    "conv net": Case(ConvNet, lambda: (torch.randn(16, 3, 14, 14),)),
    "encoder-decoder": Case(EncoderDecoder, lambda: (torch.randn(8, 20, WIDTH), torch.randn(8, 24, WIDTH))),
    "graph break": Case(Broken, _rows),
    "changes its inputs": Case(Counting, _rows),
    "changes an activation": Case(ChangesActivation, _rows),
    "spectral norm": Case(Spectral, _rows),
    "codebook": Case(Codebook, _rows),
    "draws for the backward": Case(Noisy, _rows),
    "own checkpoints": Case(Checkpointed, _rows),
    "shared blocks": Case(Shared, _rows),
    "autocast": Case(MixedPrecision, _rows),
}
