"""Scores: outcomes as a sampler is told of them."""

from __future__ import annotations

from dataclasses import dataclass

from ..records.outcome import Measured, Outcome, OutOfMemory
from ..verdict.aim import Aim
from ..verdict.feasible import flaws_of

# Out of memory is told as at least this far above the limit, as a share of it, so that a sampler prefers what was seen
# to miss narrowly.
_OUT_OF_MEMORY_BY = 0.10
# An allocator that had to free and try again was at the limit, whatever its peak says: so far above it, as a share.
_THRASHING_BY = 0.02


@dataclass(frozen=True)
class Score:
    """A score for a sampler: samples/s and peak in bytes, and how far either is from an answer's.

    ``violation`` is the peak's excess, as a share of the limit. ``slowness`` is the samples/s that are missing, as a
    share of those needed; None where any number will do.
    """

    samples_per_s: float
    peak_bytes: float
    violation: float
    slowness: float | None = None


def score(
    outcome: Outcome,
    aim: Aim,
    *,
    expected_bytes: float | None,
    baseline_is_finite: bool,
    reference_per_s: float | None = None,
) -> Score | None:
    """Turn an outcome into what a sampler can learn from; None if it tells nothing of memory or speed.

    Out of memory is scored as no samples, and as a limit violated by what was asked for, by ``expected_bytes``, or by a
    tenth, whichever is most. A loss that is no number tells nothing, unless the baseline's is none either.
    ``reference_per_s`` are the samples/s that those of an answer are held against, as far as they are known.
    """
    if outcome.for_memory:
        needed = outcome.needed_bytes if isinstance(outcome, OutOfMemory) else None
        least = max(needed or 0, expected_bytes or 0.0, (1 + _OUT_OF_MEMORY_BY) * aim.run_limit_bytes)
        return Score(0.0, least, least / aim.limit_bytes - 1, _slowness(0.0, aim, reference_per_s))
    if not isinstance(outcome, Measured):
        return None
    measurement = outcome.measurement
    flaws = flaws_of(measurement, aim.limit_bytes, baseline_is_finite=baseline_is_finite)
    peak = measurement.peaks.fit_bytes
    if peak is None or "loss_not_finite" in flaws:
        return None
    violation = peak / aim.limit_bytes - 1
    if "thrashed" in flaws:
        violation = max(violation, _THRASHING_BY)
    rate = measurement.samples_per_s
    return Score(rate, float(peak), violation, _slowness(rate, aim, reference_per_s))


def _slowness(samples_per_s: float, aim: Aim, reference_per_s: float | None) -> float | None:
    if not aim.slowest:
        return None
    # Where nothing is known to compare with, it is what others will be compared with.
    return 1 - samples_per_s / (aim.slowest * reference_per_s) if reference_per_s else 0.0
