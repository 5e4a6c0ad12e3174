"""Inputs of the roots: the sizes that are the batch, those that grow with it, names of the others; the precision."""

from __future__ import annotations

import inspect
import math
import re
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import torch
from torch import nn

BATCH = "batch"
# In the place of a dimension: a number that is passed by itself.
NUMBER = -1
_SEQUENCE = "seq_len"
_MOST_DEPTH = 4


@dataclass(frozen=True)
class RootCall:
    """A call of a root in training, for so many ``samples``; ``dimension`` of its tensors is that of the batch.

    ``batch_number`` counts the batches that DataLoaders have handed out to calls; None where none feeds them.
    """

    root: nn.Module
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    dimension: int
    samples: int
    batch_number: int | None = None


# The root, and the name of the argument that the tensor is or lies in.
_Path = tuple[int, str]


@dataclass
class _Dimension:
    """One dimension of an input, over all calls."""

    least: int
    most: int = 0
    most_per_sample: Fraction = Fraction(0)
    is_batch: bool = True
    is_multiple: bool = True

    def see(self, size: int, samples: int, *, may_be_batch: bool) -> None:
        self.least, self.most = min(self.least, size), max(self.most, size)
        if samples:
            self.most_per_sample = max(self.most_per_sample, Fraction(size, samples))
        self.is_batch &= may_be_batch and size == samples > 1
        self.is_multiple &= samples > 1 and size % samples == 0


@dataclass
class _Tensor:
    """One tensor among the arguments, over all calls."""

    last: weakref.ref[torch.Tensor]
    calls: int = 0
    # The script passes one and the same tensor to every call: no batch has brought it.
    is_always_the_same: bool = True
    dimensions: dict[int, _Dimension] = field(default_factory=dict)

    def growing(self) -> tuple[int, ...]:
        """Return the dimensions that hold what all samples of a batch bring, though they are not the batch."""
        of_batch = any(own.is_batch for own in self.dimensions.values())
        if of_batch or (self.calls > 1 and self.is_always_the_same):
            return ()
        changing = tuple(place for place, own in self.dimensions.items() if own.least < own.most)
        multiples = tuple(place for place, own in self.dimensions.items() if own.is_multiple)
        return changing or multiples[:1]


class RootInputs:
    """Sizes of the tensors that the roots are called with, seen call by call.

    A dimension is the batch where it has as many entries as the call has samples, in every call. A tensor without such
    a dimension may still hold the nodes, the edges or the words of all samples. Its sizes are taken to grow with the
    batch where they differ from call to call. Where they don't, its rows are, if they are a multiple of the samples and
    the script does not pass the same tensor each time.

    Attributes:
        samples: of the latest call.
        autocast: the type that autocast computed a call in, None where it was off.
        names: what a size of one call is, by the size and which dimension it is of: graphs are traced in a call.
        marked: the sizes of the latest call that were asked to be symbols, with which dimension each is of.
    """

    def __init__(self) -> None:
        self.samples = 0
        self.autocast: str | None = None
        self._tensors: dict[_Path, _Tensor] = {}
        self._parameters: dict[int, tuple[str, ...]] = {}
        self.names: dict[tuple[int, int], str] = {}
        self.marked: set[tuple[int, int]] = set()

    def see(self, call: RootCall) -> None:
        """Take the sizes of a call."""
        self.samples = call.samples
        tensors = list(self._tensors_of(call))
        device = next((tensor.device.type for _, tensor in tensors), "cpu")
        if torch.is_autocast_enabled(device):
            self.autocast = str(torch.get_autocast_dtype(device)).removeprefix("torch.")
        for path, tensor in tensors:
            known = self._tensors.setdefault(path, _Tensor(weakref.ref(tensor)))
            known.is_always_the_same &= known.last() is tensor
            known.last, known.calls = weakref.ref(tensor), known.calls + 1
            for place, size in enumerate(tensor.shape):
                known.dimensions.setdefault(place, _Dimension(size)).see(
                    size, call.samples, may_be_batch=place == call.dimension
                )

    def mark(self, call: RootCall) -> None:
        """Ask Dynamo to trace as symbols, where it can, what changes with the batch in the call just seen.

        The lengths of token sequences are traced as symbols as well, for the formulas of the plan table.
        """
        named: dict[tuple[int, int], str] = {}
        self.marked.clear()
        for path, tensor in self._tensors_of(call):
            growing = self._tensors[path].growing()
            for place, size in enumerate(tensor.shape):
                name = self._name(path, place, tensor)
                # The batch is called so wherever it is; of two other sizes the first input's name stands.
                if name == BATCH or (size, place) not in named:
                    named[size, place] = name
                if size > 1 and (name in (BATCH, _SEQUENCE) or place in growing):
                    torch._dynamo.maybe_mark_dynamic(tensor, place)
                    self.marked.add((size, place))
        if self.samples > 1:
            named.setdefault((self.samples, NUMBER), BATCH)
        self.names = named | self.names

    @property
    def per_sample(self) -> dict[str, float]:
        """Return how much of each dimension that grows with the batch a sample brings: the most that a call had."""
        found: dict[str, float] = {}
        for path, known in self._tensors.items():
            for place in known.growing():
                name, share = _plain_name(path, place), float(known.dimensions[place].most_per_sample)
                found[name] = max(share, found.get(name, 0.0))
        return found

    def usual(self, name: str, traced: int, batch: int | None) -> int:
        """Return the value of a dimension to go by: the largest seen, at the usual batch where it grows with that.

        ``traced`` is its value while tracing, ``batch`` the usual batch size.
        """
        if name == BATCH:
            return traced if batch is None else batch
        share = self.per_sample.get(name)
        if share is not None and batch is not None:
            return math.ceil(share * batch)
        seen = (
            own.most
            for path, known in self._tensors.items()
            for place, own in known.dimensions.items()
            if name == _plain_name(path, place)
        )
        return max(seen, default=traced)

    def _name(self, path: _Path, place: int, tensor: torch.Tensor) -> str:
        dimensions = self._tensors[path].dimensions
        if dimensions[place].is_batch:
            return BATCH
        is_ids = tensor.dim() == 2 and not tensor.is_floating_point()
        if is_ids and dimensions[1 - place].is_batch:
            return _SEQUENCE
        return _plain_name(path, place)

    def _tensors_of(self, call: RootCall) -> Iterator[tuple[_Path, torch.Tensor]]:
        """Give the tensors with dimensions, each with the name of the argument that it is or lies in."""
        root = id(call.root)
        parameters = self._parameters.get(root)
        if parameters is None:
            parameters = self._parameters[root] = _positional(call.root)
        names = [*parameters, *(f"input{number}" for number in range(len(parameters), len(call.arguments)))]
        for name, argument in (dict(zip(names, call.arguments, strict=False)) | dict(call.keywords)).items():
            for path, tensor in _leaves(name, argument):
                yield (root, path), tensor


def _positional(root: nn.Module) -> tuple[str, ...]:
    try:
        parameters = inspect.signature(root.forward).parameters.values()
    except (TypeError, ValueError):
        return ()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(parameter.name for parameter in parameters if parameter.kind in kinds)


def _leaves(path: str, value: Any, depth: int = 0) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        # The sizes of nested tensors are no numbers.
        if value.dim() and not value.is_nested:
            yield path, value
    elif depth < _MOST_DEPTH:
        pairs = (
            value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, (list, tuple)) else ())
        )
        for key, item in pairs:
            yield from _leaves(f"{path}_{key}", item, depth + 1)


def _plain_name(path: _Path, place: int) -> str:
    """Name a dimension as ONNX Runtime does, by input and number, with an identifier as formulas need it."""
    return f"{re.sub(r'[^0-9a-zA-Z_]', '_', path[1])}_dim{place}"
