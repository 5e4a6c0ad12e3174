"""Batches that a script's loader brings after its first steps, by the sizes of their tensors."""

from __future__ import annotations

from dataclasses import dataclass

Shape = tuple[int, ...]


@dataclass(frozen=True)
class SeenBatch:
    """A batch of the loader that feeds training: its number in the epoch, from 1, and the sizes of its tensors."""

    number: int
    elements: int  # of all of its tensors
    shapes: dict[str, Shape]


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
