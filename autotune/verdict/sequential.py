"""The sequential test of a confirmation: whether a finalist is shown to be better, shown not to be, or still open.

Repetitions are blocks: what a whole repetition had in common, as a machine that was slow for a while, cancels where
settings are compared within it. Noise is what is left after the means of repetitions and of settings, pooled over all
of them. Each look, from the third repetition on, has a level of its own, which grows with the repetitions: together all
looks find for a finalist that is no better in less than one of 100 studies (``tests/benchmarks/repetitions.py``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist, fmean, variance

from ..records.study import Found

FIRST_LOOK = 3
"""Fewer repetitions tell nothing."""

LEAST_GAIN = 1.005
"""What is better by less is no win."""

# The one-sided level of the last look, of all finalists together. That of the looks before it is less by the share of
# the repetitions that are behind it, to this power: early looks find only what is far beyond the noise.
_LEVEL = 0.0025
_SPENDING = 1.6
LEAST_NOISE = 0.002
"""Few repetitions can agree by luck more closely than any machine repeats itself."""


@dataclass(frozen=True)
class Finding:
    """The result of the repetitions for one finalist.

    ``win``: better. ``no_better``: not better by the least gain. ``futile``: more repetitions are unlikely to show
    that it is better. ``open``: none of these yet. ``gain`` is the logarithm of the mean ratio to the baseline,
    ``error`` half the width of its confidence interval at the level of the look; infinite before the first look.
    """

    found: Found
    gain: float
    error: float

    @property
    def low(self) -> float | None:
        """Return the least ratio that the repetitions leave open; None before the first look."""
        return math.exp(self.gain - self.error) if math.isfinite(self.error) else None

    @property
    def high(self) -> float | None:
        """Return the largest ratio that the repetitions leave open; None before the first look."""
        return math.exp(self.gain + self.error) if math.isfinite(self.error) else None


def judge(
    blocks: Sequence[Sequence[float]],
    *,
    finalists: int,
    most_repetitions: int,
    is_over: bool,
    allowed: float | None = None,
) -> Finding:
    """Test the mean of differences within repetitions by Student's t, with repetitions as blocks.

    The error is never less than what the finalist's own differences scatter by: its noise may be larger than others'.

    Args:
        blocks: The logarithms of what settings were worth, more being better, of shape (repetitions, settings): of the
            baseline, the finalist, and others that help to tell the noise.
        finalists: How many finalists the confirmation began with; the level is shared out among them (Bonferroni).
        most_repetitions: How many repetitions the confirmation may have.
        is_over: No more repetitions follow: this look has the whole level of a last look.
        allowed: The logarithm of a loss to be ruled out; None where a gain has to be shown.
    """
    repetitions, settings = len(blocks), len(blocks[0])
    differences = [row[1] - row[0] for row in blocks]
    gain = fmean(differences)
    if repetitions < FIRST_LOOK:
        return Finding("open", gain, math.inf)
    least, floor = (math.log(LEAST_GAIN), 0.0) if allowed is None else (-allowed, -allowed)
    behind = min(repetitions / most_repetitions, 1.0)
    freedom = (repetitions - 1) * (settings - 1)
    pooled = max(_residual_variance(blocks, freedom), LEAST_NOISE**2)
    deviation = math.sqrt(max(2 * pooled, variance(differences)) / repetitions)
    quantile = error_quantile(
        freedom, repetitions=repetitions, most_repetitions=most_repetitions, is_over=is_over, finalists=finalists
    )
    error = quantile * deviation
    # What the last look will ask for, if the noise stays what it is.
    needed = max(least, floor + NormalDist().inv_cdf(1 - _LEVEL / finalists) * deviation * math.sqrt(behind))
    found: Found = "open"
    if gain >= max(least, floor + error):
        found = "win"
    elif gain + error < least:
        found = "no_better"
    elif gain + deviation < needed:
        found = "futile"
    return Finding(found, gain, error)


def error_quantile(
    freedom: int, *, repetitions: int, most_repetitions: int, is_over: bool, finalists: int = 1
) -> float:
    """Return how many standard errors a look allows for: at its level, of Student's t."""
    behind = min(repetitions / most_repetitions, 1.0)
    return student_quantile(_LEVEL / finalists * (1.0 if is_over else behind**_SPENDING), freedom)


def _residual_variance(blocks: Sequence[Sequence[float]], freedom: int) -> float:
    """Return the variance of what is left after the means of repetitions and of settings."""
    rows = [fmean(row) for row in blocks]
    columns = [fmean(column) for column in zip(*blocks, strict=True)]
    middle = fmean(rows)
    squares = (
        (value - row_mean - column_mean + middle) ** 2
        for row, row_mean in zip(blocks, rows, strict=True)
        for value, column_mean in zip(row, columns, strict=True)
    )
    return math.fsum(squares) / freedom


@cache
def student_quantile(level: float, freedom: int) -> float:
    """Return the upper quantile of Student's t."""
    from scipy.special import stdtrit  # takes most of a second to import, and a study needs it at its end only

    return -float(stdtrit(freedom, level))
