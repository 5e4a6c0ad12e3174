"""Batches that stand for an epoch: a trial is measured with them in the place of the script's own."""

from __future__ import annotations

import bisect
import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import Any

import torch

from ...records.look_ahead import READING_S, SeenBatch
from ...records.measuring import LARGEST_HANDED, LONGEST_CYCLE
from .batch_parts import PLAIN, parts_of
from .look_ahead import Drawn, EpochReading, tensors_in, why_unreadable

# Of the batches of an epoch so many are kept while it is read, with sizes as different as possible.
_MOST_KEPT = 24
# Where in the epoch, by size, the batches of a cycle are taken: so much of all elements is in batches up to them.
_SHARES = (0.05, 0.35, 0.65, 0.95)
assert len(_SHARES) == LONGEST_CYCLE


class EpochSample(EpochReading):
    """Reads an epoch, and hands out its largest batch, and then cycles of a few batches that stand for the epoch.

    Attributes:
        weights: How many steps of a cycle each of its batches stands for, by the number of the batch.
        refusal: Why an epoch cannot be read, as far as its batches tell; empty where it can.
    """

    def __init__(self, most: int, draw: Callable[[], Drawn], *, per_step: int, keeps: bool = False) -> None:
        """Draw batches from ``draw``, up to so many; ``per_step`` is how many an optimizer step takes.

        ``keeps``: others than those that stand for the epoch may be asked for.
        """
        super().__init__(most, READING_S)
        self.refusal = ""
        self._kept: list[tuple[SeenBatch, Drawn]] = []  # by size
        self._per_step = per_step
        self._order: Iterator[int] = iter(())
        self._number = self._left = self._own = 0
        self.weights: dict[int, float] = {}
        try:
            self.read(lambda: self._keep(draw()))
        except Exception as error:
            self.refusal = f"its first batch raises {type(error).__name__}: {str(error)[:200]}"
        self.refusal = self.refusal or ("" if self._kept else "it brings no batch a second time")
        if self.refusal:
            return
        self.weights = weights_of([one for one, _ in self._kept], self._whole())
        if not keeps:
            self._kept = [one for one in self._kept if one[0] == self.largest or one[0].number in self.weights]
        self.begin()

    @property
    def largest(self) -> SeenBatch:
        """Return the largest batch."""
        return self._kept[-1][0]

    def largest_up_to(self, elements: float) -> SeenBatch | None:
        """Return the largest batch of at most so many elements, of those that were kept; None without one."""
        return max((one for one, _ in self._kept if one.elements <= elements), key=lambda one: one.size, default=None)

    def begin(self, drawn: int = 0, *, then: Sequence[int] = ()) -> None:
        """Hand out batches from the largest on, ``then`` those of these numbers once each, and then cycles.

        The script has ``drawn`` some already that it has not taken yet.
        """
        first = [*[self.largest.number] * LARGEST_HANDED, *then]
        self._order = itertools.chain(first, itertools.cycle(self.weights))
        # All batches of a step are to be of one size.
        self._left, self._own = 0, -drawn % self._per_step

    def begin_epoch(self, taken: int) -> None:
        """Begin an epoch of the script's, in a step that has ``taken`` so many batches: the last one may lack some."""
        self._left, self._own = 0, -taken % self._per_step

    def hand_next(self, numbers: Sequence[int]) -> None:
        """Hand out the batches of these numbers before those that come anyway."""
        self._order = itertools.chain(numbers, self._order)

    def stay_at_largest(self) -> None:
        """Hand out the largest batch from here on."""
        self._order, self._left = itertools.repeat(self.largest.number), 0

    def next(self) -> tuple[SeenBatch, Drawn] | None:
        """Return the next batch, which the script may change: its sizes, and a copy with the number of its samples.

        None where the script is to get its own, for a step that has begun.
        """
        if self._own:
            self._own -= 1
            return None
        if not self._left:
            self._number, self._left = next(self._order), self._per_step
        self._left -= 1
        seen, (batch, samples) = next(one for one in self._kept if one[0].number == self._number)
        return seen, (copied(batch), samples)

    def _whole(self) -> list[SeenBatch]:
        # The last one may lack samples.
        return self.seen[:-1] if self.is_whole and len(self.seen) > len(_SHARES) else self.seen

    def _keep(self, drawn: Drawn) -> None:
        batch = self.see(drawn[0])
        self.refusal = self.refusal or why_unreadable(batch, drawn[0])
        if self.refusal:
            raise StopIteration
        sizes = [one.size for one, _ in self._kept]
        place = bisect.bisect(sizes, batch.size)
        if place and sizes[place - 1] == batch.size:
            return
        sizes.insert(place, batch.size)
        spare = None
        if len(sizes) > _MOST_KEPT:
            ratios = [sizes[at + 1][0] / max(1, sizes[at - 1][0]) for at in range(1, len(sizes) - 1)]
            spare = 1 + ratios.index(min(ratios))
        if spare != place:
            # A copy: what worker processes have made takes a descriptor for each tensor.
            self._kept.insert(place, (batch, (copied(drawn[0]), drawn[1])))
            if spare is not None:
                del self._kept[spare]


def weights_of(kept: Sequence[SeenBatch], epoch: Sequence[SeenBatch]) -> dict[int, float]:
    """Choose from the batches that were ``kept``, by size, those that stand for an epoch.

    Time grows with size, so a batch between two of the chosen ones counts for both, in proportion to its distance.
    Returns the number of each in the order in which they came, with a weight. Weights have a mean of 1, and by them the
    chosen batches have the mean size of the epoch.
    """
    sizes = sorted(one.elements for one in epoch)
    sums = [*itertools.accumulate(sizes)]
    wanted = [sizes[bisect.bisect_left(sums, share * sums[-1])] for share in _SHARES]
    inside = [one for one in kept if one in epoch] or kept
    chosen = {min(inside, key=lambda one: abs(one.elements - size)).number for size in wanted}
    reps = [one for one in inside if one.number in chosen]
    while True:
        weights = _interpolated([one.elements for one in reps], sizes)
        if min(weights) > 0.0:
            break
        del reps[weights.index(min(weights))]
    return {one.number: weight * len(reps) for one, weight in sorted(zip(reps, weights, strict=True), key=_number)}


def _number(one: tuple[SeenBatch, float]) -> int:
    return one[0].number


def _interpolated(at: Sequence[int], sizes: Sequence[int]) -> list[float]:
    """Return the weights of points ``at`` ascending sizes for the mean of a function that is linear between them."""
    if len(at) == 1:
        return [1.0]
    shares: list[list[float]] = [[] for _ in at]
    for size in sizes:
        above = min(max(1, bisect.bisect(at, size)), len(at) - 1)
        share = (size - at[above - 1]) / (at[above] - at[above - 1])
        for place, one in enumerate(shares):
            one.append(share if place == above else 1.0 - share if place == above - 1 else 0.0)
    return [fmean(one) for one in shares]


def copied(value: Any) -> Any:
    """Copy a batch: its tensors and containers, so that a script may write into both."""
    if isinstance(value, torch.Tensor):
        pinned = value.is_pinned()  # a copy from other memory to a GPU would wait
        return torch.empty_like(value, pin_memory=True).copy_(value) if pinned else value.clone()
    if type(value) is dict:
        return {name: copied(one) for name, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(value if all(isinstance(one, PLAIN) for one in value) else map(copied, value))
    if not parts_of(value):
        return value
    try:
        return copy.deepcopy(value, {id(one): copied(one) for one in tensors_in(value)})
    except Exception:
        return value  # what cannot be copied is seldom changed
