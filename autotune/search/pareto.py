"""The trade between speed and memory: trials that no other trial beats in both."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ..records import Measured, Trial
from ..records.figures import peak_bytes

__all__ = ["pareto"]


def pareto(trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """Pick the trials for which no other was at least as fast with no more memory; from least to most memory.

    Trials over the memory limit are kept, since a limit can be chosen by looking at the front. Left out is what was
    not measured, thrashed, or trained a loss that is not finite. Of equal trials the first stands for all.
    """
    figures = []
    for trial in trials:
        if isinstance(trial.outcome, Measured):
            measurement = trial.outcome.measurement
            peak = peak_bytes(measurement.peaks)
            if peak is not None and not measurement.allocator_retries and not measurement.nonfinite_loss:
                figures.append((peak, -measurement.samples_per_s, trial.number, trial))
    front: list[Trial] = []
    slowest_allowed = math.inf
    for _, negative_rate, _, trial in sorted(figures, key=lambda row: row[:3]):
        if negative_rate < slowest_allowed:
            slowest_allowed = negative_rate
            front.append(trial)
    return tuple(front)
