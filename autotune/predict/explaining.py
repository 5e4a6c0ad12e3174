"""From what a script allocates on a device to what it holds there at its peak."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator

from ..records.allocations import AllocationTrace, FirstTensor, Place, Traced
from ..records.cards import Card
from ..records.explanation import Explanation, HeldTensor, Kind, Leak, Moment
from ..records.outcome import Phase
from .caching_allocator import Block
from .device_peak import Replay, outside_bytes, peak_of
from .epoch import with_epoch

_MOST_MOMENTS = 400
_NOWHERE = Place("", "", "", "")
_KIND_OF_ROLE: dict[str, Kind] = {
    "parameter": "parameters",
    "buffer": "buffers",
    "gradient": "gradients",
    "optimizer state": "optimizer state",
}


def explain(traced: Traced, card: Card, *, script: str) -> Explanation:
    """Simulate the steps that a run has followed on a card with room for everything, and list what the peak holds.

    The run must have been asked for places. ``script`` is the name of the script's file.
    """
    trace = traced.trace
    peak, epoch = peak_of(trace, card), with_epoch(traced)
    reserved = peak.reserved if epoch is traced else peak_of(epoch.trace, card).reserved
    watching = _Watching(trace, card, peak.allocated)
    watching.run()
    steps = _Steps(trace)
    held = sorted(_held(trace, steps, watching), key=lambda one: -one.bytes)
    return Explanation(
        script=script,
        card=card,
        batch_size=traced.batch_size,
        peak_bytes=peak.allocated,
        process_bytes=reserved + outside_bytes(trace),
        moment=steps.moment(watching.peak_event),
        held=tuple(held),
        workspace_bytes=peak.allocated - sum(one.bytes for one in held),
        timeline=tuple(_timeline(steps, watching)),
        leaks=tuple(_leaks(trace, steps)),
        asked=traced.asked,
        asked_integers=traced.asked_integers,
        notes=epoch.notes,
        ahead=traced.ahead,
    )


class _Watching(Replay):
    """Notes which storages are alive at a peak that is known, and how much is allocated with each allocation."""

    def __init__(self, trace: AllocationTrace, card: Card, peak_bytes: int) -> None:
        super().__init__(trace, card)
        self._peak_bytes = peak_bytes
        self.levels: list[tuple[int, int]] = []  # event, and bytes
        self.peak_event = -1
        self.alive_at_peak: tuple[int, ...] = ()

    def _allocate(self, number: int) -> None:
        super()._allocate(number)
        if self.memory.allocated == self._peak_bytes:
            self.alive_at_peak += (number,)

    def _take(self, size: int) -> Block | None:
        block = super()._take(size)
        self.levels.append((self.event, self.memory.allocated))
        if self.memory.allocated == self._peak_bytes:
            # The last time: a first step has no optimizer state yet, and no inputs of its own.
            self.peak_event = self.event
            self.alive_at_peak = tuple(self.alive)
        return block


class _Steps:
    """Knows at which moment of which step each event of a trace is, and when each storage is allocated and freed."""

    def __init__(self, trace: AllocationTrace) -> None:
        self._trace = trace
        self._places = [event for event, kind in enumerate(trace.kinds) if kind == "w"]
        self._phases = [event for event, kind in enumerate(trace.kinds) if kind == "p"]
        self._starts = [event for event in self._phases if self._phase_begun(event) == "start"]
        self.made = {trace.numbers[event]: event for event, kind in enumerate(trace.kinds) if kind == "a"}
        self.freed = {trace.numbers[event]: event for event, kind in enumerate(trace.kinds) if kind == "f"}

    def moment(self, event: int) -> Moment:
        """Return the moment of an event."""
        last = bisect_right(self._places, event) - 1
        place = self._trace.places[self._trace.numbers[self._places[last]]] if last >= 0 else _NOWHERE
        return Moment(self.step(event), self.phase(event), place)

    def step(self, event: int) -> int:
        """Return the number of the step that an event is in."""
        return bisect_right(self._starts, event)

    def phase(self, event: int) -> Phase:
        """Return the phase that an event is in."""
        last = bisect_right(self._phases, event) - 1
        return "start" if last < 0 else self._phase_begun(self._phases[last])

    def is_before_training(self, event: int) -> bool:
        """Return whether an event is before the first forward."""
        return self.step(event) == 0 and self.phase(event) == "start"

    def survives(self, storage: int, phase: Phase) -> bool:
        """Return whether a storage is alive as the first such phase begins, in the same step, after its allocation."""
        made = self.made[storage]
        after = self._phases[bisect_left(self._phases, made) :]
        begun = next((event for event in after if self._phase_begun(event) == phase), None)
        return begun is not None and self.step(begun) == self.step(made) and self.freed.get(storage, begun) >= begun

    def _phase_begun(self, event: int) -> Phase:
        return AllocationTrace.PHASES[self._trace.numbers[event]]


def _held(trace: AllocationTrace, steps: _Steps, watching: _Watching) -> Iterator[HeldTensor]:
    for storage in watching.alive_at_peak:
        tensor, freed = trace.tensors[storage], steps.freed.get(storage)
        yield HeldTensor(
            kind=_kind(tensor, storage, steps, steps.step(watching.peak_event)),
            bytes=trace.storage_bytes[storage],
            shape=tensor.shape,
            dtype=tensor.dtype,
            parameter=tensor.parameter,
            made=steps.moment(steps.made[storage]),
            freed=None if freed is None else steps.moment(freed),
        )


def _kind(tensor: FirstTensor, storage: int, steps: _Steps, step: int) -> Kind:
    if tensor.role:
        return _KIND_OF_ROLE[tensor.role]
    made = steps.made[storage]
    phase = steps.phase(made)
    if steps.is_before_training(made):
        return "from before the first step"
    if steps.step(made) < step:
        return "from earlier steps"
    if phase == "start":
        return "inputs"
    if steps.moment(made).place.way == "recompute":
        return "recomputed activations"
    if phase == "optimizer" and steps.survives(storage, "forward"):
        return "inputs"  # of the next batch of the step
    if phase != "forward" or not steps.survives(storage, "backward"):
        return "in use"
    freed = steps.freed.get(storage)
    is_saved = freed is not None and (steps.step(freed), steps.phase(freed)) == (step, "backward")
    return "saved activations" if is_saved else "held by the script"


def _leaks(trace: AllocationTrace, steps: _Steps) -> Iterator[Leak]:
    """Find the places where each step that makes something leaves some of it.

    A variable that is assigned again holds one step's alone, and what is kept for good is made in one step alone. What
    follows the last step is not seen, and what is made before the first forward may be of that step, too.
    """
    last = steps.step(len(trace.kinds))
    left: defaultdict[Place, Counter[int]] = defaultdict(Counter)
    at_start, at_first_start = set[Place](), set[Place]()
    for storage, made in steps.made.items():
        if trace.tensors[storage].role:
            continue
        moment = steps.moment(made)
        if storage not in steps.freed:
            left[moment.place][moment.step] += trace.storage_bytes[storage]
        if moment.phase == "start":
            (at_start if moment.step else at_first_start).add(moment.place)
    for place, by_step in left.items():
        num_steps = last + (place not in at_start or place in at_first_start)
        if len(by_step) == num_steps > 1:
            yield Leak(place, min(by_step.values()))


def _timeline(steps: _Steps, watching: _Watching) -> Iterator[tuple[Phase, int]]:
    step = steps.step(watching.peak_event)
    levels = [(event, level) for event, level in watching.levels if steps.step(event) == step]
    share = max(1, -(-len(levels) // _MOST_MOMENTS))
    for first in range(0, len(levels), share):
        together = levels[first : first + share]
        yield steps.phase(together[0][0]), max(level for _, level in together)
