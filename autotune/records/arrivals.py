"""Data that reach the models in training, batch by batch, and whether they follow the batch size."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

# Of what a larger batch should bring so much has to arrive, where all batches are of one size.
_LEAST_SHARE = 0.97
# Where batches vary, by their lengths or their graphs. Data grow as a power of the batch size, below 1 where samples
# share data, as graphs share neighbours. A power below the first shows no effect if the second can be ruled out.
_NO_EFFECT, _LEAST_EFFECT = 0.15, 0.3
_STANDARD_ERRORS = 2.0


@dataclass(frozen=True)
class Arrived:
    """A tensor, or all tensors of an argument, that a batch brings to models: the mean number of their elements.

    ``error`` is the mean's standard error as a share of it. ``usual`` is the number in nearly all batches, None where
    it varies, and ``shape`` that of a single tensor in nearly all batches. ``is_tokens``: it is whole numbers,
    (samples, length), for a model that embeds such.
    """

    name: str
    elements: float
    error: float = 0.0
    usual: int | None = None
    shape: tuple[int, ...] = ()
    is_tokens: bool = False


@dataclass(frozen=True)
class Arrivals:
    """Hold what batches of a size bring to the models."""

    batch_size: int
    arrived: tuple[Arrived, ...]


def why_ineffective(own: Arrivals, now: Iterable[Arrived], batch_size: int) -> str:
    """Say how data at a batch size show that the size took no effect, or not all; empty where something follows it.

    ``own`` are the data at the script's own size. Some tensors need not follow: a mask, a matrix of all samples.
    """
    factor = batch_size / own.batch_size
    before = {one.name: one for one in own.arrived}
    pairs = [(before[one.name], one) for one in now if one.name in before]
    if factor == 1 or not pairs or any(_follows(one, other, factor) for one, other in pairs):
        return ""
    one, other = max(pairs, key=lambda pair: abs(math.log(_ratio(*pair))))
    ratio = _ratio(one, other)
    if math.isclose(ratio, 1.0, rel_tol=0.1):
        shape = "x".join(map(str, one.shape)) if one.shape == other.shape else ""
        told = f"brings as much data to the model as at batch size {own.batch_size}"
        return f"{told} (a tensor of {shape} at both)" if shape else told
    return f"brings {ratio:.3g} times the data of batch size {own.batch_size} to the model"


def _follows(own: Arrived, now: Arrived, factor: float) -> bool:
    ratio = _ratio(own, now)
    if own.usual and now.usual:
        return ratio >= _LEAST_SHARE * factor if factor > 1 else ratio <= factor / _LEAST_SHARE
    scale = abs(math.log(factor))
    grown = math.log(ratio) * math.copysign(1, math.log(factor))
    error = math.hypot(own.error, now.error)
    return grown >= _NO_EFFECT * scale or grown + _STANDARD_ERRORS * error >= _LEAST_EFFECT * scale


def _ratio(own: Arrived, now: Arrived) -> float:
    # An epoch's last batch is smaller, and comes more often where there are fewer: means are compared with means only.
    return now.usual / own.usual if own.usual and now.usual else now.elements / own.elements
