"""Batches that a script's loader brings after its first steps, by the sizes of their tensors."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

Shape = tuple[int, ...]
READING_S = 60.0
"""The time for reading batches ahead; no batch is begun after it."""
_MOST_NAMED = 2
_PLACE, _PRIVATE = re.compile(r"(?:^|\.)(\d+)(?=[ .]|$)"), re.compile(r"(?<![^.])_\w*\.")


@dataclass(frozen=True)
class SeenBatch:
    """A batch of the loader that feeds training: its number in the epoch, from 1, and the sizes of its tensors."""

    number: int
    elements: int  # of all of its tensors
    shapes: dict[str, Shape]

    @property
    def size(self) -> tuple[int, int]:
        """Return what batches are compared by: all elements, and then those of the largest sample."""
        return self.elements, self.longest

    @property
    def longest(self) -> int:
        """Return how many elements the samples of a tensor have, if its first dimension is that of the samples."""
        return max((math.prod(shape[1:]) for shape in self.shapes.values() if shape), default=0)

    @property
    def sizes(self) -> str:
        """Return the sizes of its largest tensors in words."""
        names = sorted(self.shapes, key=lambda name: -math.prod(self.shapes[name]))
        return self._named(names) or f"{self.elements:,} elements"

    def sizes_unlike(self, other: SeenBatch) -> str:
        """Return the sizes in which it differs from another batch, in words; all if in none."""
        return (
            self._named([name for name, shape in self.shapes.items() if other.shapes.get(name) != shape]) or self.sizes
        )

    def _named(self, names: Sequence[str]) -> str:
        return " and ".join(f"{_shown(name)} {'x'.join(map(str, self.shapes[name]))}" for name in names[:_MOST_NAMED])


def _shown(name: str) -> str:
    """Show a tensor's name as in Python: with places in brackets, and without private containers."""
    return _PLACE.sub(r"[\1]", _PRIVATE.sub("", name))


@dataclass(frozen=True)
class Dimension:
    """Name a dimension of a batch: the tensor's name in the batch, and the dimension's place in its shape."""

    tensor: str
    axis: int


@dataclass(frozen=True)
class LookAhead:
    """Hold the sizes of the batches of an epoch, as far as they were read.

    ``elements`` has the number of elements in the tensors of each batch. ``smallest`` and ``largest`` have the fewest
    and the most, of several alike the first. ``followed`` has the batches of each step of the trace. ``differ``:
    batches differ in size, but for the last one of an epoch, which may lack samples. ``is_whole``: the epoch was read
    to its end; else ``ended_by`` is the reason, empty if none was to be read ahead.

    ``varying`` are the dimensions in which batches differ; those that are equal in all batches are together. ``sizes``
    has for each batch its sizes in ``varying``, which is empty where batches have no tensors in common. A last batch
    that lacks samples has none there, but ``lacking`` has its own. ``shuffles``: other epochs have other batches.
    ``first_steps``: of the trace's steps, so many are a first epoch's and the others a second's, made from the followed
    ones; 0 where none were made.
    """

    elements: tuple[int, ...]
    smallest: SeenBatch
    largest: SeenBatch
    followed: tuple[tuple[SeenBatch, ...], ...]
    differ: bool
    is_whole: bool
    ended_by: str
    varying: tuple[tuple[Dimension, ...], ...] = ()
    sizes: tuple[tuple[int, ...], ...] = ()
    shuffles: bool = False
    lacking: tuple[int, ...] = ()
    first_steps: int = 0

    @property
    def is_simulated(self) -> bool:
        """Return whether the steps of the trace are those of epochs, made from the followed ones."""
        return self.first_steps > 0

    @property
    def was_read(self) -> bool:
        """Return whether batches were read ahead."""
        return self.is_whole or bool(self.ended_by)

    @property
    def has_larger(self) -> bool:
        """Return whether batches were read ahead, and differ in size."""
        return self.was_read and self.differ

    @property
    def largest_of_steps(self) -> tuple[SeenBatch | None, ...]:
        """Return the largest batch of each step of the trace, None where it took none."""
        return tuple(max(step, key=lambda one: one.size, default=None) for step in self.followed)

    @property
    def mean_length(self) -> float | None:
        """Return the mean length of samples, where batches are (samples, length), of one length in all such tensors."""
        numbers, lengths = self._along(0), self._along(1)
        if len(lengths) != 1 or len(numbers) > 1:
            return None
        (length,), number = lengths, numbers[0] if numbers else (1,) * len(self.sizes)
        return sum(map(math.prod, zip(number, length, strict=True))) / sum(number)

    def _along(self, axis: int) -> list[tuple[int, ...]]:
        """Return the sizes along a dimension of all tensors that have two, for each group that varies together."""
        ranks = {name: len(shape) for name, shape in self.largest.shapes.items()}
        groups = (any(ranks[one.tensor] == 2 and one.axis == axis for one in group) for group in self.varying)
        return [tuple(each[place] for each in self.sizes) for place, varies in enumerate(groups) if varies]

    def epoch_of(self, step: int) -> int:
        """Return the epoch that a step of the trace is in, by its place; where none was simulated, it is the first."""
        return 2 if self.is_simulated and step >= self.first_steps else 1

    def filled(self) -> LookAhead:
        """Return the same, with all samples in the last batch if others may come together with the longest of it."""
        if not (self.shuffles and self.lacking and self.varying):
            return self
        filled = replace(self, sizes=(*self.sizes, self.lacking), lacking=())
        last = sum(map(math.prod, filled.batch(len(filled.sizes)).shapes.values()))
        return replace(filled, elements=(*self.elements[:-1], last))

    def cut_to(self, size: int) -> LookAhead:
        """Return the batches with no size above this one in the dimension that varies, of which there is one."""
        sizes = tuple((min(one, size),) for (one,) in self.sizes)
        cut = replace(self, sizes=sizes, lacking=tuple(min(one, size) for one in self.lacking))
        elements = list(self.elements)
        for place, (old, new) in enumerate(zip(self.sizes, sizes, strict=True)):
            if old != new:
                elements[place] = sum(map(math.prod, cut.batch(place + 1).shapes.values()))
        return replace(cut, elements=tuple(elements))

    def batch(self, number: int) -> SeenBatch:
        """Return a batch by its number in the epoch; it lacks no samples."""
        shapes = {name: list(shape) for name, shape in self.largest.shapes.items()} if self.varying else {}
        for dimensions, size in zip(self.varying, self.sizes[number - 1], strict=True):
            for one in dimensions:
                shapes[one.tensor][one.axis] = size
        return SeenBatch(number, self.elements[number - 1], {name: tuple(shape) for name, shape in shapes.items()})


@dataclass(frozen=True)
class BatchPeak:
    """Hold the bytes at the peak of a step with a batch: of tensors, and of the script's whole process until then."""

    batch: SeenBatch
    tensor_bytes: int
    process_bytes: int
    epoch: int = 1
