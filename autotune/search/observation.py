"""A trial as the search sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..records.configuration import Configuration

Origin = Literal["baseline", "given", "sampler", "recovered"]


@dataclass(frozen=True)
class Observation:
    """A trial as the search sees it.

    ``state`` is ``scored`` once speed and memory are known, out of memory included (no samples, not feasible); a
    ``failed`` trial says nothing about either. ``feasible`` is what may be the answer as far as memory and its rounds
    go, and ``fails`` tells that a round of it failed by other than memory. ``steps_seen`` are the optimizer steps after
    which the script ended, too few to be measured; ``timed_out`` tells that a deadline passed. ``needed_bytes`` are
    what was asked for at the least where it ran out of memory, as far as that is known.
    """

    number: int
    configuration: Configuration
    origin: Origin
    state: Literal["running", "scored", "failed"]
    samples_per_s: float = 0.0
    peak_bytes: float | None = None
    feasible: bool = False
    out_of_memory: bool = False
    fails: bool = False
    steps_seen: int = 0
    timed_out: bool = False
    needed_bytes: float | None = None
