"""The cost model's expectations, one by one."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Expected:
    """None before any peak was measured. ``peak_sd`` is a share of the peak, ``step_sd`` of the seconds of a step."""

    peak_bytes: float | None = None
    samples_per_s: float | None = None
    peak_sd: float | None = None
    step_sd: float | None = None


def expect(model, configurations):
    """Return what a cost model expects of each of several configurations of its space."""
    if not model._is_calibrated:
        return [Expected()] * len(configurations)
    peaks, peaks_sd = model.peaks.of(configurations)
    rates, rates_sd = model._log_rates(model._featuring.of(configurations))
    found = zip(peaks, map(math.exp, rates), peaks_sd / peaks, rates_sd, strict=True)
    return [Expected(*map(float, one)) for one in found]
