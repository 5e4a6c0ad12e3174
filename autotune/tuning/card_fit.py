"""The batch sizes of a script that fit cards which are not there: traces of its first steps, and peaks simulated."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from ..errors import DiscoveryError, FormatError
from ..launch.port import RunResult
from ..launch.requests import trace_request
from ..predict.device_peak import outside_bytes, peak_of
from ..records.allocations import AllocationTrace, Traced, between
from ..records.cards import Card, CardFit, SizePeak, Way
from ..records.outcome import Fallback
from ..records.run import Request
from ..records.study import StudySpec

Run = Callable[[Request, str], RunResult]

# Of 426 peaks of timm models that others have measured, 92 % were within this share: see docs/design/absent-gpu.md.
ERROR = 0.06
_LARGEST_SIZE = 1 << 20
# Bytes that a third batch size may lie beside the line through two, as a share of all.
_TOLERANCE = 0.001
_WITH_GPU = "it may need what only the GPU has: run `autotune fit` without --for on a machine with one"


def trace_cards(spec: StudySpec, cards: Sequence[Card], run: Run) -> tuple[Traced, tuple[CardFit, ...]]:
    """Trace a script for each generation of cards; return the first trace, and what fits each card.

    Args:
        spec: the script.
        cards: the cards in question.
        run: makes a run in a folder of the name given.

    Raises:
        DiscoveryError: the script comes to its second optimizer step on none of them.
    """
    # Kernels, and what scripts ask a card for, depend on the major number of its capability.
    traced: dict[int, tuple[_Traces, _Traces | None] | DiscoveryError] = {}
    for card in cards:
        generation = card.capability[0]
        if generation not in traced:
            try:
                traced[generation] = _trace(spec, card, run)
            except DiscoveryError as error:
                traced[generation] = error
    found = [one for one in traced.values() if not isinstance(one, DiscoveryError)]
    if not found:
        raise next(one for one in traced.values() if isinstance(one, DiscoveryError))
    return found[0][0].own, tuple(_fit(traced[card.capability[0]], card) for card in cards)


def _trace(spec: StudySpec, card: Card, run: Run) -> tuple[_Traces, _Traces | None]:
    """Trace the script as it is, and with its blocks checkpointed where it has any."""
    plain = _Traces(spec, card, run)
    if not plain.own.trace.storage_bytes:
        raise DiscoveryError(
            "nothing of the script's is on the GPU",
            hint="it must move its model to CUDA where torch.cuda.is_available() says so, or be told by an option",
        )
    if not plain.own.blocks:
        return plain, None
    try:
        return plain, _Traces(spec, card, run, like=plain)
    except DiscoveryError:
        # A block may take what torch's checkpoint cannot hand on.
        return plain, None


class _Traces:
    """The traces of a script on cards of one generation, at its own batch size and at twice that.

    A third one, at four times that, is only compared. With the trace of the script as it is, which it is ``like``, its
    blocks are checkpointed; whether sizes follow the batch is known by then. ``own_alone`` is why they do not.
    """

    def __init__(self, spec: StudySpec, card: Card, run: Run, *, like: _Traces | None = None) -> None:
        self._request = functools.partial(trace_request, spec, card, checkpoints_blocks=like is not None)
        self._run = run
        self._name = f"trace-{card.name}{'-checkpointed' if like else ''}"
        self.own = self._trace(None)
        self._larger: Traced | None = None
        self.own_alone: str = self._why_alone() if like is None else like.own_alone
        if like is not None and not self.own_alone:
            self.own_alone = self._why_not_twice()

    def at(self, batch_size: int | None) -> AllocationTrace:
        """Return the trace at a batch size, on a straight line through two; None for the script's own."""
        own, larger = self.own, self._larger
        if batch_size is None or larger is None or own.batch_size is None or batch_size == own.batch_size:
            return own.trace
        return between(own.trace, larger.trace, (batch_size - own.batch_size) / own.batch_size)

    def _why_alone(self) -> str:
        """Trace other batch sizes; return why they cannot be told, empty if they can."""
        size, control = self.own.batch_size, self.own.batch_control
        if size is None or not control.can_set:
            return control.reason or "its batch size could not be counted"
        if not self.own.trace.storage_bytes:
            return ""
        if why := self._why_not_twice():
            return why
        try:
            expected, found = self.at(4 * size).storage_bytes, self._trace(4 * size).trace.storage_bytes
        except (DiscoveryError, FormatError) as error:
            return str(error)
        if len(expected) != len(found) or sum(map(_differ, expected, found)) > _TOLERANCE * sum(found):
            return "what it allocates is no straight line in the batch size"
        return ""

    def _why_not_twice(self) -> str:
        size = self.own.batch_size
        assert size is not None, "it can be set"
        try:
            larger = self._trace(2 * size)
            between(self.own.trace, larger.trace, 1.0)
        except (DiscoveryError, FormatError) as error:
            return str(error)
        if larger.batch_size != 2 * size:
            return f"its batches had {larger.batch_size} samples where {2 * size} were asked for"
        self._larger = larger
        return ""

    def _trace(self, batch_size: int | None) -> Traced:
        control = None if batch_size is None else self.own.batch_control
        result = self._run(self._request(batch_size=batch_size, control=control), f"{self._name}-{batch_size or 'own'}")
        if result.traced is not None:
            return result.traced
        failed = result.outcomes[0] or result.failure
        cause = getattr(failed, "cause", "") or "it ended before the steps that are needed"
        where = "" if batch_size is None else f" at batch {batch_size}"
        raise DiscoveryError(
            f"the script cannot be followed without the GPU{where}: {cause}",
            hint=failed.advice if isinstance(failed, Fallback) else _WITH_GPU,
        )


def _differ(first: int, second: int) -> int:
    return abs(first - second)


def _fit(traced: tuple[_Traces, _Traces | None] | DiscoveryError, card: Card) -> CardFit:
    if isinstance(traced, DiscoveryError):
        return CardFit(card, None, error=ERROR, problem=str(traced))
    plain, checkpointed = traced
    return CardFit(card, _way(plain, card), None if checkpointed is None else _way(checkpointed, card), error=ERROR)


def _way(traces: _Traces, card: Card) -> Way:
    @functools.cache
    def at(size: int | None) -> SizePeak:
        trace = traces.at(size)
        return SizePeak(size, peak_of(trace, card).reserved + outside_bytes(trace))

    def fits(peak: SizePeak) -> bool:
        return peak.peak_bytes * (1 + ERROR) <= card.memory_bytes

    size = traces.own.batch_size
    if size is None or traces.own_alone:
        return Way(at(size), None, traces.own_alone)
    return Way(at(size), _largest(size, at, fits))


def _largest(start: int, at: Callable[[int], SizePeak], fits: Callable[[SizePeak], bool]) -> SizePeak | None:
    """Return the largest size that fits, by doubling and then bisection."""
    low, best, high = 0, None, start
    while high <= _LARGEST_SIZE and fits(found := at(high)):
        low, best, high = high, found, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if fits(found := at(middle)):
            low, best = middle, found
        else:
            high = middle
    return best
