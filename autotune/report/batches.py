"""Batches that were read ahead, and what a script needs with the largest of them, in sentences and as a table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ..records.cards import CardFit
from ..records.look_ahead import LookAhead, SeenBatch
from ..records.units import format_bytes
from ..records.words import joined
from .tables import Table

_MOST_TENSORS = 2


def batch_sentences(ahead: LookAhead | None, fits: Sequence[CardFit] = ()) -> Iterator[str]:
    """Say how batches differ, which is the largest, and how many a card has no room for."""
    if ahead is None or not (ahead.was_read or ahead.varies):
        return
    if not ahead.was_read:
        yield "Its batches differ in size: with --look-ahead 1000, the answer is for the largest."
        return
    number = len(ahead.elements)
    of = f"the {number} batches of an epoch" if ahead.is_whole else f"the first {number} batches"
    if ahead.varies:
        small, large = ahead.smallest, ahead.largest
        sizes = f"from {_sizes(small, large)} to {_sizes(large, small)}"
        yield f"That is for batch {large.number}, the largest of {of}: their sizes are {sizes}."
    else:
        yield f"All of {of} are of one size."
    for fit in fits:
        if fit.batches_over:
            yield f"On {fit.card.name} there is no room for the tensors of about {fit.batches_over} of {of}."
    if not ahead.is_whole:
        yield f"Later batches were not read: {ahead.ended_by}."


def batch_table(fit: CardFit) -> Table:
    """Tabulate the batches that were followed, and what the script needs with each."""
    rows = []
    for one in fit.batches:
        peaks = (format_bytes(one.tensor_bytes), format_bytes(one.process_bytes))
        rows.append((str(one.batch.number), batch_sizes(one.batch), *peaks))
    columns = ("Batch", "Sizes", "Tensors at the peak", f"Process needs on {fit.card.name}")
    return Table(columns, tuple(rows), frozenset({0, 2, 3}))


def batch_sizes(batch: SeenBatch) -> str:
    """Name the sizes of the largest tensors of a batch."""
    return _named(batch, sorted(batch.shapes, key=lambda name: -math.prod(batch.shapes[name])))


def _sizes(batch: SeenBatch, other: SeenBatch) -> str:
    """Name the sizes in which a batch differs from another one."""
    return _named(batch, [name for name, shape in batch.shapes.items() if other.shapes.get(name) != shape])


def _named(batch: SeenBatch, names: Sequence[str]) -> str:
    return joined([f"{name} {'x'.join(map(str, batch.shapes[name]))}" for name in names[:_MOST_TENSORS]])
