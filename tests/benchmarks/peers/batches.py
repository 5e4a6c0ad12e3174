"""How a batch size is chosen for a setting: the next one to look at, or the one that it comes to."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from autotune.records.outcome import HostOutOfMemory, Measured, Outcome, OutOfMemory
from autotune.verdict.feasible import is_feasible

# A line through two peaks does not see what an allocator keeps: as long as nothing failed, so much more is looked at.
_BEYOND_THE_LINE = 1.1


@dataclass(frozen=True)
class Range:
    """What may be chosen from: batch sizes, both ends included, under a limit. ``own`` is the script's."""

    own: int
    least: int
    most: int
    limit_bytes: int

    @property
    def first(self) -> int:
        """The size to begin with: the script's own, or the nearest to it."""
        return min(max(self.own, self.least), self.most)

    def fits(self, outcome: Outcome) -> bool:
        """Whether it was measured, and nothing that was measured speaks against it."""
        return isinstance(outcome, Measured) and is_feasible(
            outcome.measurement, self.limit_bytes, baseline_is_finite=True
        )


@dataclass(frozen=True)
class Chosen:
    """What a choice came to: a batch size, or None for the ``reason``.

    ``or_else`` is another one that repetitions may show to be better.
    """

    batch_size: int | None
    reason: str = ""
    or_else: int | None = None


Choice = Callable[[Mapping[int, Outcome], Range], int | Chosen]
"""Of what came of the batch sizes that were looked at so far: the next one, or what was chosen."""


def own(tried: Mapping[int, Outcome], sizes: Range) -> int | Chosen:
    """The script's own, whether or not it fits."""
    if sizes.own not in tried:
        return sizes.own
    outcome = tried[sizes.own]
    return Chosen(sizes.own) if sizes.fits(outcome) else Chosen(None, why_not(outcome))


def doubled(tried: Mapping[int, Outcome], sizes: Range) -> int | Chosen:
    """The last one that fits as it is doubled until it does not; halved where the first one does not fit."""
    fitting, failed = _parted(tried, sizes)
    if not tried:
        return sizes.first
    if not fitting:
        return _smaller(tried, sizes)
    following = max(fitting) * 2
    if following <= sizes.most and following not in failed:
        return following
    return Chosen(max(fitting))


def best(tried: Mapping[int, Outcome], sizes: Range) -> int | Chosen:
    """The one that trains the most samples per second of those on the way to the largest that fits.

    Doubled until one does not fit, then halfway between, down to an eighth of the size. Where two peaks say by a line
    that twice the size is too much, less is looked at. What was looked at once, one after the other, may be wrong about
    the fastest: so repetitions are to decide between that one and the largest.
    """
    fitting, failed = _parted(tried, sizes)
    if not tried:
        return sizes.first
    if not fitting:
        return _smaller(tried, sizes)
    largest, ceiling = max(fitting), min(failed, default=sizes.most + 1)
    grain = max(1, 2 ** int(math.log2(largest)) // 8)
    proposal = (largest + ceiling) // 2 if failed else min(2 * largest, sizes.most)
    proposal = min(proposal, _most_by_line(tried, fitting, sizes.limit_bytes, is_open=not failed))
    proposal -= proposal % grain
    if largest < proposal < ceiling:
        return proposal
    fastest = max(fitting, key=lambda size: tried[size].measurement.samples_per_s)
    return Chosen(fastest, or_else=None if fastest == largest else largest)


def why_not(outcome: Outcome) -> str:
    """What stands against an outcome."""
    if not isinstance(outcome, Measured):
        return outcome.cause
    return "the allocator had to free and try again" if outcome.measurement.allocator_retries else "over the limit"


def lacks_memory(outcome: Outcome) -> bool:
    """Whether a smaller batch may do: it was measured and is over the limit, or ran out of memory."""
    return isinstance(outcome, Measured | OutOfMemory | HostOutOfMemory)


def _parted(tried: Mapping[int, Outcome], sizes: Range) -> tuple[list[int], list[int]]:
    """The sizes that fit, and those that do not, in order."""
    fitting = sorted(size for size, outcome in tried.items() if sizes.fits(outcome))
    return fitting, sorted(size for size in tried if size not in fitting)


def _smaller(tried: Mapping[int, Outcome], sizes: Range) -> int | Chosen:
    smallest = min(tried)
    if lacks_memory(tried[smallest]) and smallest // 2 >= sizes.least:
        return smallest // 2
    return Chosen(None, why_not(tried[smallest]))


def _most_by_line(tried: Mapping[int, Outcome], fitting: list[int], limit_bytes: int, *, is_open: bool) -> int:
    """The largest size by a line through the peaks of the two largest that fit."""
    if len(fitting) < 2:
        return 2 * fitting[-1]
    (low, low_bytes), (high, high_bytes) = (
        (size, tried[size].measurement.peaks.fit_bytes or 0) for size in fitting[-2:]
    )
    per_sample = (high_bytes - low_bytes) / (high - low)
    if per_sample <= 0:
        return 2 * high
    return int((high + (limit_bytes - high_bytes) / per_sample) * (_BEYOND_THE_LINE if is_open else 1))
