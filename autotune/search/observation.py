"""A trial as the search sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ..records import Configuration, HostOutOfMemory, Measured, OutOfMemory, Repeat
from ..records.figures import peak_bytes
from .aim import Aim
from .judging import score
from .rounds import holds

__all__ = ["Observation", "Origin", "with_rounds"]

Origin = Literal["baseline", "given", "sampler", "recovered"]


@dataclass(frozen=True)
class Observation:
    """A trial as the search sees it.

    ``state`` is ``scored`` once speed and memory are known, out of memory included (no samples, not feasible); a
    ``failed`` trial says nothing about either. ``feasible`` is what may be the answer as far as memory and its rounds
    go, and ``fails`` tells that a round of it failed by other than memory.
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


def with_rounds(
    observation: Observation, repeats: Sequence[Repeat], aim: Aim, *, baseline_is_finite: bool
) -> Observation:
    """The trial with what the rounds of its configuration have shown.

    The highest peak counts, and what failed a round may not be the answer. The baseline stays what others are held
    against, whatever a round of it has shown.
    """
    if observation.state != "scored" or observation.out_of_memory or observation.origin == "baseline":
        return observation
    outcomes = [repeat.outcome for repeat in repeats if repeat.configuration.key == observation.configuration.key]
    if any(isinstance(outcome, (OutOfMemory, HostOutOfMemory)) for outcome in outcomes):
        return replace(observation, samples_per_s=0.0, feasible=False, out_of_memory=True)
    peaks = [peak_bytes(outcome.measurement.peaks) for outcome in outcomes if isinstance(outcome, Measured)]
    highest = max((peak for peak in (observation.peak_bytes, *peaks) if peak is not None), default=None)
    is_held = holds(repeats, observation.configuration, aim, baseline_is_finite=baseline_is_finite)
    told = [score(outcome, aim, expected_bytes=None, baseline_is_finite=baseline_is_finite) for outcome in outcomes]
    return replace(observation, peak_bytes=highest, feasible=observation.feasible and is_held, fails=None in told)
