"""Feasibility of a measurement as the answer: the rule of search, confirmation, display and report, and the front."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

from ..records.measurement import Measurement
from ..records.study import Trial


def front(trials: Iterable[Trial], *, baseline_is_finite: bool) -> tuple[Trial, ...]:
    """Pick the trials for which no other was at least as fast with no more memory; from least to most memory.

    Trials over the memory limit are kept, since a limit can be chosen by looking at the front; other flaws are not. Of
    equal trials the first stands for all.
    """
    flawless = (
        trial
        for trial in trials
        if trial.measured and is_feasible(trial.measured, math.inf, baseline_is_finite=baseline_is_finite)
    )
    chosen: list[Trial] = []
    for trial in sorted(flawless, key=lambda one: (one.peak_bytes or 0, -one.samples_per_s, one.number)):
        if not chosen or trial.samples_per_s > chosen[-1].samples_per_s:
            chosen.append(trial)
    return tuple(chosen)


Flaw = Literal["peak_unknown", "over_limit", "thrashed", "loss_not_finite"]
"""What stands against a measurement."""


def flaws_of(measurement: Measurement, limit_bytes: float, *, baseline_is_finite: bool) -> frozenset[Flaw]:
    """Tell why a measured configuration may not win; a loss that is not finite counts only beside a finite baseline."""
    peak = measurement.peaks.fit_bytes
    held: dict[Flaw, bool] = {
        "peak_unknown": peak is None,
        "over_limit": peak is not None and peak > limit_bytes,
        "thrashed": measurement.allocator_retries > 0,
        "loss_not_finite": measurement.nonfinite_loss and baseline_is_finite,
    }
    return frozenset(flaw for flaw, holds in held.items() if holds)


def is_feasible(measurement: Measurement, limit_bytes: float, *, baseline_is_finite: bool) -> bool:
    """Tell whether a measured configuration may win, as far as one measurement tells."""
    return not flaws_of(measurement, limit_bytes, baseline_is_finite=baseline_is_finite)
