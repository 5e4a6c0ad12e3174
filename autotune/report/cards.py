"""What fits cards that are not there, in sentences and as a table."""

from __future__ import annotations

from collections.abc import Sequence

from ..records.allocations import Traced
from ..records.cards import CardFit, Way
from ..records.units import format_bytes
from ..records.words import joined, sentence
from .tables import Table

_MOST_LINES = 3


def cards_sentences(traced: Traced, fits: Sequence[CardFit]) -> tuple[str, ...]:
    """Say which card the script fits, how that is known, and what may differ on the card."""
    error = max(one.error for one in fits)
    said = [
        _answer(traced, fits),
        (
            f"None of it ran on a GPU: the script's first {traced.steps} optimizer steps were followed by the sizes of "
            f"its tensors. A size fits if its peak does when it is {error:.1%} higher."
        ),
    ]
    if traced.asked_integers:
        where = _some(traced.asked_integers)
        said.insert(
            1, f"Peaks are far too low if a size depends on the whole numbers asked for at {where}: each was 1."
        )
    if traced.asked:
        where = _some(traced.asked)
        said.append(f"The script asked for values, which were not computed, at {where}: it was told 1, or True.")
    reasons = [way.own_alone for one in fits for way in (one.plain, one.checkpointed) if way and way.own_alone]
    said += [f"Other batch sizes are not told: {reason}." for reason in dict.fromkeys(reasons)]
    said += [f"On {one.card.name}, {one.problem}." for one in fits if one.problem]
    said += [f"note: {note}" for note in traced.notes]
    return tuple(map(sentence, said))


def _some(lines: Sequence[str]) -> str:
    more = [f"{len(lines) - _MOST_LINES} more lines"] if len(lines) > _MOST_LINES else []
    return joined([*lines[:_MOST_LINES], *more])


def _answer(traced: Traced, fits: Sequence[CardFit]) -> str:
    size = traced.batch_size
    where = f"at its own batch size of {size}" if size else "at its own batch size"
    for name in ("plain", "checkpointed"):
        holding = [one for one in fits if one.holds(getattr(one, name))]
        if holding:
            least = min(holding, key=lambda one: one.card.memory_bytes)
            others = "" if len(fits) == 1 else ", the smallest of these cards that holds it"
            so = "" if name == "plain" else f" with its {_blocks(traced)} checkpointed"
            needs = _span(least, getattr(least, name))
            return f"The script should fit {least.card.name} {where}{so}{others}: it needs {needs} there."
    most = max((one for one in fits if one.plain), key=lambda one: one.card.memory_bytes)
    best = most.plain
    assert best is not None
    smaller = f" Batch {best.largest.batch_size} should fit {most.card.name}." if best.largest else ""
    which = f"does not fit {most.card.name}" if len(fits) == 1 else "fits none of these cards"
    return f"The script {which} {where}: it needs {_span(most, best)}.{smaller}"


def _blocks(traced: Traced) -> str:
    return joined([f"{number} {name}s" for name, number in traced.blocks.items()])


def _span(fit: CardFit, way: Way) -> str:
    peak = way.own.peak_bytes
    low, high = (format_bytes(peak * share) for share in (1 - fit.error, 1 + fit.error))
    return f"{format_bytes(peak)} ({low} to {high})"


def cards_table(traced: Traced, fits: Sequence[CardFit]) -> Table:
    """Tabulate of each card its memory, the peak at the script's own batch size, and the largest that should fit."""
    has_blocks = any(one.checkpointed for one in fits)
    ways = ("plain", "checkpointed") if has_blocks else ("plain",)
    rows = tuple(
        (
            one.card.name,
            format_bytes(one.card.memory_bytes),
            *(cell for name in ways for cell in _cells(one, getattr(one, name), traced.batch_size)),
        )
        for one in sorted(fits, key=lambda one: one.card.memory_bytes)
    )
    own = f"Peak at {traced.batch_size or 'its own batch'}"
    columns = (
        "Card",
        "Memory",
        own,
        "",
        "Fits up to batch",
        *((f"{own}, checkpointed", "", "Fits up to") if has_blocks else ()),
    )
    return Table(columns, rows, frozenset({1, 2, 4, 5, 7}))


def _cells(fit: CardFit, way: Way | None, own_size: int | None) -> tuple[str, str, str]:
    if way is None:
        return "", "does not run" if fit.problem else "", ""
    holds = "fits" if fit.holds(way) else "does not fit"
    largest = "not known" if way.own_alone else "none" if way.largest is None else str(way.largest.batch_size)
    own = "" if way.own.batch_size == own_size else f" at {way.own.batch_size}"
    return format_bytes(way.own.peak_bytes) + own, holds, largest
