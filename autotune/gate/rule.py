"""The gate's test: whether a figure is shown to be worse, shown to be within what is allowed, or neither yet.

Two things are asked at once. That it is *worse* has to be shown, or a gate fails from noise; and that it is no worse
than is allowed has to be shown too, or a gate passes because nothing could be seen. What is shown to be worse, and not
shown to be within, is a regression. So a loss as large as is allowed is found, and no loss is not. What neither shows
is for the decision: it passes where the middle of what is left open is within, and says that this was not shown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from ..records.gate import GaugeFound
from ..verdict.sequential import FIRST_LOOK, LEAST_GAIN, LEAST_NOISE, error_quantile

LEAST_ALLOWED = LEAST_GAIN - 1
"""The smallest share that can be allowed: a difference below it is none."""


@dataclass(frozen=True)
class Loss:
    """The logarithm of how many times as bad it has become, and how far off that may be to either side."""

    found: GaugeFound
    loss: float
    error: float


def judge_loss(
    now: Sequence[float], before: Sequence[float], *, allowed: float, most_rounds: int, is_over: bool
) -> Loss:
    """Look at what rounds show.

    A test of the difference of two means with Student's t and pooled variance. Looks at fewer rounds than the most
    have a lower level (``verdict.error_quantile``).

    Args:
        now: Logarithms of what was measured, more being worse: one for each round of this sitting, of the setting, or
            of how it compares with a reference in the round.
        before: The same of an earlier sitting; empty where the reference of this one is all there is to compare with.
        allowed: The largest loss that passes, as a share.
        most_rounds: How many rounds this sitting may have.
        is_over: Whether this is the last look.
    """
    loss = fmean(now) - (fmean(before) if before else 0.0)
    freedom = len(now) - 1 + max(0, len(before) - 1)
    if len(now) < FIRST_LOOK:
        return Loss("open", loss, math.inf)
    squares = sum((value - fmean(row)) ** 2 for row in (now, before) if row for value in row)
    variance = max(squares / freedom, LEAST_NOISE**2)
    deviation = math.sqrt(variance * (1 / len(now) + (1 / len(before) if before else 0.0)))
    error = deviation * error_quantile(freedom, rounds=len(now), most_rounds=most_rounds, is_over=is_over)
    least = math.log(LEAST_GAIN)
    if loss <= -max(least, error):
        return Loss("better", loss, error)
    if loss + error < math.log1p(allowed):
        return Loss("within", loss, error)
    if loss >= max(least, error):
        return Loss("worse", loss, error)
    return Loss("open", loss, error)
