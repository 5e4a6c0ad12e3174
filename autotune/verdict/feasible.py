"""Feasibility of a measurement as the answer by itself: the rule that search, finals, display and report ask."""

from __future__ import annotations

from typing import Literal

from ..records.measurement import Measurement

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
