"""Batches that a script's loader brings after its first steps, by the sizes of their tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Shape = tuple[int, ...]
READING_S = 60.0
"""The time for reading batches ahead; no batch is begun after it."""
_MOST_NAMED = 2


@dataclass(frozen=True)
class SeenBatch:
    """A batch of the loader that feeds training: its number in the epoch, from 1, and the sizes of its tensors."""

    number: int
    elements: int  # of all of its tensors
    shapes: dict[str, Shape]

    @property
    def sizes(self) -> str:
        """Return the sizes of its largest tensors in words."""
        return self._named(sorted(self.shapes, key=lambda name: -math.prod(self.shapes[name])))

    def sizes_unlike(self, other: SeenBatch) -> str:
        """Return the sizes in which it differs from another batch, in words; all if in none."""
        return (
            self._named([name for name, shape in self.shapes.items() if other.shapes.get(name) != shape]) or self.sizes
        )

    def _named(self, names: Sequence[str]) -> str:
        return " and ".join(f"{name} {'x'.join(map(str, self.shapes[name]))}" for name in names[:_MOST_NAMED])


@dataclass(frozen=True)
class LookAhead:
    """Hold the sizes of the batches of an epoch, as far as they were read.

    ``elements`` has the number of elements in the tensors of each batch. ``smallest`` and ``largest`` have the fewest
    and the most, of several alike the first. ``followed`` has for each step that was followed its largest batch, None
    where it took none. ``differ``: batches differ in size, but for the last one of an epoch, which may lack samples.
    ``is_whole``: the epoch was read to its end; else ``ended_by`` is the reason, empty if none was to be read ahead.
    """

    elements: tuple[int, ...]
    smallest: SeenBatch
    largest: SeenBatch
    followed: tuple[SeenBatch | None, ...]
    differ: bool
    is_whole: bool
    ended_by: str

    @property
    def was_read(self) -> bool:
        """Return whether batches were read ahead."""
        return self.is_whole or bool(self.ended_by)

    @property
    def has_larger(self) -> bool:
        """Return whether batches were read ahead, and differ in size."""
        return self.was_read and self.differ


@dataclass(frozen=True)
class BatchPeak:
    """Hold the bytes at the peak of a step with a batch: of tensors, and of the script's whole process until then."""

    batch: SeenBatch
    tensor_bytes: int
    process_bytes: int
