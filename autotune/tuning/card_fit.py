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
import numpy.typing as npt

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
# So many times the largest size that is known to fit may be guessed.
_MOST_AT_ONCE = 8
# Bytes that a third batch size may lie beside the line through two, as a share of all.
_TOLERANCE = 0.001
# A batch needs more than one of the same sizes from so many times its peak on: parts of a step before may be left.
_RISES = 1.001
# Batches that are read ahead at another batch size, at least.
_LEAST_READ = 16
# How close to the largest size that fits a size is that is named, where each takes a run or all of an epoch.
_CLOSE = 0.03
# Runs to find how few blocks must be checkpointed for a card, or which batch size fits it.
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
        follow_once = functools.cache(functools.partial(follow, control=own.batch_control))
        traced = _trace(own, follow_once, look_ahead=look_ahead if differ else 0)
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
    generations: defaultdict[tuple[int, int], list[Card]] = defaultdict(list)
    for card in cards:
        generations[card.capability[0], card.number].append(card)
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
class _Search:
    """Hold how the largest size is looked for: at first ``guesses`` lie on a straight line, then the rest is halved.

    ``close``: as a share, how close to the largest that fits one may be that does not.
    """

    guesses: int
    tries: int
    close: float


_ON_A_LINE, _BY_RUNS = _Search(8, _LARGEST_SIZE, 0.0), _Search(2, _MOST_RUNS, _CLOSE)


@dataclass(frozen=True)
class _Traces:
    """The trace of a script at its own batch size; ``other`` makes that at another, or ``own_alone`` is why it can't.

    ``is_followed``: it does so by a run, and not on a straight line through two traces.
    """

    own: Traced
    other: Callable[[int], AllocationTrace] | None
    own_alone: str = ""
    is_followed: bool = False

    def at(self, batch_size: int | None) -> AllocationTrace:
        """Return the trace at a batch size; None for the script's own.

        Raises:
            DiscoveryError: the script cannot be followed at that size.
        """
        if batch_size is None or self.other is None or batch_size == self.own.batch_size:
            return self.own.trace
        return self.other(batch_size)


@dataclass(frozen=True)
class _Generation:
    """The traces of a script on cards of one generation: as it is, and with its blocks checkpointed."""

    plain: _Traces
    checkpointed: _Traces | None


def _trace(own: Traced, follow: Callable[..., Future[Traced]], *, look_ahead: int) -> _Generation:
    """Trace a script at other batch sizes, and with its blocks checkpointed where it has any.

    ``own`` is the trace of the script as it is. If ``look_ahead`` of its batches differ in size, each other batch size
    takes a run of its own, which reads as many samples.
    """
    size, control = own.batch_size, own.batch_control
    blocks = follow(blocks=ALL_BLOCKS) if own.blocks else None
    if size is None or not control.can_set:
        why = control.reason or "its batch size could not be counted"
        alone = functools.partial(_Traces, other=None, own_alone=why)
        return _Generation(alone(own), _checkpointed(blocks, alone))
    if look_ahead:

        def at(checkpointed: int, other: int) -> AllocationTrace:
            batches = max(_LEAST_READ, look_ahead * size // other)
            traced = follow(other, blocks=checkpointed, look_ahead=batches).result()
            ahead = traced.ahead
            if ahead is not None and not ahead.is_simulated and (ahead.has_larger or len(ahead.sizes) < 2):
                raise DiscoveryError(f"an epoch has too few batches of {other} samples to tell what later ones need")
            return traced.trace

        plain, others = (functools.partial(at, number) for number in (0, ALL_BLOCKS))
        by_runs = functools.partial(_Traces, is_followed=True)
        return _Generation(by_runs(own, plain), _checkpointed(blocks, functools.partial(by_runs, other=others)))
    twice, fourfold = (follow(times * size) for times in (2, 4))
    blocks_twice = follow(2 * size, blocks=ALL_BLOCKS) if own.blocks else None
    on_a_line = _on_a_line(own, twice, fourfold)
    if blocks_twice is None:
        return _Generation(on_a_line, None)
    return _Generation(on_a_line, _checkpointed(blocks, functools.partial(_as_others, on_a_line, blocks_twice)))


def _on_gpu(traced: Traced) -> Traced:
    """Return a trace; DiscoveryError if it is of nothing."""
    if not traced.trace.storage_bytes:
        raise DiscoveryError(
            "nothing of the script's is on the GPU",
            hint="it must move its model to CUDA where torch.cuda.is_available() says so, or be told by an option",
        )
    return traced


def _checkpointed(blocks: Future[Traced] | None, traces: Callable[[Traced], _Traces]) -> _Traces | None:
    """Return the ``traces`` with blocks checkpointed; None if there are none, or if that cannot be done."""
    if blocks is None:
        return None
    try:
        return traces(blocks.result())
    except DiscoveryError:
        # A block may take what torch's checkpoint cannot hand on.
        return None


def _as_others(plain: _Traces, twice: Future[Traced], own: Traced) -> _Traces:
    """Put a line through two traces where the plain ones are on one."""
    if not plain.own_alone:
        return _through_two(own, twice)
    twice.cancel()
    return replace(plain, own=own)


def _through_two(own: Traced, twice: Future[Traced]) -> _Traces:
    """Put a line through the traces at a batch size and at twice that, if both are of the same steps."""
    size = own.batch_size
    assert size is not None, "it can be set"
    try:
        larger = twice.result().trace
        between(own.trace, larger, 1.0)
    except (DiscoveryError, FormatError) as error:
        return _Traces(own, None, _why(error))
    return _Traces(own, lambda other: between(own.trace, larger, (other - size) / size))


def _why(error: DiscoveryError | FormatError) -> str:
    return f"{error}. {error.hint}" if error.hint else str(error)


def _on_a_line(own: Traced, twice: Future[Traced], fourfold: Future[Traced]) -> _Traces:
    """Put a line through two traces, and compare it with a third."""
    traces = _through_two(own, twice)
    if traces.own_alone or own.batch_size is None:
        fourfold.cancel()
        return traces
    try:
        expected, found = traces.at(4 * own.batch_size).storage_bytes, fourfold.result().trace.storage_bytes
    except (DiscoveryError, FormatError) as error:
        return _Traces(own, None, _why(error))
    if len(expected) != len(found) or sum(map(_differ, expected, found)) > _TOLERANCE * sum(found):
        return _Traces(own, None, "what it allocates is no straight line in the batch size")
    return traces


def _follow(
    spec: StudySpec,
    card: Card,
    run: Run,
    runs: SideBySide[Traced],
    batch_size: int | None = None,
    *,
    control: BatchControl | None = None,
    look_ahead: int = 0,
    blocks: int = 0,
) -> Future[Traced]:
    """Follow the script at a batch size, with so many blocks checkpointed.

    The result raises DiscoveryError if that cannot be done.
    """
    request = trace_request(
        spec,
        card,
        batch_size=batch_size,
        control=None if batch_size is None else control,
        checkpointed_blocks=blocks,
        look_ahead=look_ahead,
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
    number = sum(traced.plain.own.blocks.values())
    with ThreadPoolExecutor(2) as pool:
        plain = pool.submit(_way, traced.plain, card, 0)
        blocks = traced.checkpointed
        checkpointed = None if blocks is None else pool.submit(_way, blocks, card, number)
    fit = replace(
        _fit_own(traced.plain.own, card),
        plain=plain.result(),
        checkpointed=None if checkpointed is None else checkpointed.result(),
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
        BatchPeak(batch, peak.allocated, peak.reserved + outside, ahead.epoch_of(step))
        for step, (batch, peak) in enumerate(zip(ahead.largest_of_steps, step_peaks(trace, card), strict=True))
        if batch is not None
    ]
    rising = list[BatchPeak]()
    for one in all_peaks:
        last = rising[-1] if rising else None
        if last is None or one.tensor_bytes > last.tensor_bytes * (_RISES if _are_alike(one, last) else 1.0):
            if last is not None and one.batch.number == last.batch.number:
                rising.pop()
            rising.append(one)
    of_all = _tensor_bytes(ahead.elements, all_peaks)
    half, most = np.quantile(of_all, (0.5, 0.9)).astype(int).tolist()
    fit = replace(fit, batches=tuple(rising), half_bytes=half, nine_in_ten_bytes=most)
    if fit.plain is None or fit.plain.own.peak_bytes <= card.memory_bytes:
        return fit
    died = len(step_peaks(trace, card, card.memory_bytes)) - 1
    over = int((of_all > card.memory_bytes - outside).sum())
    return replace(
        fit, batches_over=over, runs_out_at=ahead.largest_of_steps[died], runs_out_in_epoch=ahead.epoch_of(died)
    )


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


def _tensor_bytes(elements: Sequence[int], peaks: Sequence[BatchPeak]) -> npt.NDArray[np.float64]:
    """Return what the tensors of each batch need, as (batches,), on straight lines between known peaks."""
    known, known_bytes = zip(*sorted((one.batch.elements, one.tensor_bytes) for one in peaks), strict=True)
    of_all = np.asarray(np.interp(elements, known, known_bytes))
    for one in peaks:
        of_all[one.batch.number - 1] = one.tensor_bytes
    return of_all


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

    own, limit_bytes = at(traces.own.batch_size), card.holds_up_to(CARD_ERROR)
    if own.batch_size is None or traces.own_alone:
        return Way(own, None, traces.own_alone)
    search = _BY_RUNS if traces.is_followed else _ON_A_LINE
    try:
        largest, beyond = _largest(own.batch_size, at, limit_bytes, search)
        return Way(own, largest, beyond=beyond)
    except DiscoveryError as error:
        return Way(own, None, str(error))


def _largest(
    start: int, at: Callable[[int], CardPeak], limit_bytes: int, search: _Search
) -> tuple[CardPeak | None, str]:
    """Return the largest size known to fit, None if none is; and why no larger one is known not to, where that is so.

    A peak takes long to simulate, and nearly lies on a straight line up to where the card is full.

    Raises:
        DiscoveryError: the script cannot be followed at a second size.
    """
    other = 2 * start if at(start).fits else start // 2
    if not other:
        return None, ""
    slope = max(1.0, (at(other).roomy_bytes - at(start).roomy_bytes) / (other - start))
    low = max((size for size in (start, other) if at(size).fits), default=0)
    high = min((size for size in (start, other) if not at(size).fits), default=_LARGEST_SIZE + 1)
    peak, guesses, beyond = at(low or high), search.guesses, ""
    for _ in range(search.tries):
        if high - low <= max(1, search.close * low):
            break
        over, size = peak.roomy_bytes - limit_bytes, peak.batch_size
        if guesses and size is not None and not (peak.fits and over > 0):
            guesses, size = guesses - 1, size - int(over // slope)
        else:
            # A card that frees what is cached seldom holds half as much again.
            guesses, size = 0, (low + min(high, 2 * low or high)) // 2
        size = min(max(size, low + max(1, int(search.close * low))), _MOST_AT_ONCE * low or high, high - 1)
        try:
            peak = at(size)
            low, high, beyond = (size, high, beyond) if peak.fits else (low, size, "")
        except DiscoveryError as error:  # an epoch has too few samples, or a step cannot be followed at that size
            guesses, high, beyond = 0, size, str(error)
    if high > _LARGEST_SIZE and search.tries < _LARGEST_SIZE:
        beyond = f"no more than {search.tries} runs look for the largest"
    return (at(low) if low else None), beyond
