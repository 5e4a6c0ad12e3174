"""From the steps of an epoch that a run has followed to what all steps of the epoch allocate, one after the other."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, combinations_with_replacement
from statistics import fmean

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
# A second epoch meets what the first has left in the cache.
_EPOCHS = 2
# Steps that formulas are made from.
_MOST_KNOWN = 16
# Bytes of a step that its formulas may miss, as a share of all.
_TOLERANCE = 0.02
# Singular values below this share of the largest are none: some sizes were not seen to differ.
_LEAST_SINGULAR = 1e-4
_START, _BACKWARD = AllocationTrace.PHASES.index("start"), AllocationTrace.PHASES.index("backward")


def with_epoch(traced: Traced) -> Traced:
    """Return a trace of the steps of two epochs, from a run that has read one ahead and followed some of it.

    The second has the batches of the first, in another order if the script shuffles. Then it also has a batch as long
    as the last one, should that lack samples, and with all of them: it comes together in another way.

    The bytes of each storage are a polynomial in the sizes of a batch, by least squares. A step with a batch that was
    followed has the bytes that were seen. First steps of another form stay as they are. Of a long epoch, those steps
    are there with more bytes than all before them, and others between these. Where the steps that were followed do not
    tell, their trace stays, with a note.
    """
    ahead = traced.ahead
    if ahead is None or not ahead.has_larger:
        return traced
    try:
        trace, batches, first = Epoch(traced.trace, ahead).at(ahead)
    except FormatError as error:
        followed = {batch.number for step in ahead.followed for batch in step}
        is_all = len(followed) == len(ahead.elements)
        return traced if is_all else replace(traced, notes=(*traced.notes, f"{_NOT_SIMULATED}: {error}"))
    return replace(traced, trace=trace, ahead=replace(ahead, followed=batches, first_steps=first))


class Epoch:
    """Makes the trace of an epoch's steps from that of some, ``trace``, and from the sizes of all batches, ``ahead``.

    Raises:
        FormatError: the steps do not tell.
    """

    def __init__(self, trace: AllocationTrace, ahead: LookAhead) -> None:
        self._steps, self._followed = _steps_of(trace), ahead.followed
        self._expands, self._workspaces = trace.expands, trace.workspaces
        self._last = _last_alike(self._steps)
        self._pattern = self._steps[self._last]
        self._is_alike = [step.form == self._pattern.form for step in self._steps]
        self._per_step, _ = Counter(map(len, ahead.followed)).most_common(1)[0]
        self._lacking = self._lacking_step(len(ahead.sizes))
        self._first = next(place for place in range(1, self._last + 1) if self._follows_alike(place))

    def _lacking_step(self, full: int) -> int | None:
        """Return the place of the step with a batch that lacks samples, the only one after the ``full`` ones."""
        for place, taken in enumerate(self._followed):
            if taken and all(batch.number > full for batch in taken) and self._follows_alike(place):
                return place
        return None

    def _follows_alike(self, place: int) -> bool:
        """Return whether all steps of which a step frees parts are of the pattern."""
        oldest = self._steps[place].oldest
        return oldest <= place and all(self._is_alike[place - oldest : place])

    def at(self, ahead: LookAhead) -> tuple[AllocationTrace, tuple[tuple[SeenBatch, ...], ...], int]:
        """Return the trace with batches of these sizes, the batches of its steps, and how many are the first epoch's.

        Raises:
            FormatError: the steps do not tell.
        """
        per_step, known = self._per_step, self._known(ahead)
        filled = ahead.filled()
        sizes = _Sizes(filled, known, self._pattern.parts(per_step), is_filled=filled is not ahead)
        self._check(sizes, len(ahead.sizes))
        begins = range(1, len(ahead.sizes) - per_step + 2, per_step)
        numbers = [range(begin, begin + per_step) for begin in begins]
        most = max(_LEAST_STEPS, _MOST_EVENTS // len(self._pattern.events) // _EPOCHS)
        always = {*range(self._first), *((number - 1) // per_step for number in known)}
        made, of_steps = _MadeTrace(), []
        order = _chosen([max(map(sizes.bytes_of, step)) for step in numbers], always, most)
        for place, chosen in enumerate(order):
            step = self._steps[place] if place < self._first else self._pattern
            if place >= self._first or self._is_alike[place]:
                made.add(step, *sizes.of(numbers[chosen]))
                of_steps.append(tuple(map(ahead.batch, numbers[chosen])))
            else:
                made.add(step, step.storage_bytes, step.operators)
                of_steps.append(self._followed[place])
        again = [numbers[chosen] for chosen in order]
        if len(filled.sizes) > len(ahead.sizes):
            again.append(range(len(filled.sizes) - per_step + 1, len(filled.sizes) + 1))
        first = len(of_steps)
        for _ in range(_EPOCHS - 1):
            places = np.random.default_rng(0).permutation(len(again)) if ahead.shuffles else range(len(again))
            for each in (again[place] for place in places):
                made.add(self._pattern, *sizes.of(each))
                of_steps.append(tuple(map(filled.batch, each)))
        if self._lacking is not None:
            step = self._steps[self._lacking]
            made.add(step, step.storage_bytes, step.operators)
            of_steps.append(self._followed[self._lacking])
        trace = replace(made.trace(), expands=self._expands, workspaces=self._workspaces)
        return trace, tuple(of_steps), first

    def _check(self, sizes: _Sizes, full: int) -> None:
        """Raise FormatError if what a step does may depend on its batch: only the first step may be unlike others.

        A step may have another form if it allocates as much, or if another with its batch has that of the pattern.
        """
        alike = [
            batch.shapes for taken, one in zip(self._followed, self._is_alike, strict=True) if one for batch in taken
        ]
        for place in range(1, len(self._followed)):
            taken, seen = self._followed[place], sum(self._steps[place].storage_bytes)
            if self._is_alike[place] or place == self._lacking or all(batch.shapes in alike for batch in taken):
                continue
            numbers = [batch.number for batch in taken if batch.number <= full]
            expected = fmean(map(sizes.bytes_of, numbers)) if len(numbers) == self._per_step else math.inf
            is_cut_off = place == len(self._followed) - 1 and len(taken) < self._per_step
            if abs(seen - expected) > _TOLERANCE * seen and not is_cut_off:
                raise FormatError(f"step {place + 1} of those that were followed does something else")

    def _known(self, ahead: LookAhead) -> dict[int, _Step]:
        """Return some steps of the pattern by the number of the batch that each has taken, with the sizes as ahead."""
        found = [
            (taken[0], step)
            for step, taken, alike in zip(self._steps, self._followed, self._is_alike, strict=True)
            if alike and len(taken) == self._per_step and len({one.number for one in taken}) == 1
        ]
        found = sorted((one for one in found if _is_ahead(one[0], ahead)), key=lambda one: one[0].size)
        if len({batch.size for batch, _ in found}) < 2:
            raise FormatError("too few steps with batches of different sizes are alike")
        places = np.unique(np.linspace(0, len(found) - 1, min(len(found), _MOST_KNOWN)).astype(int))
        return {found[place][0].number: found[place][1] for place in places}


def _is_ahead(batch: SeenBatch, ahead: LookAhead) -> bool:
    """Return whether a batch has the sizes that it has ahead: it may lack samples, or not be cut as others are."""
    is_full = batch.number <= len(ahead.sizes)
    return is_full and (not ahead.varying or batch == ahead.batch(batch.number))


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

    @property
    def oldest(self) -> int:
        """Return how many steps ago the oldest storage was allocated that it frees; 1 at least."""
        return max((event.age for event in self.events), default=0) or 1

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
        oldest = steps[place].oldest
        if oldest <= place and all(one == form for one in forms[place - oldest : place + 1]):
            return place
    raise FormatError("no two of its steps are alike")


class _Sizes:
    """Knows the sizes of a step of the pattern, for each batch of an epoch."""

    def __init__(
        self, ahead: LookAhead, known: dict[int, _Step], parts: tuple[list[int], list[int]], *, is_filled: bool
    ) -> None:
        self._known, self._parts = known, parts
        self._seen = np.array([step.storage_bytes for step in known.values()], dtype=np.float64)
        places, totals = [number - 1 for number in known], self._seen.sum(axis=1)
        missed = []
        for features in _formulas(ahead, places, is_filled=is_filled):
            # Weights with which values of the known batches sum up to that of a polynomial through them.
            self._weights = features @ np.linalg.pinv(features[places], rcond=_LEAST_SINGULAR)
            missed.append((np.abs(self._weights[places] @ self._seen - self._seen).sum(axis=1) / totals).max())
            if missed[-1] <= _TOLERANCE:
                break
        else:
            raise FormatError("what a step allocates follows no formula in the sizes of its batch")
        self._totals = self._weights @ totals

    def bytes_of(self, number: int) -> float:
        """Return the bytes of all storages of a batch's step."""
        return float(self._totals[number - 1])

    def of(self, batches: Sequence[int]) -> tuple[list[int], list[OperatorCall]]:
        """Return the bytes of a step's storages, and its operators, by the numbers of its batches."""
        by_batch = [self._of_one(number) for number in batches]
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


def _formulas(ahead: LookAhead, known: Sequence[int], *, is_filled: bool) -> Iterator[Floats]:
    """Give the terms of polynomials, as (batches, terms), that batches at ``known`` places tell; the likeliest first.

    So many batches and one more must agree, unless the epoch has no other sizes but that of a last batch that was
    filled up.
    """
    elements = np.array(ahead.elements[: len(ahead.sizes)], dtype=np.float64)[:, None]
    sizes = np.array(ahead.sizes, dtype=np.float64) if ahead.varying else elements
    sizes, elements = sizes / sizes.max(axis=0), elements / elements.max()
    formulas = [_products(sizes, 2)]
    if sizes.shape[1] == 2:  # attention takes the square of a length for each of a number of samples
        squares = (sizes[:, [0]] ** 2 * sizes[:, [1]], sizes[:, [1]] ** 2 * sizes[:, [0]])
        formulas += [np.hstack([formulas[0], one]) for one in squares]
    line = _products(sizes, 1)
    formulas += [line, _products(elements, 2), _products(elements, 1)]
    are_all = len(np.unique(sizes, axis=0)) == len(np.unique(sizes[list(known)], axis=0))
    yield from (one for one in formulas if one.shape[1] < len(known) or are_all)
    if is_filled and line.shape[1] == len(known):
        yield line


def _products(sizes: Floats, degree: int) -> Floats:
    """Return the products of up to ``degree`` sizes, as (batches, products)."""
    with_one = np.hstack([np.ones((len(sizes), 1)), sizes])
    products = combinations_with_replacement(range(with_one.shape[1]), degree)
    return np.stack([with_one[:, list(each)].prod(axis=1) for each in products], axis=1)


def _chosen(sizes: Sequence[float], always: Collection[int], most: int) -> list[int]:
    """Choose about ``most`` steps, in their order, by the bytes of each; ``always`` are among them."""
    if len(sizes) <= most:
        return [*range(len(sizes))]
    highest = [-math.inf, *accumulate(sizes, max)]
    rising = [place for place, one in enumerate(sizes) if one > highest[place]][-(most // 2) :]
    between = np.linspace(0, len(sizes) - 1, max(0, most - len(always) - len(rising))).astype(int).tolist()
    return sorted({*always, *rising, *between} & {*range(len(sizes))})


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

    def trace(self) -> AllocationTrace:
        """Return the trace of all steps."""
        return AllocationTrace(
            "".join(self._kinds),
            tuple(self._numbers),
            tuple(self._storage_bytes),
            tuple(self._operators),
        )
