"""Batch sizes that a search may try."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

from ..records.facts import StepsFacts
from ..records.objective import Objective

# How many times the script's own size is looked at by default, up or down: where little is to be had, and elsewhere.
_NEAR, _FAR = 2, 16
# Up to here every size is worth a try; above, multiples of this suit the hardware.
_MULTIPLE = 8
_ANY_SIZE_UP_TO = 16


def batch_sizes(
    own: int,
    limits: tuple[int, int] | None,
    objective: Objective,
    *,
    baseline_fits: bool = True,
    steps: StepsFacts = StepsFacts(),  # noqa: B008  (frozen)
    least_steps: int = 1,
) -> tuple[int, ...]:
    """List the script's own size, its doublings and halvings, and the steps of 1.5 between them, within the limits.

    They ascend. Sizes at which the script should end before it can be measured are left out, unless they were asked
    for. Without ``limits`` they are those of the objective, and go down to 1 where the script may not be the answer
    (``baseline_fits``). ``steps`` are the script's, of which a trial needs ``least_steps``.
    """
    low, high = _limits(own, limits, objective, baseline_fits=baseline_fits)
    sizes = {own} if limits is None else {own, *limits}
    octaves = range(-own.bit_length(), high.bit_length() + 1)
    for octave, factor in itertools.product(octaves, (Fraction(1), Fraction(3, 2))):
        if octave != 0 or factor != 1:  # the script's own size is in as it is, and needs no rounded neighbour
            sizes.add(_suiting(own * factor * Fraction(2) ** octave))
    most = _most(own, steps, least_steps if limits is None else 1)
    return tuple(sorted(size for size in sizes if low <= size <= high and (size <= most or size == own)))


def between(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """List one size between each two neighbours of ascending sizes, where there is one that suits the hardware."""
    middles = (_suiting(Fraction(low + high, 2)) for low, high in itertools.pairwise(sizes))
    return tuple(middle for middle in middles if middle not in sizes)


def _most(own: int, steps: StepsFacts, least_steps: int) -> float:
    """The largest size that the data should have the steps for; a batch is never more than all of the data."""
    whole = steps.largest_batch(own)
    return whole if steps.in_all is None else min(whole, own * steps.in_all / least_steps)


def dividing(
    global_batch: int,
    own: int,
    limits: tuple[int, int] | None,
    objective: Objective,
    *,
    baseline_fits: bool = True,
) -> tuple[int, ...]:
    """List the sizes that divide the global batch, which is the process's share of it; otherwise as ``batch_sizes``."""
    low, high = _limits(own, limits, objective, baseline_fits=baseline_fits)
    return tuple(size for size in range(low, min(high, global_batch) + 1) if global_batch % size == 0)


def _limits(own: int, limits: tuple[int, int] | None, objective: Objective, *, baseline_fits: bool) -> tuple[int, int]:
    """The smallest and the largest."""
    # Smaller ones where less memory than the script takes is asked for.
    down = own if not baseline_fits else _NEAR if objective == Objective() else _FAR
    up = _NEAR if objective.goal == "memory" else _FAR
    return (max(1, own // down), own * up) if limits is None else limits


def _suiting(size: Fraction) -> int:
    if size <= _ANY_SIZE_UP_TO:
        return math.floor(size)
    return _MULTIPLE * math.floor(size / _MULTIPLE + Fraction(1, 2))
