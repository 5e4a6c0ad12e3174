"""A trial as the search sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ..records import Configuration, Measured, OutOfMemory, Repeat
from ..records.figures import peak_bytes
from .aim import Aim

__all__ = ["Observation", "Origin", "with_rounds"]

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


def with_rounds(observation: Observation, repeats: Sequence[Repeat], aim: Aim) -> Observation:
    """The trial with what the rounds of its configuration have shown of its memory: the highest peak counts."""
    if observation.state != "scored" or observation.out_of_memory:
        return observation
    outcomes = [repeat.outcome for repeat in repeats if repeat.configuration.key == observation.configuration.key]
    if any(isinstance(outcome, OutOfMemory) for outcome in outcomes):
        return replace(observation, samples_per_s=0.0, feasible=False, out_of_memory=True)
    peaks = [peak_bytes(outcome.measurement.peaks) for outcome in outcomes if isinstance(outcome, Measured)]
    highest = max((peak for peak in (observation.peak_bytes, *peaks) if peak is not None), default=None)
    fits = highest is not None and highest <= aim.limit_bytes
    return replace(observation, peak_bytes=highest, feasible=observation.feasible and fits)
