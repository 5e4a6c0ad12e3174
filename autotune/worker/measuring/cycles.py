"""Cycles of batches in place of single steps: what a trial measures where an epoch was read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...records.look_ahead import SeenBatch
from ...records.measuring import LARGEST_HANDED
from ..hooks.loaders import LoaderHooks

_MOST_STEPS = 64  # in a round: a library may have drawn batches before


@dataclass(frozen=True)
class Place:
    """The place of an optimizer step in a round of the meter, see ``TrialMeter.step``."""

    weight: float = 1.0
    begins: bool = True
    completes: bool = True


class BatchCycles:
    """Finds the place of each optimizer step of a trial.

    The first round ends with the largest batch. From there on a round is a cycle: it has each of the batches that stand
    for an epoch once. Where no epoch was read, or all of its batches are alike, each step is a round.
    """

    def __init__(self, loaders: LoaderHooks) -> None:
        self._loaders = loaders
        self._steps = self._with_largest = 0
        self._is_cyclic = False
        self._taken: set[int] = set()
        self.taken: tuple[SeenBatch | None, ...] = ()
        """The batches of the step that ended last."""
        self.has_given_up = False
        """Set once the script does not train with the batches that it is given; then steps come as they are."""

    def next(self) -> Place:
        """Return the place of the step that has ended."""
        taken, sample = self._loaders.step_took(), self._loaders.sample
        self.taken = taken
        if sample is None or not sample.differs or self.has_given_up:
            return Place()
        self._steps += 1
        place = self._in_cycle(taken, sample.weights) if self._is_cyclic else self._in_lead(taken, sample.largest)
        self.has_given_up = self._steps >= _MOST_STEPS and not place.completes
        self._steps = 0 if place.completes else self._steps
        return Place() if self.has_given_up else place

    def _in_lead(self, taken: Sequence[SeenBatch | None], largest: SeenBatch) -> Place:
        self._with_largest += largest in taken
        self._is_cyclic = self._with_largest >= LARGEST_HANDED
        return Place(begins=self._steps == 1, completes=self._is_cyclic)

    def _in_cycle(self, taken: Sequence[SeenBatch | None], weights: Mapping[int, float]) -> Place:
        numbers = {0 if one is None else one.number for one in taken}
        number = numbers.pop() if len(numbers) == 1 else 0
        begins = not self._taken or number in self._taken
        self._taken = {number} if begins else {*self._taken, number}
        if number not in weights:
            self._taken.clear()
            return Place(begins=True, completes=False)
        completes = len(self._taken) == len(weights)
        if completes:
            self._taken.clear()
        return Place(weights[number], begins, completes)
