"""The batch sizes of a script that fit cards which are not there: traces of its first steps, and peaks simulated."""

from __future__ import annotations

import contextlib
import functools
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from ..errors import DiscoveryError, FormatError
from ..launch.port import RunResult
from ..launch.requests import trace_request
from ..predict.device_peak import outside_bytes, process_bytes, step_peaks
from ..predict.epoch import Epoch, with_epoch
from ..records.allocations import AllocationTrace, Traced, between
from ..records.cards import CARD_ERROR, Card, CardFit, CardPeak, Way
from ..records.facts import BatchControl
from ..records.look_ahead import BatchPeak, LookAhead, SeenBatch
from ..records.outcome import Measured, NoEffect
from ..records.run import ALL_BLOCKS, Request
from ..records.study import StudySpec
from .checks import detail_of
from .side_by_side import SideBySide, say_nothing

Run = Callable[[Request, str], RunResult]

_LARGEST_SIZE = 1 << 20
# Sizes that are guessed from a straight line, before the rest is halved again and again.
_MOST_GUESSES = 8
# Bytes that a third batch size may lie beside the line through two, as a share of all.
_TOLERANCE = 0.001
# A batch needs more than one of the same sizes from so many times its peak on: parts of a step before may be left.
_RISES = 1.001
# How close to the largest size that fits a size is that is named.
_CLOSE = 0.03
# Runs to find how few blocks must be checkpointed for a card.
_MOST_RUNS = 6


def trace_cards(
    spec: StudySpec,
    cards: Sequence[Card],
    run: Run,
    *,
    look_ahead: int = 0,
    at_once: int = 1,
    progress: Callable[[int, int], None] = say_nothing,
) -> tuple[Traced, tuple[CardFit, ...]]:
    """Trace a script for each generation of cards; return the first trace, and what fits each card.

    Args:
        spec: the script.
        cards: the cards in question.
        run: makes a run in a folder of the name given; from several threads if ``at_once`` is above 1.
        look_ahead: how many batches each run reads ahead, to simulate the steps with all of them.
        at_once: how many runs go on at a time.
        progress: is told how many runs have ended, and how many were asked for.

    Raises:
        DiscoveryError: the script comes to its second optimizer step on none of them.
    """

    def fit(alike: Sequence[Card], runs: SideBySide[Traced]) -> tuple[Traced, dict[Card, CardFit]]:
        follow = functools.partial(_follow, spec, alike[0], run, runs)
        own = _on_gpu(follow(look_ahead=look_ahead).result())
        differ = own.ahead is not None and own.ahead.has_larger
        if differ:
            follow = functools.partial(follow, look_ahead=look_ahead)
        elif look_ahead:  # other batch sizes are compared with as many steps
            own = replace(_on_gpu(follow().result()), ahead=own.ahead, notes=own.notes)
        traced = _trace(own, follow, why_alone="its batches differ in size" if differ else "")
        follow_once = functools.cache(follow)
        fits = {card: _fit(traced, card, follow_once) for card in alike}
        return traced.plain.own, _with_cut(traced.plain.own, fits)

    return _by_generation(cards, fit, at_once, progress)


def trace_setting(
    cards: Sequence[Card],
    request_for: Callable[[Card], Request],
    run: Run,
    *,
    at_once: int = 1,
) -> tuple[Traced, tuple[CardFit, ...]]:
    """Trace one setting of a script, in one run for each generation of cards; otherwise as ``trace_cards``.

    ``request_for`` makes the request to trace the setting on a card. What fits is told for its batch size alone.
    """

    def fit(alike: Sequence[Card], runs: SideBySide[Traced]) -> tuple[Traced, dict[Card, CardFit]]:
        request = request_for(alike[0])
        traced = _on_gpu(
            runs.submit(lambda: with_epoch(_traced(run(request, f"trace-{alike[0].name}"), None))).result()
        )
        return traced, _with_cut(traced, {card: _fit_own(traced, card) for card in alike})

    return _by_generation(cards, fit, at_once, say_nothing)


def trace_once(request: Request, run: Run, name: str = "trace") -> Traced:
    """Make one trace of a script, in a folder of that name.

    Raises:
        DiscoveryError: it does not come to its second optimizer step so, or has nothing on the GPU.
    """
    return _on_gpu(_traced(run(request, name), None))


def _by_generation(
    cards: Sequence[Card],
    fit: Callable[[Sequence[Card], SideBySide[Traced]], tuple[Traced, dict[Card, CardFit]]],
    at_once: int,
    progress: Callable[[int, int], None],
) -> tuple[Traced, tuple[CardFit, ...]]:
    # Kernels, and what scripts ask a card for, depend on the major number of its capability.
    generations: defaultdict[int, list[Card]] = defaultdict(list)
    for card in cards:
        generations[card.capability[0]].append(card)
    with ThreadPoolExecutor(len(generations)) as pool, SideBySide[Traced](at_once, progress) as runs:

        def fit_or_why_not(alike: Sequence[Card]) -> tuple[Traced | DiscoveryError, dict[Card, CardFit]]:
            try:
                return fit(alike, runs)
            except DiscoveryError as error:
                return error, {card: CardFit(card, None, error=CARD_ERROR, problem=str(error)) for card in alike}

        fitted = list(pool.map(fit_or_why_not, generations.values()))
    own = next((traced for traced, _ in fitted if isinstance(traced, Traced)), None)
    if own is None:
        raise next(error for error, _ in fitted if isinstance(error, DiscoveryError))
    fits = {card: fit for _, alike in fitted for card, fit in alike.items()}
    return own, tuple(fits[card] for card in cards)


@dataclass(frozen=True)
class _Traces:
    """The traces of a script at its own batch size, and at twice that; ``own_alone`` is why there is no other."""

    own: Traced
    larger: Traced | None
    own_alone: str = ""

    def at(self, batch_size: int | None) -> AllocationTrace:
        """Return the trace at a batch size, on a straight line through two; None for the script's own."""
        own, larger = self.own, self.larger
        if batch_size is None or larger is None or own.batch_size is None or batch_size == own.batch_size:
            return own.trace
        return between(own.trace, larger.trace, (batch_size - own.batch_size) / own.batch_size)


@dataclass(frozen=True)
class _Generation:
    """The traces of a script on cards of one generation: as it is, and with its blocks checkpointed."""

    plain: _Traces
    checkpointed: _Traces | None


def _trace(own: Traced, follow: Callable[..., Future[Traced]], why_alone: str) -> _Generation:
    """Trace a script at other batch sizes, and with its blocks checkpointed where it has any.

    ``own`` is the trace of the script as it is; ``why_alone`` is why other batch sizes are not told, if that is known.
    """
    size, control = own.batch_size, own.batch_control
    if size is None or not control.can_set or why_alone:
        why = why_alone or control.reason or "its batch size could not be counted"
        checkpointed = [follow(blocks=ALL_BLOCKS)] if own.blocks else []
        return _Generation(_Traces(own, None, why), _checkpointed(checkpointed, why))
    others = [follow(times * size, control) for times in (2, 4)]
    sizes = (None, 2 * size) if own.blocks else ()
    checkpointed = [follow(each, each and control, blocks=ALL_BLOCKS) for each in sizes]
    plain = _on_a_line(own, *others)
    return _Generation(plain, _checkpointed(checkpointed, plain.own_alone))


def _on_gpu(traced: Traced) -> Traced:
    """Return a trace; DiscoveryError if it is of nothing."""
    if not traced.trace.storage_bytes:
        raise DiscoveryError(
            "nothing of the script's is on the GPU",
            hint="it must move its model to CUDA where torch.cuda.is_available() says so, or be told by an option",
        )
    return traced


def _checkpointed(traced: Sequence[Future[Traced]], own_alone: str) -> _Traces | None:
    """Return the traces with blocks checkpointed; None if there are none, or if that cannot be done."""
    if not traced:
        return None
    if own_alone:
        for one in traced[1:]:
            one.cancel()
    try:
        own = traced[0].result()
    except DiscoveryError:
        # A block may take what torch's checkpoint cannot hand on.
        return None
    return _Traces(own, None, own_alone) if own_alone else _through_two(own, traced[1])


def _through_two(own: Traced, twice: Future[Traced]) -> _Traces:
    """Put a line through the traces at a batch size and at twice that, if both are of the same steps."""
    assert own.batch_size is not None, "it can be set"
    try:
        larger = twice.result()
        between(own.trace, larger.trace, 1.0)
    except (DiscoveryError, FormatError) as error:
        return _Traces(own, None, str(error))
    return _Traces(own, larger)


def _on_a_line(own: Traced, twice: Future[Traced], fourfold: Future[Traced]) -> _Traces:
    """Put a line through two traces, and compare it with a third."""
    traces = _through_two(own, twice)
    if traces.own_alone or own.batch_size is None:
        fourfold.cancel()
        return traces
    try:
        expected, found = traces.at(4 * own.batch_size).storage_bytes, fourfold.result().trace.storage_bytes
    except (DiscoveryError, FormatError) as error:
        return _Traces(own, None, str(error))
    if len(expected) != len(found) or sum(map(_differ, expected, found)) > _TOLERANCE * sum(found):
        return _Traces(own, None, "what it allocates is no straight line in the batch size")
    return traces


def _follow(
    spec: StudySpec,
    card: Card,
    run: Run,
    runs: SideBySide[Traced],
    batch_size: int | None = None,
    control: BatchControl | None = None,
    *,
    look_ahead: int = 0,
    blocks: int = 0,
) -> Future[Traced]:
    """Follow the script at a batch size, with so many blocks checkpointed.

    The result raises DiscoveryError if that cannot be done.
    """
    request = trace_request(
        spec, card, batch_size=batch_size, control=control, checkpointed_blocks=blocks, look_ahead=look_ahead
    )
    kind = "" if not blocks else "-checkpointed" if blocks == ALL_BLOCKS else f"-checkpointed-{blocks}"
    name = f"trace-{card.name}{kind}-{batch_size or 'own'}"
    return runs.submit(lambda: with_epoch(_traced(run(request, name), batch_size)))


def _traced(result: RunResult, batch_size: int | None) -> Traced:
    if result.traced is not None:
        return result.traced
    failed = result.outcomes[0] or result.failure
    assert failed is not None, "an interrupted run raises"
    assert not isinstance(failed, Measured), "nothing is measured"
    where = "" if batch_size is None else f" at batch {batch_size}"
    cause = f"the script cannot be followed without the GPU{where}: {failed.cause}"
    raise DiscoveryError(
        failed.cause if isinstance(failed, NoEffect) else cause,
        hint=f"{failed.advice} Its whole output is in {result.directory}",
        detail=detail_of(failed),
    )


def _differ(first: int, second: int) -> int:
    return abs(first - second)


def _fit(traced: _Generation, card: Card, follow: Callable[..., Future[Traced]]) -> CardFit:
    plain, checkpointed = traced.plain, traced.checkpointed
    number = sum(plain.own.blocks.values())
    fit = replace(
        _fit_own(plain.own, card),
        plain=_way(plain, card, 0),
        checkpointed=None if checkpointed is None else _way(checkpointed, card, number),
    )
    return replace(fit, fewest=_fewest(fit, follow))


def _fit_own(traced: Traced, card: Card) -> CardFit:
    """Tell what the script needs at the batch size of its trace."""
    trace, size = traced.trace, traced.batch_size
    expandable = None if trace.expands else _peak(replace(trace, expands=True), card, size, 0)
    fit = CardFit(card, Way(_peak(trace, card, size, 0), None), expandable=expandable, error=CARD_ERROR)
    return fit if traced.ahead is None or not traced.ahead.has_larger else _with_batches(fit, traced, traced.ahead)


def _with_batches(fit: CardFit, traced: Traced, ahead: LookAhead) -> CardFit:
    """Tell which batches need most, where they were read ahead and differ."""
    trace, card, outside = traced.trace, fit.card, outside_bytes(traced.trace)
    all_peaks = [
        BatchPeak(batch, peak.allocated, peak.reserved + outside)
        for batch, peak in zip(ahead.largest_of_steps, step_peaks(trace, card), strict=True)
        if batch is not None
    ]
    rising = list[BatchPeak]()
    for one in all_peaks:
        last = rising[-1] if rising else None
        if last is None or one.tensor_bytes > last.tensor_bytes * (_RISES if _are_alike(one, last) else 1.0):
            if last is not None and one.batch.number == last.batch.number:
                rising.pop()
            rising.append(one)
    fit = replace(fit, batches=tuple(rising))
    if fit.plain is None or fit.plain.own.peak_bytes <= card.memory_bytes:
        return fit
    died = len(step_peaks(trace, card, card.memory_bytes)) - 1
    over = _over(ahead.elements, all_peaks, card.memory_bytes - outside)
    return replace(fit, batches_over=over, runs_out_at=ahead.largest_of_steps[died])


def _are_alike(one: BatchPeak, other: BatchPeak) -> bool:
    return (one.batch.elements, one.batch.shapes) == (other.batch.elements, other.batch.shapes)


def _with_cut(traced: Traced, fits: dict[Card, CardFit]) -> dict[Card, CardFit]:
    """Tell for the largest card that does not hold the script how much batches would have to be cut."""
    ahead = traced.ahead
    short = [one for one in fits.values() if one.plain is not None and not one.plain.own.fits]
    if ahead is None or not ahead.has_larger or len(ahead.varying) != 1 or not short:
        return fits
    largest = max(short, key=lambda one: one.card.memory_bytes)
    return fits | {largest.card: replace(largest, cut_to=_cut_to(traced.trace, ahead, largest.card))}


def _cut_to(trace: AllocationTrace, ahead: LookAhead, card: Card) -> SeenBatch | None:
    """Return the largest batch of an epoch that a card should hold if longer ones are cut to its size; None without."""
    sizes = [one for (one,) in ahead.sizes]
    low, high = min(sizes), max(sizes)
    fitting = None
    with contextlib.suppress(FormatError):  # too few of the batches that were followed are as small
        epoch = Epoch(trace, ahead)
        while high - low > _CLOSE * high:
            size = (low + high) // 2
            cut = ahead.cut_to(size)
            if process_bytes(epoch.at(cut)[0], card, card.holds_up_to(CARD_ERROR)) is None:
                high = size
            else:
                low, fitting = size, cut.batch(ahead.largest.number)
    return fitting


def _over(elements: Sequence[int], peaks: Sequence[BatchPeak], limit_bytes: int) -> int:
    """Return of how many batches the tensors need more, if their peaks lie on straight lines between known ones."""
    over = {one.batch.number: one.tensor_bytes > limit_bytes for one in peaks}
    points = sorted((one.batch.elements, one.tensor_bytes) for one in peaks)
    known, known_bytes = zip(*points, strict=True)
    all_bytes = np.interp(elements, known, known_bytes)
    return sum(over.get(number, bool(one > limit_bytes)) for number, one in enumerate(all_bytes, 1))


def _fewest(fit: CardFit, follow: Callable[..., Future[Traced]]) -> CardPeak | None:
    """Return the peak with the fewest blocks with which the card holds the script, by runs that checkpoint some.

    Each run takes as long as the first. A peak nearly lies on a straight line in the blocks, which leads to a number
    that fits. If one block less fits too, since the card frees what is cached, the rest is halved again and again.
    """
    if fit.plain is None or fit.checkpointed is None or fit.plain.own.fits or not fit.checkpointed.own.fits:
        return None
    limit_bytes = fit.card.holds_up_to(CARD_ERROR)
    low, high, fitting = fit.plain.own, fit.checkpointed.own, 0
    for _ in range(_MOST_RUNS):
        if high.blocks - low.blocks == 1:
            break
        saved = low.roomy_bytes - high.roomy_bytes
        if fitting == 1:
            blocks = high.blocks - 1
        elif fitting or saved <= 0:
            blocks = (low.blocks + high.blocks) // 2
        else:
            share = (low.roomy_bytes - limit_bytes) / saved
            blocks = low.blocks + math.ceil(share * (high.blocks - low.blocks))
        blocks = min(max(blocks, low.blocks + 1), high.blocks - 1)
        try:
            trace = follow(blocks=blocks).result().trace
        except DiscoveryError:
            break
        tried = _peak(trace, fit.card, low.batch_size, blocks)
        low, high, fitting = (low, tried, fitting + 1) if tried.fits else (tried, high, fitting)
    return high


def _peak(trace: AllocationTrace, card: Card, batch_size: int | None, blocks: int) -> CardPeak:
    roomy = process_bytes(trace, card)
    assert roomy is not None, "it has room for everything"
    limit_bytes = card.holds_up_to(CARD_ERROR)
    on_card = roomy if roomy <= card.memory_bytes else process_bytes(trace, card, card.memory_bytes)
    if on_card is None:
        return CardPeak(batch_size, blocks, roomy, roomy, fits=False)
    fits = roomy <= limit_bytes or process_bytes(trace, card, limit_bytes) is not None
    return CardPeak(batch_size, blocks, roomy, on_card, fits)


def _way(traces: _Traces, card: Card, blocks: int) -> Way:
    @functools.cache
    def at(size: int | None) -> CardPeak:
        return _peak(traces.at(size), card, size, blocks)

    size = traces.own.batch_size
    if size is None or traces.own_alone:
        return Way(at(size), None, traces.own_alone)
    return Way(at(size), _largest(size, at, card.holds_up_to(CARD_ERROR)))


def _largest(start: int, at: Callable[[int], CardPeak], limit_bytes: int) -> CardPeak | None:
    """Return the largest size that fits, such that the next one does not; None if no size does.

    A peak takes long to simulate, and nearly lies on a straight line up to where the card is full.
    """
    slope = max(1.0, (at(2 * start).roomy_bytes - at(start).roomy_bytes) / start)
    size, low, high, guesses = start, 0, _LARGEST_SIZE + 1, _MOST_GUESSES
    while high - low > 1:
        peak = at(size)
        low, high = (size, high) if peak.fits else (low, size)
        if peak.fits and peak.roomy_bytes > limit_bytes:
            guesses = 0
        if guesses > 0:
            guesses -= 1
            size += int((limit_bytes - peak.roomy_bytes) // slope)
        else:
            # A card that frees what is cached seldom holds half as much again.
            size = (low + min(high, 2 * low or high)) // 2
        size = min(max(size, low + 1), high - 1)
    return at(low) if low else None
