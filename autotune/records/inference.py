"""Facts that discovery sees of an ONNX model: where its memory and its time go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Conversion = Literal["fp16", "int8", "int8-static"]
"""The forms that a model can be converted to: float16, or matrix products in whole numbers of 8 bits. The ranges of
these are found at each run or, ``static``, once on inputs that stand for others."""

InferencePhase = Literal["before", "load", "first run", "steady", "other shapes", "twice the batch", "shrunk"]
"""``before`` the session is made; ``load`` makes it, ``other shapes`` are those of a mix as they may come, ``first
run`` runs each shape of a pass once, ``steady`` is what is measured, ``twice the batch`` runs each shape at that,
and ``shrunk`` has the arena give back what it holds for later runs."""


@dataclass(frozen=True)
class InferenceMoment:
    """Bytes of the resident set: at the end of a phase, and the most during it."""

    phase: InferencePhase
    resident: int
    peak: int


@dataclass(frozen=True)
class OperatorTime:
    """All operators of a kind in one run: how many, the seconds that they take, and the bytes that they write."""

    kind: str
    number: int
    time_s: float
    output_bytes: int


@dataclass(frozen=True)
class LargeTensor:
    """The output that an operator writes, by the operator's name, in bytes."""

    name: str
    bytes: int


@dataclass(frozen=True)
class Converted:
    """A converted model: the bytes of its files, the error of its outputs, and why it cannot be had, else empty."""

    name: Conversion
    bytes: int = 0
    error: float | None = None  # the largest difference from the model's own, in units of that output's largest value
    refusal: str = ""


@dataclass(frozen=True)
class Idle:
    """Values of a setting that change nothing in how this model runs, or no more than another one, and why."""

    setting: str
    values: tuple[int, ...]
    reason: str


@dataclass(frozen=True)
class InferenceFacts:
    """Facts of the model as it is, under ONNX Runtime's defaults."""

    weight_bytes: int
    moments: tuple[InferenceMoment, ...]
    operators: tuple[OperatorTime, ...] = ()  # of the rewritten graph, the slowest kind first; empty without a profile
    tensors: tuple[LargeTensor, ...] = ()  # the largest first; empty without a profile
    conversions: tuple[Converted, ...] = ()  # those that were allowed
    idle: tuple[Idle, ...] = ()  # what need not be searched
