"""Models as people write them that make tracing and recomputing hard, each for one reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

__all__ = ["ODD_CASES", "WIDTH", "Averaging", "OddCase"]

WIDTH = 32


class Adapted(nn.Module):
    """Frozen layers, each with a small trained one beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.down = nn.ModuleList(nn.Linear(WIDTH, 4) for _ in range(3))
        self.up = nn.ModuleList(nn.Linear(4, WIDTH) for _ in range(3))
        self.base.requires_grad_(False)
        self.dropout = nn.Dropout(0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for base, down, up in zip(self.base, self.down, self.up, strict=True):
            x = x + self.dropout(F.gelu(base(x) + up(torch.tanh(down(x)))))
        return x.pow(2)


class Tied(nn.Module):
    """One weight in four layers, and transposed between them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
        for layer in self.layers:
            layer.weight = self.layers[0].weight  # type: ignore[union-attr]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = F.gelu(layer(x)) + torch.tanh(x @ self.layers[0].weight.t())  # type: ignore[operator,union-attr]
        return x.pow(2)


class InPlace(nn.Module):
    """Changes activations, views of them and every second column in place, after they were read."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second, third = self.layers
        hidden = torch.sigmoid(first(x)) * 1.5
        hidden[:, ::2].add_(torch.cos(x[:, ::2]))
        hidden.view(-1, 2, WIDTH // 2)[:, 0].mul_(0.5)
        hidden = torch.sin(F.relu_(second(hidden))).clamp_(max=0.7)
        hidden.masked_fill_(hidden < 0.1, 0.0)
        out = torch.zeros_like(hidden)
        out.index_add_(0, torch.arange(len(hidden) - 1, -1, -1), F.gelu(third(hidden)))
        return out.exp_()


class _Rounded(torch.autograd.Function):
    """Passes gradients straight through; its second output has none."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
        rounded, inside = torch.round(x * scale) / scale, x.abs() < 1
        ctx.save_for_backward(x, rounded)
        ctx.mark_non_differentiable(inside)
        ctx.set_materialize_grads(False)
        return rounded, inside

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, _: None) -> tuple[torch.Tensor, None]:
        x, rounded = ctx.saved_tensors
        return gradient * (x.abs() < 1) * (1 + 0.1 * (rounded - x)), None


class _Reversed(torch.autograd.Function):
    """Saves its output, by ``setup_context``; its gradient has the other sign."""

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return -gradient * ctx.saved_tensors[0]


class _Doubled(torch.autograd.Function):
    """Changes its input, which not every version of Dynamo traces."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 3


class CustomFunctions(nn.Module):
    """Three functions with backwards of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second, third = self.layers
        rounded, inside = _Rounded.apply(torch.tanh(F.gelu(first(x))), 8.0)
        x = _Reversed.apply(torch.tanh(second(rounded * inside)))
        x = torch.sin(x)
        # So that the graph breaks here in every version.
        torch._dynamo.graph_break()
        return third(F.gelu(_Doubled.apply(x))).pow(2)


class GradientHooks(nn.Module):
    """Clips a gradient inside by a tensor's hook, and halves another by a module's."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.layers[1].register_full_backward_hook(lambda _, gradients, __: tuple(each * 0.5 for each in gradients))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second, third = self.layers
        hidden = F.gelu(first(x))
        if hidden.requires_grad:
            hidden.register_hook(lambda gradient: gradient.clamp(-1e-4, 1e-4))
        return F.gelu(third(torch.tanh(second(torch.sin(hidden))))).pow(2)


class Averaging(nn.Module):
    """Keeps a moving average in a buffer that it replaces, and counts its calls in a plain number."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("average", torch.zeros(WIDTH))
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = F.gelu(self.layer(x))
        self.average = 0.9 * self.average + 0.1 * hidden.detach().mean(0)
        self.calls += 1
        return torch.tanh(hidden - self.average).pow(2)


class Spectrum(nn.Module):
    """Complex activations."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        spectrum = torch.fft.fft(F.gelu(self.first(x)))
        filtered = torch.fft.ifft(spectrum * torch.sigmoid(spectrum.abs())).real
        return F.gelu(self.second(torch.tanh(filtered))).pow(2)


class Nested(nn.Module):
    """Gives a structure, of which the loss uses a part; one of its layers is not used at all."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        hidden = F.gelu(torch.tanh(self.layers[0](x)))
        aside = F.gelu(torch.sin(self.layers[1](hidden)))
        return {"size": len(x), "parts": [aside, None], "out": F.gelu(torch.tanh(self.layers[2](hidden)))}


class NestedLoss(nn.Module):
    """The root calls it and looks at one part of what it gives."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Nested()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.inner(x)
        return found["out"].pow(2) * found["size"]


class Branching(nn.Module):
    """Goes on by a value that it has computed: the graph breaks there."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second, third = self.layers
        hidden = F.gelu(torch.tanh(first(x)))
        hidden = F.gelu(torch.sin(second(hidden))) if hidden.mean() > 0 else hidden * 2
        return third(F.gelu(hidden)).pow(2)


class Teacher(nn.Module):
    """Moves the weights of a layer in the forward, without gradients, and learns from what that layer gives."""

    def __init__(self) -> None:
        super().__init__()
        self.teacher, self.first, self.second = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.teacher.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            # Not by `alpha`: torch 2.11 traces that as a product of its own, which is rounded.
            self.teacher.weight.mul_(0.99).add_(0.01 * self.first.weight)
            target = F.gelu(self.teacher(x))
        return (self.second(F.gelu(torch.tanh(self.first(x)))) - target).pow(2)


class Stochastic(nn.Module):
    """Draws in many ways: noise, whole layers left out, a random slope, a sample with a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            kept = torch.bernoulli(torch.full((len(x), 1), 0.8))
            x = x + kept * F.gelu(torch.tanh(layer(x + 0.1 * torch.randn_like(x))))
            x = F.rrelu(x, training=True)
        return F.gumbel_softmax(x, hard=True) * x


class Mapped(nn.Module):
    """A function of one row, mapped over rows, and a generator."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mapped = torch.vmap(lambda row: F.gelu(torch.tanh(self.first(row))))(x)
        return torch.stack(list(self._turns(mapped))).sum(0).pow(2)

    def _turns(self, x: torch.Tensor) -> Iterator[torch.Tensor]:
        for turn in range(3):
            x = F.gelu(torch.tanh(self.second(x.roll(turn, 0))))
            yield x


class SparseGradient(nn.Module):
    """Looks up bags of rows: the gradient of the table is a sparse tensor, which has no storage."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(500, WIDTH, sparse=True, mode="sum")
        self.layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH), nn.GELU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(self.table(x)).pow(2)


@dataclass(frozen=True)
class OddCase:
    """A model and its inputs; the number of graphs that a training call of it has."""

    make: Callable[[], nn.Module]
    num_graphs: int = 1
    inputs: Callable[[], tuple[torch.Tensor, ...]] = lambda: (torch.randn(64, WIDTH),)


ODD_CASES = {
    "frozen layers": OddCase(Adapted),
    "tied weights": OddCase(Tied),
    "in-place operators": OddCase(InPlace),
    "custom functions": OddCase(CustomFunctions, num_graphs=2),
    "gradient hooks": OddCase(GradientHooks, num_graphs=2),
    "averages and counts": OddCase(Averaging),
    "complex activations": OddCase(Spectrum),
    "nested outputs": OddCase(NestedLoss),
    "control flow": OddCase(Branching, num_graphs=2),
    "weights moved in the forward": OddCase(Teacher),
    "random operators": OddCase(Stochastic),
    "mapped functions": OddCase(Mapped),
    "sparse gradients": OddCase(SparseGradient, inputs=lambda: (torch.randint(500, (64, 5)),)),
}
