"""Six models for the benchmarks, from their sizes and random weights: nothing is downloaded.

Each builder takes its sizes as keywords and gives a ``Built``. Repeated blocks are classes of their own in
``nn.ModuleList``. By default a step takes some ten milliseconds on one core.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

__all__ = ["MODELS", "WITHOUT_DROPOUT", "Built", "bert", "convnet", "encoder_decoder", "gpt", "llama", "vit"]

Inputs = tuple[torch.Tensor, ...]


class Built(NamedTuple):
    """A module in training mode, ``batch_size -> inputs`` (drawn anew at each call, on the module's device), and
    ``(call, inputs) -> loss``, a scalar; ``call`` is the module or a compiled form of it.
    """

    module: nn.Module
    inputs: Callable[[int], Inputs]
    loss: Callable[[Callable[..., torch.Tensor], Inputs], torch.Tensor]


def gpt(
    *, layers: int = 4, width: int = 64, heads: int = 4, length: int = 64, vocabulary: int = 256, dropout: float = 0.1
) -> Built:
    """Pre-norm decoder with attention written out and dropout on scores and residuals."""
    module = Gpt(layers, width, heads, length, vocabulary, dropout).train()
    return Built(module, _tokens(module, vocabulary, length), _next_token_loss)


def bert(
    *, layers: int = 4, width: int = 64, heads: int = 4, length: int = 64, vocabulary: int = 256, dropout: float = 0.1
) -> Built:
    """Post-norm encoder with fused attention and dropout; predicts every token."""
    module = Bert(layers, width, heads, length, vocabulary, dropout).train()
    return Built(module, _tokens(module, vocabulary, length), _same_token_loss)


def llama(*, layers: int = 4, width: int = 64, heads: int = 4, length: int = 64, vocabulary: int = 256) -> Built:
    """Pre-norm decoder with RMSNorm, SwiGLU, rotary positions and fused causal attention; no dropout."""
    module = Llama(layers, width, heads, length, vocabulary).train()
    return Built(module, _tokens(module, vocabulary, length), _next_token_loss)


def encoder_decoder(
    *, layers: int = 3, width: int = 64, heads: int = 4, length: int = 48, vocabulary: int = 256, dropout: float = 0.1
) -> Built:
    """The blocks of ``nn.Transformer``: two stacks, cross attention, dropout."""
    module = EncoderDecoder(layers, width, heads, length, vocabulary, dropout).train()

    def inputs(batch_size: int) -> Inputs:
        source = torch.randint(vocabulary, (batch_size, length), device=_device(module))
        target = torch.randint(vocabulary, (batch_size, length * 3 // 4), device=_device(module))
        return source, target

    def loss(call: Callable[..., torch.Tensor], given: Inputs) -> torch.Tensor:
        return F.cross_entropy(call(*given)[:, :-1].flatten(0, 1), given[1][:, 1:].flatten())

    return Built(module, inputs, loss)


def convnet(*, layers: int = 4, width: int = 16, size: int = 24, classes: int = 10) -> Built:
    """Residual convolutions with BatchNorm, the shape of a ResNet's stage; no dropout."""
    module = ConvNet(layers, width, classes).train()
    return Built(module, _images(module, size), _class_loss(classes))


def vit(
    *,
    layers: int = 4,
    width: int = 64,
    heads: int = 4,
    size: int = 32,
    patch: int = 4,
    classes: int = 10,
    dropout: float = 0.0,
) -> Built:
    """Vision transformer: patches by a convolution, a class token, pre-norm blocks with fused attention."""
    module = Vit(layers, width, heads, size, patch, classes, dropout).train()
    return Built(module, _images(module, size), _class_loss(classes))


MODELS: dict[str, Callable[..., Built]] = {
    "gpt": gpt,
    "bert": bert,
    "llama": llama,
    "encoder_decoder": encoder_decoder,
    "convnet": convnet,
    "vit": vit,
}
WITHOUT_DROPOUT = ("llama", "convnet", "vit")


class GptBlock(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.attention_dropout, self.dropout = nn.Dropout(dropout), nn.Dropout(dropout)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        q, k, v = _heads(self.qkv(self.norm_1(x)), 3, self.heads)
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.size(-1))
        weights = self.attention_dropout(F.softmax(scores.masked_fill(mask, -math.inf), dim=-1))
        x = x + self.dropout(self.out(_joined(weights @ v)))
        return x + self.dropout(self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh")))


class Gpt(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, length: int, vocabulary: int, dropout: float) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(GptBlock(width, heads, dropout) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        self.register_buffer("mask", torch.ones(length, length, dtype=torch.bool).triu(1), persistent=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        length = ids.shape[1]
        x = self.dropout(self.tokens(ids) + self.positions.weight[:length])
        for block in self.blocks:
            x = block(x, self.mask[:length, :length])
        return self.head(self.norm(x))


class BertLayer(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.attention_dropout = heads, dropout
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out, self.up, self.down = nn.Linear(width, width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (_heads(part(x), 1, self.heads)[0] for part in (self.query, self.key, self.value))
        dropout = self.attention_dropout if self.training else 0.0
        y = _joined(F.scaled_dot_product_attention(q, k, v, dropout_p=dropout))
        x = self.norm_1(x + self.dropout(self.out(y)))
        return self.norm_2(x + self.dropout(self.down(F.gelu(self.up(x)))))


class Bert(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, length: int, vocabulary: int, dropout: float) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(dropout)
        self.layers = nn.ModuleList(BertLayer(width, heads, dropout) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.dropout(self.norm(self.tokens(ids) + self.positions.weight[: ids.shape[1]]))
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class RmsNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype)


class LlamaBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        hidden = 8 * width // 3
        self.norm_1, self.norm_2 = RmsNorm(width), RmsNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        q, k, v = _heads(self.qkv(self.norm_1(x)), 3, self.heads)
        q, k = (part * cosine + _rotated(part) * sine for part in (q, k))
        x = x + self.out(_joined(F.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v, is_causal=True)))
        y = self.norm_2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, length: int, vocabulary: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads) for _ in range(layers))
        self.norm, self.head = RmsNorm(width), nn.Linear(width, vocabulary, bias=False)
        head_width = width // heads
        frequencies = 10_000 ** (-torch.arange(0, head_width, 2) / head_width)
        angles = torch.outer(torch.arange(length), frequencies).repeat(1, 2)
        self.register_buffer("cosine", angles.cos(), persistent=False)
        self.register_buffer("sine", angles.sin(), persistent=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        length, x = ids.shape[1], self.tokens(ids)
        for block in self.blocks:
            x = block(x, self.cosine[:length], self.sine[:length])
        return self.head(self.norm(x))


class EncoderLayer(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, dropout, batch_first=True)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm_1, self.norm_2, self.dropout = nn.LayerNorm(width), nn.LayerNorm(width), nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm_1(x + self.dropout(self.attention(x, x, x, need_weights=False)[0]))
        return self.norm_2(x + self.dropout(self.down(self.dropout(F.relu(self.up(x))))))


class DecoderLayer(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, dropout, batch_first=True)
        self.cross = nn.MultiheadAttention(width, heads, dropout, batch_first=True)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm_1, self.norm_2, self.norm_3 = (nn.LayerNorm(width) for _ in range(3))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor, memory: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.norm_1(x + self.dropout(self.attention(x, x, x, attn_mask=mask, need_weights=False)[0]))
        x = self.norm_2(x + self.dropout(self.cross(x, memory, memory, need_weights=False)[0]))
        return self.norm_3(x + self.dropout(self.down(self.dropout(F.relu(self.up(x))))))


class EncoderDecoder(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, length: int, vocabulary: int, dropout: float) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.dropout = nn.Dropout(dropout)
        self.encoder = nn.ModuleList(EncoderLayer(width, heads, dropout) for _ in range(layers))
        self.decoder = nn.ModuleList(DecoderLayer(width, heads, dropout) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary)
        self.register_buffer("mask", torch.ones(length, length, dtype=torch.bool).triu(1), persistent=False)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        memory, x, length = self._embedded(source), self._embedded(target), target.shape[1]
        for layer in self.encoder:
            memory = layer(memory)
        for layer in self.decoder:
            x = layer(x, memory, self.mask[:length, :length])
        return self.head(x)

    def _embedded(self, ids: torch.Tensor) -> torch.Tensor:
        return self.dropout(self.tokens(ids) + self.positions.weight[: ids.shape[1]])


class ConvBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv_1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.conv_2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm_1, self.norm_2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm_1(self.conv_1(x)), inplace=True)
        return F.relu(x + self.norm_2(self.conv_2(y)), inplace=True)


class ConvNet(nn.Module):
    def __init__(self, layers: int, width: int, classes: int) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.blocks = nn.ModuleList(ConvBlock(width) for _ in range(layers))
        self.head = nn.Linear(width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm(self.stem(images)), inplace=True)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))


class VitBlock(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = _heads(self.qkv(self.norm_1(x)), 3, self.heads)
        x = x + self.dropout(self.out(_joined(F.scaled_dot_product_attention(q, k, v))))
        return x + self.dropout(self.down(self.dropout(F.gelu(self.up(self.norm_2(x))))))


class Vit(nn.Module):
    def __init__(
        self, layers: int, width: int, heads: int, size: int, patch: int, classes: int, dropout: float
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width) * 0.02)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(VitBlock(width, heads, dropout) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.class_token.expand(len(x), -1, -1), x), dim=1)
        x = self.dropout(x + self.positions)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


def _heads(x: torch.Tensor, parts: int, heads: int) -> list[torch.Tensor]:
    """Split (batch, length, parts * width) into tensors of (batch, heads, length, width // heads)."""
    batch, length, _ = x.shape
    return [part.view(batch, length, heads, -1).transpose(1, 2) for part in x.chunk(parts, dim=2)]


def _joined(x: torch.Tensor) -> torch.Tensor:
    """Put (batch, heads, length, head width) together to (batch, length, width)."""
    return x.transpose(1, 2).flatten(2)


def _rotated(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def _device(module: nn.Module) -> torch.device:
    return next(module.parameters()).device


def _tokens(module: nn.Module, vocabulary: int, length: int) -> Callable[[int], Inputs]:
    return lambda batch_size: (torch.randint(vocabulary, (batch_size, length), device=_device(module)),)


def _images(module: nn.Module, size: int) -> Callable[[int], Inputs]:
    return lambda batch_size: (torch.randn(batch_size, 3, size, size, device=_device(module)),)


def _next_token_loss(call: Callable[..., torch.Tensor], given: Inputs) -> torch.Tensor:
    return F.cross_entropy(call(*given)[:, :-1].flatten(0, 1), given[0][:, 1:].flatten())


def _same_token_loss(call: Callable[..., torch.Tensor], given: Inputs) -> torch.Tensor:
    return F.cross_entropy(call(*given).flatten(0, 1), given[0].flatten())


def _class_loss(classes: int) -> Callable[[Callable[..., torch.Tensor], Inputs], torch.Tensor]:
    def loss(call: Callable[..., torch.Tensor], given: Inputs) -> torch.Tensor:
        logits = call(*given)
        return F.cross_entropy(logits, torch.arange(len(logits), device=logits.device) % classes)

    return loss
