"""The Pareto front of a study: what samples/s each amount of memory buys."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ..records.study import Trial
from .feasible import is_feasible


def front(trials: Iterable[Trial], *, baseline_is_finite: bool) -> tuple[Trial, ...]:
    """Pick the trials for which no other was at least as fast with no more memory; from least to most memory.

    Trials over the memory limit are kept, since a limit can be chosen by looking at the front. Left out is what has
    another flaw in its measurement. Of equal trials the first stands for all.
    """
    figures = [
        (trial.measured.measurement.peaks.fit_bytes, -trial.measured.measurement.samples_per_s, trial.number, trial)
        for trial in trials
        if trial.measured and is_feasible(trial.measured.measurement, math.inf, baseline_is_finite=baseline_is_finite)
    ]
    chosen: list[Trial] = []
    slowest_allowed = math.inf
    for _, negative_rate, _, trial in sorted(figures, key=lambda row: row[:3]):
        if negative_rate < slowest_allowed:
            slowest_allowed = negative_rate
            chosen.append(trial)
    return tuple(chosen)
