"""Batches that were read ahead, and what a script needs with the largest of them, in sentences and as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..records.cards import CardFit
from ..records.look_ahead import LookAhead, SeenBatch
from ..records.units import format_bytes
from .record import Report
from .tables import Table

_MOST_ROWS = 8
# The share of the peak below which it is told what half of the batches need.
_MUCH_LESS = 0.8
_GAPS = "its tensors would fit, but batches before it leave gaps in torch's cache"


def batch_sentences(
    ahead: LookAhead | None, most: SeenBatch | None = None, fits: Sequence[CardFit] = ()
) -> Iterator[str]:
    """Say how batches differ, which one needs the ``most``, and how many a card has no room for."""
    if ahead is None or not (ahead.was_read or ahead.differ):
        return
    if not ahead.was_read:
        yield "Its batches differ in size: with --look-ahead 1000, the answer is for all of an epoch."
        return
    of = _read(ahead)
    if not ahead.differ:
        yield f"All of {of} are of one size." if len(ahead.elements) > 1 else "An epoch has one batch."
    elif most is not None:
        least = ahead.smallest
        told = f"Of {of}, batch {most.number} needs the most: {most.sizes_unlike(least)}."
        yield told if most.elements <= least.elements else f"{told} The smallest has {least.sizes_unlike(most)}."
        yield from _simulated(ahead)
        yield from _spread(fits)
    for fit in fits:
        if fit.batches_over:
            yield f"On {fit.card.name} there is no room for the tensors of about {fit.batches_over} of {of}."
        if fit.runs_out_at is not None:
            why = "" if fit.batches_over else f": {_GAPS}"
            when = "" if fit.runs_out_in_epoch == 1 else " of the second epoch"
            yield f"On {fit.card.name} memory runs out at batch {fit.runs_out_at.number}{when}{why}."
        if fit.cut_to is not None:
            yield f"With all batches cut to {fit.cut_to.sizes} at most, {fit.card.name} should hold them."
    yield from _unread(ahead)


def _simulated(ahead: LookAhead) -> Iterator[str]:
    """Say how many steps of an epoch were simulated; nothing where only those count that were followed."""
    steps, per_step = len(ahead.followed), max(map(len, ahead.followed), default=0)
    whole = -(-len(ahead.elements) // max(1, per_step))
    if ahead.is_simulated:
        which = f"{steps} of the {2 * whole:,} steps" if steps < 2 * (whole - 1) else "All steps"
        yield f"{which} of two epochs were simulated, from those that were followed."


def _spread(fits: Sequence[CardFit]) -> Iterator[str]:
    """Say what most batches need, where the largest needs a good deal more."""
    fit = next((one for one in fits if one.batches), None)
    most = 0 if fit is None else max(one.tensor_bytes for one in fit.batches)
    if fit is not None and fit.half_bytes < _MUCH_LESS * most:
        half, nine_in_ten, all_of_them = map(format_bytes, (fit.half_bytes, fit.nine_in_ten_bytes, most))
        yield f"Half of the batches need at most {half} of tensors, nine in ten {nine_in_ten}, and all {all_of_them}."


def epoch_sentences(ahead: LookAhead | None, sized: str = "") -> tuple[str, ...]:
    """Say with which batches of an epoch a study has measured; empty where none was read ahead.

    ``sized`` says what smaller batches recompute, where that is less than the largest does.
    """
    if ahead is None or not ahead.differ:
        return tuple(batch_sentences(ahead))
    largest, smallest = ahead.largest, ahead.smallest
    sizes = f"{largest.sizes_unlike(smallest)}. The smallest has {smallest.sizes_unlike(largest)}"
    return (
        f"Of {_read(ahead)}, batch {largest.number} is the largest: {sizes}.",
        "Peaks are those with the largest batch, speeds those with batches that stand for the epoch.",
        *([f"Smaller batches recompute less: {sized}."] if sized else []),
        *_unread(ahead),
    )


def sized_in(report: Report) -> str:
    """Return what smaller batches recompute in the answer, in words; empty for the same as all."""
    return "" if report.winner is None else report.winner.sized


def _read(ahead: LookAhead) -> str:
    number = len(ahead.elements)
    return f"the {number} batches of an epoch" if ahead.is_whole else f"the first {number} batches"


def _unread(ahead: LookAhead) -> Iterator[str]:
    if not ahead.is_whole:
        yield f"Later batches were not read: {ahead.ended_by}."


def neediest(fits: Sequence[CardFit]) -> SeenBatch | None:
    """Return the batch with the highest peak of an epoch; None where none was read ahead."""
    peaks = [one for fit in fits for one in fit.batches]
    return max(peaks, key=lambda one: (one.tensor_bytes, one.batch.elements)).batch if peaks else None


def batch_table(fit: CardFit) -> Table:
    """Tabulate the batches with which the peak rises, and what the script needs until then."""
    rows = []
    for one in (*fit.batches[:1], *fit.batches[1:][-_MOST_ROWS:]):
        peaks = (format_bytes(one.tensor_bytes), format_bytes(one.process_bytes))
        number = str(one.batch.number) if one.epoch == 1 else f"{one.batch.number} of epoch {one.epoch}"
        rows.append((number, one.batch.sizes, *peaks))
    columns = ("Batch", "Sizes", "Tensors at the peak", f"Process needs on {fit.card.name}")
    return Table(columns, tuple(rows), frozenset({0, 2, 3}))
