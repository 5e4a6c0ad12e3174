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


def batch_sentences(
    ahead: LookAhead | None, most: SeenBatch | None = None, fits: Sequence[CardFit] = ()
) -> Iterator[str]:
    """Say how batches differ, which one needs the ``most``, and how many a card has no room for."""
    if ahead is None or not (ahead.was_read or ahead.differ):
        return
    if not ahead.was_read:
        yield "Its batches differ in size: with --look-ahead 1000, the answer is for the largest."
        return
    number = len(ahead.elements)
    of = f"the {number} batches of an epoch" if ahead.is_whole else f"the first {number} batches"
    if not ahead.differ:
        yield f"All of {of} are of one size."
    elif most is not None:
        least = ahead.smallest
        told = f"Of {of}, batch {most.number} needs the most: {_sizes(most, least) or batch_sizes(most)}."
        yield told if most.elements <= least.elements else f"{told} The smallest has {_sizes(least, most)}."
    for fit in fits:
        if fit.batches_over:
            yield f"On {fit.card.name} there is no room for the tensors of about {fit.batches_over} of {of}."
    if not ahead.is_whole:
        yield f"Later batches were not read: {ahead.ended_by}."


def neediest(fits: Sequence[CardFit]) -> SeenBatch | None:
    """Return the batch with the highest peak of those that were followed; None where none was."""
    peaks = [one for fit in fits for one in fit.batches]
    return max(peaks, key=lambda one: (one.tensor_bytes, one.batch.elements)).batch if peaks else None


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
