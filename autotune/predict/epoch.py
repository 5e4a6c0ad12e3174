"""From the steps of an epoch that a run has followed to what all steps of the epoch allocate, one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations_with_replacement

import numpy as np
import numpy.typing as npt

from ..errors import FormatError
from ..records.allocations import AllocationTrace, OperatorCall, Traced, combined
from ..records.look_ahead import LookAhead, SeenBatch
from .kernels import KERNELS

Floats = npt.NDArray[np.float64]

_NOT_SIMULATED = "the peak is that of a few batches of the epoch; those between them may leave more in the cache"
# Each event takes some microseconds to simulate.
_MOST_EVENTS, _LEAST_STEPS = 400_000, 16
# Steps that formulas are made from.
_MOST_KNOWN = 16
# Bytes of a step that its formulas may miss, as a share of all.
_TOLERANCE = 0.02
# Singular values below this share of the largest are none: some sizes were not seen to differ.
_LEAST_SINGULAR = 1e-4
_START, _BACKWARD = AllocationTrace.PHASES.index("start"), AllocationTrace.PHASES.index("backward")


def with_epoch(traced: Traced) -> Traced:
    """Return a trace of an epoch's steps in their order, from a run that has read it ahead and followed some of it.

    The bytes of each storage are a polynomial in the sizes of a batch, by least squares. A step with a batch that was
    followed has the bytes that were seen. Steps of another form, as the first one, stay as they are. Of a long epoch,
    steps with more elements than all before them are there, and others between these. Where the steps that were
    followed do not tell, their trace stays, with a note.
    """
    ahead = traced.ahead
    if ahead is None or not ahead.has_larger:
        return traced
    try:
        trace, batches = Epoch(traced.trace, ahead).at(ahead)
    except FormatError as error:
        return replace(traced, notes=(*traced.notes, f"{_NOT_SIMULATED}: {error}"))
    return replace(traced, trace=trace, ahead=replace(ahead, followed=batches))


class Epoch:
    """Makes the trace of an epoch's steps from that of some, ``trace``, and from the sizes of all batches, ``ahead``.

    Raises:
        FormatError: the steps do not tell.
    """

    def __init__(self, trace: AllocationTrace, ahead: LookAhead) -> None:
        steps = _steps_of(trace)
        self._steps = steps[: _last_alike(steps) + 1]
        self._pattern, self._followed, self._expands = self._steps[-1], ahead.followed, trace.expands
        self._is_alike = [step.form == self._pattern.form for step in self._steps]
        self._per_step = len(ahead.followed[-1])

    def at(self, ahead: LookAhead) -> tuple[AllocationTrace, tuple[tuple[SeenBatch, ...], ...]]:
        """Return the trace with batches of these sizes, and the batches of its steps.

        Raises:
            FormatError: the steps do not tell.
        """
        steps, per_step = self._steps, self._per_step
        sizes = _Sizes(ahead, self._known(ahead), self._pattern.parts(per_step))
        begins = range(1, len(ahead.elements) - per_step + 2, per_step)
        batches = [tuple(map(ahead.batch, range(begin, begin + per_step))) for begin in begins]
        most = max(_LEAST_STEPS, _MOST_EVENTS // len(self._pattern.events))
        chosen = _chosen([max(one.elements for one in taken) for taken in batches], len(steps), most)
        made, of_steps = _MadeTrace(), []
        for place, number in enumerate(chosen):
            if place < len(steps) and not self._is_alike[place]:
                made.add(steps[place], steps[place].storage_bytes, steps[place].operators)
                of_steps.append(self._followed[place])
            else:
                made.add(steps[place] if place < len(steps) else self._pattern, *sizes.of(batches[number]))
                of_steps.append(batches[number])
        return made.trace(expands=self._expands), tuple(of_steps)

    def _known(self, ahead: LookAhead) -> dict[int, _Step]:
        """Return some steps of the pattern by the number of the batch that each has taken, with the sizes as ahead."""
        found = [
            (taken[0], step)
            for step, taken, alike in zip(self._steps, self._followed, self._is_alike, strict=False)
            if alike and len(taken) == self._per_step and len({one.number for one in taken}) == 1
        ]
        found = sorted((one for one in found if _is_ahead(one[0], ahead)), key=lambda one: one[0].size)
        if len({batch.size for batch, _ in found}) < 2:
            raise FormatError("too few steps with batches of different sizes are alike")
        places = np.unique(np.linspace(0, len(found) - 1, min(len(found), _MOST_KNOWN)).astype(int))
        return {found[place][0].number: found[place][1] for place in places}


def _is_ahead(batch: SeenBatch, ahead: LookAhead) -> bool:
    """Return whether a batch has the sizes that it has ahead: the last one of an epoch may lack samples."""
    return not ahead.varying or batch == ahead.batch(batch.number)


@dataclass(frozen=True)
class _Event:
    """An event as in a trace, but with numbers that count from the first of its step.

    ``age``: so many steps before, the storage was allocated that it frees.
    """

    kind: str
    number: int
    age: int = 0


@dataclass
class _Step:
    events: list[_Event] = field(default_factory=list)
    storage_bytes: list[int] = field(default_factory=list)
    operators: list[OperatorCall] = field(default_factory=list)

    @property
    def form(self) -> tuple[object, ...]:
        """Return what steps have in common that differ in sizes only, but for what is left of steps before."""
        events = tuple((one.kind, -1 if one.age else one.number) for one in self.events)
        return events, tuple((call.name, call.num_results) for call in self.operators)

    def parts(self, number: int) -> tuple[list[int], list[int]]:
        """Return to which of a step's ``number`` batches each storage belongs, and each operator."""
        backwards = sum((one.kind, one.number) == ("p", _BACKWARD) for one in self.events)
        storages, operators, ended, is_backward = [], [], 0, False
        for one in self.events:
            if one.kind == "p":
                ended += is_backward
                is_backward = one.number == _BACKWARD
            part = min(number - 1, ended * number // max(1, backwards))
            if one.kind == "a":
                storages.append(part)
            elif one.kind == "o":
                operators.append(part)
        return storages, operators


def _steps_of(trace: AllocationTrace) -> list[_Step]:
    steps = [_Step()]
    made: dict[int, tuple[int, int]] = {}
    for kind, number in zip(trace.kinds, trace.numbers, strict=True):
        if (kind, number) == ("p", _START):
            steps.append(_Step())
        step = steps[-1]
        if kind == "a":
            made[number] = len(steps), len(step.storage_bytes)
            step.events.append(_Event(kind, len(step.storage_bytes)))
            step.storage_bytes.append(trace.storage_bytes[number])
        elif kind == "o":
            step.events.append(_Event(kind, len(step.operators)))
            step.operators.append(trace.operators[number])
        elif kind == "f" and number in made:
            of, place = made.pop(number)
            step.events.append(_Event(kind, place, len(steps) - of))
        elif kind in "pse":
            step.events.append(_Event(kind, number))
    return steps


def _last_alike(steps: Sequence[_Step]) -> int:
    """Return the place of the last step of the form that most have, if those are of it too of which it frees parts."""
    forms = [step.form for step in steps]
    form, _ = Counter(forms[1:]).most_common(1)[0] if len(steps) > 1 else ((), 0)
    for place in range(len(steps) - 1, 0, -1):
        oldest = max((event.age for event in steps[place].events), default=0) or 1
        if oldest <= place and all(one == form for one in forms[place - oldest : place + 1]):
            return place
    raise FormatError("no two of its steps are alike")


class _Sizes:
    """Knows the sizes of a step of the pattern, for each batch of an epoch."""

    def __init__(self, ahead: LookAhead, known: dict[int, _Step], parts: tuple[list[int], list[int]]) -> None:
        self._known, self._parts = known, parts
        self._weights = _weights(ahead, list(known))
        self._seen = np.array([step.storage_bytes for step in known.values()], dtype=np.float64)
        places = [number - 1 for number in known]
        missed = np.abs(self._weights[places] @ self._seen - self._seen).sum(axis=1) / self._seen.sum(axis=1)
        if missed.max() > _TOLERANCE:
            raise FormatError("what a step allocates follows no formula in the sizes of its batch")

    def of(self, batches: Sequence[SeenBatch]) -> tuple[list[int], list[OperatorCall]]:
        """Return the bytes of a step's storages, and its operators, by the step's batches."""
        by_batch = [self._of_one(one.number) for one in batches]
        return (
            [by_batch[part][0][place] for place, part in enumerate(self._parts[0])],
            [by_batch[part][1][place] for place, part in enumerate(self._parts[1])],
        )

    def _of_one(self, number: int) -> tuple[list[int], list[OperatorCall]]:
        if number in self._known:
            return self._known[number].storage_bytes, self._known[number].operators
        weights = self._weights[number - 1]
        sizes = np.maximum(0, np.rint(weights @ self._seen)).astype(int).tolist()

        def weighted(values: Sequence[int]) -> int:
            return max(0, round(float(weights @ np.array(values))))

        calls = zip(*(step.operators for step in self._known.values()), strict=True)
        return sizes, [combined(each, weighted) if _reads_sizes(each[0]) else each[0] for each in calls]


def _reads_sizes(call: OperatorCall) -> bool:
    return call.name in KERNELS and KERNELS[call.name].reads_sizes


def _weights(ahead: LookAhead, known: Sequence[int]) -> Floats:
    """Return for each batch of an epoch the weights of the batches that are ``known``, as (batches, known).

    With these weights, values of the known batches sum up to that of a polynomial through them.
    """
    elements = np.array(ahead.elements, dtype=np.float64)[:, None]
    sizes = np.array(ahead.sizes, dtype=np.float64) if ahead.varying else elements
    for tried, degree in ((sizes, 2), (sizes, 1), (elements, 2), (elements, 1)):
        features = _features(tried / tried.max(axis=0), degree)
        if features.shape[1] <= len(known):
            break
    return features @ np.linalg.pinv(features[[number - 1 for number in known]], rcond=_LEAST_SINGULAR)


def _features(sizes: Floats, degree: int) -> Floats:
    """Return the products of up to ``degree`` sizes, as (batches, products)."""
    with_one = np.hstack([np.ones((len(sizes), 1)), sizes])
    products = combinations_with_replacement(range(with_one.shape[1]), degree)
    return np.stack([with_one[:, list(each)].prod(axis=1) for each in products], axis=1)


def _chosen(elements: Sequence[int], first: int, most: int) -> list[int]:
    """Choose about ``most`` steps, in their order, by the elements of each; the ``first`` are among them."""
    if len(elements) <= most:
        return [*range(len(elements))]
    rising = [place for place, one in enumerate(elements) if one > max(elements[:place], default=0)][-most // 2 :]
    between = np.linspace(0, len(elements) - 1, max(0, most - first - len(rising))).astype(int).tolist()
    return sorted({*range(first), *rising, *between})


class _MadeTrace:
    """Puts steps together to a trace."""

    def __init__(self) -> None:
        self._kinds: list[str] = []
        self._numbers: list[int] = []
        self._storage_bytes: list[int] = []
        self._operators: list[OperatorCall] = []
        self._begins: list[int] = []

    def add(self, step: _Step, storage_bytes: Sequence[int], operators: Sequence[OperatorCall]) -> None:
        """Add the events of a step, with these sizes."""
        self._begins.append(len(self._storage_bytes))
        self._storage_bytes += storage_bytes
        for event in step.events:
            number = event.number
            if event.kind == "o":
                number += len(self._operators)
            elif event.kind in "af":
                number += self._begins[-1 - event.age]
            self._kinds.append(event.kind)
            self._numbers.append(number)
        self._operators += operators

    def trace(self, *, expands: bool) -> AllocationTrace:
        """Return the trace of all steps."""
        return AllocationTrace(
            "".join(self._kinds),
            tuple(self._numbers),
            tuple(self._storage_bytes),
            tuple(self._operators),
            expands=expands,
        )
