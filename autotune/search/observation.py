"""A trial as the search sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..records import Configuration

__all__ = ["Observation", "Origin"]

Origin = Literal["baseline", "given", "sampler", "recovered"]


@dataclass(frozen=True)
class Observation:
    """A trial as the search sees it.

    ``state`` is ``scored`` once speed and memory are known, out of memory included (no samples, not feasible); a
    ``failed`` trial says nothing about either. ``feasible`` is what may be the answer as far as memory goes.
    """

    number: int
    configuration: Configuration
    origin: Origin
    state: Literal["running", "scored", "failed"]
    samples_per_s: float = 0.0
    peak_bytes: float | None = None
    feasible: bool = False
    out_of_memory: bool = False
