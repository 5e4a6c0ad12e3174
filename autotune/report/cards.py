"""What fits cards that are not there, in sentences and as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..records.allocations import Traced
from ..records.allocator_settings import ALLOCATOR_VARIABLES, EXPANDABLE_SEGMENTS
from ..records.cards import Card, CardFit, CardPeak, Way
from ..records.units import format_bytes
from ..records.words import joined, sentence
from .batches import batch_sentences, neediest
from .tables import Table

_MOST_LINES = 3
# The share of a peak from which on a lower one is told.
_WORTH_TELLING = 0.95
_EXPANDABLE = f"{ALLOCATOR_VARIABLES[0]}={EXPANDABLE_SEGMENTS}:True"


def cards_sentences(traced: Traced, fits: Sequence[CardFit]) -> tuple[str, ...]:
    """Say which card the script fits, how that is known, and what may differ on the card."""
    error = max(one.error for one in fits)
    ways = [way for one in fits for way in (one.plain, one.checkpointed) if way]
    reasons = dict.fromkeys(way.own_alone for way in ways if way.own_alone)
    beyond = next((way.beyond for way in ways if way.beyond), "")
    said = [
        _answer(traced, fits),
        *batch_sentences(traced.ahead, neediest(fits), fits),
        *cautions(traced, fits),
        (
            f"None of it ran on a GPU: {traced.steps} optimizer steps were followed by the sizes of their tensors. "
            f"A size fits if the card has room for {error:.0%} more."
        ),
        *(f"Other batch sizes are not told: {reason}." for reason in reasons),
        *([f"Some larger batch sizes are not told: {beyond}."] if beyond else []),
        *(f"On {one.card.name}, {one.problem}." for one in fits if one.problem),
    ]
    return tuple(map(sentence, said))


def several_sentences(cards: Sequence[Card]) -> Iterator[str]:
    """Say how a script was followed that trains on several cards; nothing where it does on one."""
    if any(card.number > 1 for card in cards):
        yield (
            "Memory is that of one GPU: the first process was followed, and sent nothing to the others. "
            "NCCL's own buffers come on top."
        )


def cautions(traced: Traced, fits: Sequence[CardFit]) -> tuple[str, ...]:
    """Say what may differ on the cards, with the gravest first."""
    said = list(asked_sentences(traced.asked, traced.asked_integers))
    said += [f"On {one.card.name}, {_crowded(one)}" for one in fits if one.is_crowded]
    for one in fits:
        if one.plain and not one.plain.own.fits and one.expandable and one.expandable.fits:
            size = "the script's own batch size" if one.plain.own.batch_size is None else ""
            size = size or f"batch size {one.plain.own.batch_size}"
            said.append(f"With {_EXPANDABLE}, {one.card.name} should hold {size}.")
    wide = [one for one in fits if one.plain and one.plain.own.fits and one.batches and not one.is_crowded]
    said += [_gaps(min(wide, key=_memory))] if wide else []
    said += several_sentences([one.card for one in fits])
    return (*filter(None, said), *(f"note: {note}" for note in traced.notes))


def _gaps(fit: CardFit) -> str:
    """Say what expandable segments would spare, where batches of many sizes leave gaps in what torch has cached."""
    assert fit.plain is not None
    own, expandable = fit.plain.own, fit.expandable
    if expandable is None or expandable.roomy_bytes > _WORTH_TELLING * own.roomy_bytes:
        return ""
    needs, instead = format_bytes(expandable.roomy_bytes), format_bytes(own.roomy_bytes)
    return (
        "Batches of many sizes leave gaps in torch's cache: "
        f"with {_EXPANDABLE}, {fit.card.name} should need {needs} instead of {instead}."
    )


def asked_sentences(asked: Sequence[str], asked_integers: Sequence[str]) -> Iterator[str]:
    """Say which lines asked for values that were not computed, and what depends on them, with the gravest first."""
    if asked_integers:
        where = _some(asked_integers)
        yield f"Peaks are far too low if a size depends on the whole numbers asked for at {where}: each was 1."
    if asked:
        yield f"The script asked for values, which were not computed, at {_some(asked)}: it got 1, or True."


def _crowded(fit: CardFit) -> str:
    takes_time = "torch must free what it has cached to hold that, which takes time."
    if fit.expandable is None or fit.expandable.roomy_bytes > fit.card.holds_up_to(fit.error):
        return takes_time
    return f"{takes_time} {_EXPANDABLE} should spare it."


def _some(lines: Sequence[str]) -> str:
    count = len(lines) - _MOST_LINES
    more = [f"{count} more line{'' if count == 1 else 's'}"] if count > 0 else []
    return joined([*lines[:_MOST_LINES], *more])


def _answer(traced: Traced, fits: Sequence[CardFit]) -> str:
    size = traced.batch_size
    where = f"at its own batch size of {size}" if size else "at its own batch size"
    if any(one.card.number > 1 for one in fits):
        where += " in each process"
    others = "" if len(fits) == 1 else ", the smallest of these cards that holds it"
    if holding := [one for one in fits if one.plain and one.plain.own.fits]:
        least = min(holding, key=_memory)
        assert least.plain is not None
        needs = _needs(least, least.plain.own)
        return f"The script should fit {least.card.name} {where}{others}: {needs}.{_smaller(traced, fits)}"
    if holding := [one for one in fits if one.fewest]:
        least = min(holding, key=_memory)
        assert least.fewest is not None
        needs = _needs(least, least.fewest)
        blocks = _of_blocks(traced, least.fewest.blocks)
        so = f"with {blocks} checkpointed{others}"
        return f"The script should fit {least.card.name} {where} {so}: {needs}."
    most = max((one for one in fits if one.plain), key=_memory)
    best = most.plain
    assert best is not None
    smaller = f" Batch {best.largest.batch_size} should fit {most.card.name}." if best.largest else ""
    which = f"does not fit {most.card.name}" if len(fits) == 1 else "fits none of these cards"
    each = " on each GPU" if most.card.number > 1 else ""
    return f"The script {which} {where}: it needs {_span(most, best.own)}{each}.{smaller}"


def _smaller(traced: Traced, fits: Sequence[CardFit]) -> str:
    """Say which smaller card holds the script with blocks checkpointed; empty if none does."""
    holding = [one for one in fits if one.fewest]
    if not holding:
        return ""
    least = min(holding, key=_memory)
    assert least.fewest is not None
    return f" With {_of_blocks(traced, least.fewest.blocks)} checkpointed, {least.card.name} should hold it too."


def _memory(fit: CardFit) -> tuple[int, int]:
    return fit.card.number * fit.card.memory_bytes, fit.card.memory_bytes


def _of_blocks(traced: Traced, blocks: int) -> str:
    """Name so many of the model's blocks."""
    names, number = joined(list(traced.blocks)), sum(traced.blocks.values())
    which = f"the first {blocks} of its {number}" if blocks < number else f"all {number} of its"
    return f"{which} blocks ({names})"


def _needs(fit: CardFit, peak: CardPeak) -> str:
    return f"it needs {_span(fit, peak)} {'there' if fit.card.number == 1 else 'on each GPU'}"


def _span(fit: CardFit, peak: CardPeak) -> str:
    low, high = map(format_bytes, fit.interval(peak))
    return f"{format_bytes(peak.peak_bytes)} ({low} to {high})"


def cards_table(traced: Traced, fits: Sequence[CardFit]) -> Table:
    """Tabulate of each card its memory, the peak at the script's own batch size, and the largest that should fit."""
    has_blocks = any(one.checkpointed for one in fits)
    ways = ("plain", "checkpointed") if has_blocks else ("plain",)
    rows = tuple(
        (
            one.card.name,
            f"{one.card.number} x " * (one.card.number > 1) + format_bytes(one.card.memory_bytes),
            *(cell for name in ways for cell in _cells(one, getattr(one, name), traced.batch_size)),
            *((_needed(one, sum(traced.blocks.values())),) if has_blocks else ()),
        )
        for one in sorted(fits, key=_memory)
    )
    own = f"Peak at {traced.batch_size or 'its own batch'}"
    columns = (
        "Card",
        "Memory",
        own,
        "",
        "Fits up to batch",
        *((f"{own}, checkpointed", "", "Fits up to", "Blocks needed") if has_blocks else ()),
    )
    return Table(columns, rows, frozenset({1, 2, 4, 5, 7, 8}))


def _needed(fit: CardFit, number: int) -> str:
    if fit.fewest is not None:
        return f"{fit.fewest.blocks} of {number}"
    return "none" if fit.plain and fit.plain.own.fits else ""


def _cells(fit: CardFit, way: Way | None, own_size: int | None) -> tuple[str, str, str]:
    if way is None:
        return "", "does not run" if fit.problem else "", ""
    holds = "fits" if way.own.fits else "does not fit"
    largest = "not known" if way.own_alone else "none" if way.largest is None else str(way.largest.batch_size)
    more = " or more" if way.beyond else ""
    own = "" if way.own.batch_size == own_size else f" at {way.own.batch_size}"
    return format_bytes(way.own.peak_bytes) + own, holds, largest + more
