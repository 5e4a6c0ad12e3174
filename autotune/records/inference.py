"""What discovery sees of an ONNX model: where its memory and its time go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["InferenceFacts", "InferenceMoment", "InferencePhase", "LargeTensor", "OperatorTime"]

InferencePhase = Literal["before", "load", "first run", "steady", "other shapes", "shrunk"]
"""``before`` the session is made; ``load`` makes it, ``first run`` runs each shape once, ``steady`` is what is
measured, ``other shapes`` are more of a mix, and ``shrunk`` has the arena give back what it holds for later runs."""


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
    """What an operator writes, by the operator's name, in bytes."""

    name: str
    bytes: int


@dataclass(frozen=True)
class InferenceFacts:
    """Of the model as it is, under ONNX Runtime's defaults.

    ``operators`` are those of the graph as ONNX Runtime has rewritten it, the slowest kind first, ``tensors`` the
    largest first; both by ONNX Runtime's own profile of one run, and empty where it wrote none.
    """

    weight_bytes: int
    moments: tuple[InferenceMoment, ...]
    operators: tuple[OperatorTime, ...] = ()
    tensors: tuple[LargeTensor, ...] = ()
