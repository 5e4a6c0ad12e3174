"""Feasibility of a measurement as the answer: the rule that search, finals, display and report ask, and the front."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

from ..records.measurement import Measurement
from ..records.study import Trial


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


Flaw = Literal["peak_unknown", "over_limit", "thrashed", "loss_not_finite"]
"""What stands against a measurement."""


def flaws_of(measurement: Measurement, limit_bytes: float, *, baseline_is_finite: bool) -> frozenset[Flaw]:
    """Tell why a measured configuration may not win; nothing where it may.

    A loss that is not finite is held against a configuration only where the baseline's is.
    """
    peak = measurement.peaks.fit_bytes
    held: dict[Flaw, bool] = {
        "peak_unknown": peak is None,
        "over_limit": peak is not None and peak > limit_bytes,
        "thrashed": measurement.allocator_retries > 0,
        "loss_not_finite": measurement.nonfinite_loss and baseline_is_finite,
    }
    return frozenset(flaw for flaw, holds in held.items() if holds)


def is_feasible(measurement: Measurement, limit_bytes: float, *, baseline_is_finite: bool) -> bool:
    """Tell whether a measured configuration may win, as far as one measurement tells: it has no flaw."""
    return not flaws_of(measurement, limit_bytes, baseline_is_finite=baseline_is_finite)
