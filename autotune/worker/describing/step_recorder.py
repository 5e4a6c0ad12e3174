"""Recording of a training step as traces: the graphs that run, in order, and what the script holds in between."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from ...predict.simulation import Simulation
from ...records.graph import ActivationGraph, SharedStorage, StepTrace, Stretch
from ..engines.graphs import Graph, Slot
from ..hooks.watch import is_of_parameter, storage_of
from .allocations import Allocations
from .allocations import Stretch as Counted
from .communication import Communication
from .root_inputs import BATCH

# A trace of more halves takes longer to simulate than a search has.
_MOST_EVENTS = 600
_NOTHING = Stretch(0, 0, 0)


@dataclass
class _Call:
    """A call of a graph: by storage what it was given, what it returned and what it saved; names of nodes."""

    graph: Graph
    given: dict[int, str]
    returned: dict[int, str] = field(default_factory=dict)
    saved: set[int] = field(default_factory=set)
    number: int = 0
    # Something that it saves, if possible what only it holds: gone when nothing can run its backward any more.
    own: StorageWeakRef | None = None


@dataclass
class _Trace:
    """A trace under way: its marks are those where each event begins and ends, and the one after the last."""

    calls: list[_Call] = field(default_factory=list)
    # The mark where the call of a root began, where that was seen.
    before: int | None = None
    # The largest that a call had.
    dimensions: dict[str, int] = field(default_factory=dict)
    events: list[int] = field(default_factory=list)
    begins: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    last_mark: int = 0
    # Of each storage that is handed on the stretches in which it was there, and the event that made it.
    seen: dict[int, set[int]] = field(default_factory=dict)
    references: dict[int, StorageWeakRef] = field(default_factory=dict)
    born: dict[int, int] = field(default_factory=dict)
    # Of each call the stretches in which what it saves was there.
    alive: dict[int, set[int]] = field(default_factory=dict)

    @property
    def zero(self) -> int:
        """Return the mark that bytes are counted from."""
        return self.begins[0] if self.before is None else self.before

    @property
    def pending(self) -> list[int]:
        return [call for call in range(len(self.calls)) if -1 - call not in self.events]


class StepRecorder:
    """Told what runs in a step; afterwards ``traces`` has one for each kind of way through the graphs."""

    def __init__(self, gradient_bytes: Callable[[], int], lasting: Iterable[torch.Tensor]) -> None:
        self._gradient_bytes = gradient_bytes
        self._lasting = {key for tensor in lasting if (key := _key(tensor)) is not None}
        self._allocations: Allocations | None = None
        # At each mark, what the gradients of parameters take, and whether processes have communicated up to it.
        self._gradients: list[int] = []
        self._communicated: list[bool] = []
        self._communication = Communication(self.mark, lambda: self.mark(communicated=True))
        self._done: list[_Trace] = []
        self._trace: _Trace | None = None
        self._before: int | None = None

    def mark(self, *, communicated: bool = False) -> int:
        """End a stretch of the counted allocations, and return the number of the mark."""
        if self._allocations is not None:
            self._allocations.mark()
            self._gradients.append(self._gradient_bytes())
            self._communicated.append(communicated)
        return len(self._gradients) - 1

    def call_begins(self) -> None:
        """Note that a root is called."""
        if self._trace is None:
            self._count()
            self._before = self.mark()

    def hooks_done(self) -> None:
        """Note that the hooks have run at the end of a module's call."""
        # What sharding frees last in its hook comes after what was seen of it.
        if self._trace is not None and self._communicated[-1]:
            self.mark(communicated=True)

    def forward_begins(self, graph: Graph, arguments: Sequence[Any], dimensions: Mapping[str, int]) -> None:
        """Note that a forward is called, with dimensions of these sizes."""
        self._count()
        trace = self._trace = self._trace or _Trace(before=self._before)
        for name, size in dimensions.items():
            trace.dimensions[name] = max(size, trace.dimensions.get(name, 0))
        nodes = graph.current.forward.graph.find_nodes(op="placeholder")
        self._begin(trace, len(trace.calls))
        given: dict[int, str] = {}
        for node, value in zip(nodes, arguments, strict=True):
            key = _key(value)
            # Parameters that were gathered are none of those that last.
            if key is None or key in self._lasting or key in given or is_of_parameter(value):
                continue
            # The script made it in the stretch before; what the first call is given was there before all.
            if key not in trace.born and len(trace.events) > 1:
                self._track(trace, key, value, len(trace.events) - 2)
            if key in trace.born:
                given[key] = node.name
        trace.calls.append(_Call(graph, given))

    def forward_ended(self, graph: Graph, results: Sequence[Any]) -> None:
        """Note that a forward has returned."""
        trace = self._trace
        assert trace is not None
        assert self._allocations is not None
        call, number = trace.calls[-1], graph.joint.num_forward_outputs
        names = [getattr(node, "name", "") for node in graph.joint.outputs[:number]]
        inputs = call.given.keys() | self._lasting
        for name, value in zip(names, results[:number], strict=True):
            key = _key(value)
            if name and key is not None and key not in inputs:
                call.returned.setdefault(key, name)
                if key not in trace.born:
                    self._track(trace, key, value, len(trace.events) - 1)
        has_own = False
        for value in results[number:]:
            key = _key(value)
            if key is not None:
                call.saved.add(key)
                is_own = key not in trace.born
                if key not in self._lasting and (call.own is None or (is_own and not has_own)):
                    call.own, has_own = storage_of(value), is_own
        call.number = graph.number_of(results)
        trace.ends.append(self.mark())

    def backward_begins(self, graph: Graph, number: int) -> None:
        """Note that the backward of the forward with this number is called."""
        trace = self._trace
        if trace is None:
            return
        pending = [call for call in trace.pending if trace.calls[call].graph is graph]
        same = [call for call in pending if trace.calls[call].number == number]
        if not pending:
            seen = any(call.graph is graph for call in trace.calls)
            raise ValueError("a backward runs twice" if seen else "a backward's forward ran in another optimizer step")
        self._begin(trace, -1 - (same or pending)[-1])

    def backward_ended(self) -> None:
        """Note that a backward has returned."""
        if self._trace is not None:
            self._trace.ends.append(self.mark())

    def script_backward_ended(self) -> None:
        """Note that the script's backward has returned: a trace ends where no forward is under way."""
        trace = self._trace
        if trace is None or not trace.events:
            return
        self._look(trace)
        if not any(len(trace.events) - 1 in trace.alive.get(call, ()) for call in trace.pending):
            self._close(trace)

    def step_ended(self) -> None:
        """Note that the step is over."""
        if self._trace is not None and self._trace.events:
            self._look(self._trace)
            self._close(self._trace)
        self.give_up()

    def give_up(self) -> None:
        """Count no further."""
        self._trace = None
        self._communication.stop()
        if self._allocations is not None:
            self._allocations.__exit__(None, None, None)

    def traces(
        self, graphs: Mapping[Slot, ActivationGraph], dimensions: Mapping[str, int]
    ) -> tuple[tuple[StepTrace, ...], float]:
        """Return the traces, each unlike the others, and the error of their peaks as a fraction of the measured one.

        Raises:
            ValueError: something ran that is not among the graphs, or more of it than can be simulated.
        """
        numbers = {slot: number for number, slot in enumerate(graphs)}
        found: dict[tuple[object, ...], tuple[StepTrace, float]] = {}
        for trace in self._done:
            if any(call.graph.slot not in numbers for call in trace.calls):
                raise ValueError("a graph ran that did not run in the step before")
            calls = tuple(numbers[call.graph.slot] for call in trace.calls)
            key = calls, tuple(trace.events), bool(self._gradients[trace.zero])
            if key not in found:
                # A graph's nodes and edges are not as many as in the step before.
                sizes = {**dimensions, **trace.dimensions}
                found[key] = self._finished(trace, calls, list(graphs.values()), sizes)
        if sum(len(trace.events) for trace, _ in found.values()) > _MOST_EVENTS:
            raise ValueError("a step runs more halves of graphs than can be simulated in a search's time")
        return tuple(trace for trace, _ in found.values()), max((error for _, error in found.values()), default=0.0)

    def _count(self) -> None:
        if self._allocations is None:
            self._allocations = Allocations()
            self._allocations.__enter__()
            self._communication.watch()

    def _begin(self, trace: _Trace, event: int) -> None:
        if trace.events:
            self._look(trace)
        trace.begins.append(self.mark())
        trace.events.append(event)

    def _close(self, trace: _Trace) -> None:
        trace.last_mark = self.mark()
        self._done.append(trace)
        self._trace = self._before = None

    def _track(self, trace: _Trace, key: int, value: torch.Tensor, born: int) -> None:
        reference = storage_of(value)
        assert reference is not None
        trace.references[key], trace.born[key] = reference, born
        trace.seen[key] = set()

    def _look(self, trace: _Trace) -> None:
        """See what is there at the end of the stretch after the latest event."""
        stretch = len(trace.events) - 1
        for key, reference in trace.references.items():
            if not reference.expired():
                trace.seen[key].add(stretch)
        for call in trace.pending:
            own = trace.calls[call].own
            if own is None or not own.expired():
                trace.alive.setdefault(call, set()).add(stretch)

    def _finished(
        self, trace: _Trace, calls: tuple[int, ...], graphs: list[ActivationGraph], dimensions: Mapping[str, int]
    ) -> tuple[StepTrace, float]:
        """Add to a trace what the script holds: what was counted, minus what the graphs account for."""
        assert self._allocations is not None
        unfinished = tuple((call, max(trace.alive.get(call, {trace.events.index(call)}))) for call in trace.pending)
        bare = StepTrace(
            calls=calls,
            events=tuple(trace.events),
            stretches=(_NOTHING,) * len(trace.events),
            shared=tuple(_shared(trace, calls, graphs, dict(unfinished))),
            unfinished=unfinished,
            gradients=self._gradients[trace.zero],
        )
        (accounted,) = Simulation(graphs, [bare]).accounted(dimensions)
        counted, (exchanged, own) = self._allocations.stretches, self._exchanged()
        unseen = self._unseen(own)
        zero, first = trace.zero, trace.begins[0]
        began = counted[zero].end - unseen[zero]
        growing = {BATCH, *(name for graph in graphs for name, _ in graph.growing)}
        doubled = {name: value * (1 + (name in growing)) for name, value in dimensions.items()}
        (at_twice,) = Simulation(graphs, [bare]).accounted(doubled)
        stretches, returned = [], 0
        for place in range(len(trace.events)):
            begin, end = trace.ends[place], (*trace.begins, trace.last_mark)[place + 1]
            levels = [counted[mark].end - unseen[mark] - began for mark in (begin, end)]
            parts = {mark: counted[mark].peak - unseen[mark - 1] - began for mark in range(begin + 1, end + 1)}
            late = [mark for mark in parts if own[mark - 1] < own[begin]]
            early = {mark: peak for mark, peak in parts.items() if mark not in late}
            # Above what the graphs account for; of that parameters' gradients, also those that autograd still holds.
            rest = [
                levels[0] - accounted.kept[place] - accounted.returned[place],
                levels[1] - accounted.kept[place] - accounted.given[place],
            ]
            fixed = [exchanged[mark] - exchanged[zero] for mark in (begin, end)]
            gradients = [fixed[0] + _in_gradients(rest[0] - fixed[0], own[begin] - own[zero], returned)]
            # What does not grow with the batch are gradients of parameters.
            returned += max(0, 2 * accounted.returned[place] - at_twice.returned[place])
            gradients.append(fixed[1] + _in_gradients(rest[1] - fixed[1], own[end] - own[zero], returned))
            freed = gradients[0] - gradients[1]
            top = max([begin, *early], key=lambda mark: early.get(mark, levels[0]))
            fixed_rise = 0
            if top != begin:
                fixed_rise = exchanged[top - 1] + own[top - 1] - exchanged[begin] - own[begin]
            if top != begin and self._communicated[top]:
                fixed_rise += early[top] - (counted[top - 1].end - unseen[top - 1] - began)
            stretches.append(
                Stretch(
                    begin=rest[0] - gradients[0],
                    rise=early.get(top, levels[0]) - levels[0],
                    end=rest[1] - gradients[1],
                    gradients_begin=gradients[0],
                    gradients_end=gradients[1],
                    late_rise=max(parts[mark] for mark in late) - levels[0] + freed if late else None,
                    fixed_rise=fixed_rise if any(self._communicated[mark] for mark in parts) else None,
                )
            )
        start_fixed = exchanged[first] - exchanged[zero]
        start = counted[first].end - unseen[first] - began - start_fixed
        finished = replace(
            bare, stretches=tuple(stretches), results=accounted.results, start=start, start_fixed=start_fixed
        )
        highest = _peak(counted, unseen, zero, trace.last_mark) - began
        simulated = Simulation(graphs, [finished]).run(dimensions=dimensions).peak_bytes
        return finished, abs(simulated - highest) / highest if highest > 0 else 0.0

    def _exchanged(self) -> tuple[list[int], list[int]]:
        """Return at each mark what communication holds, and what gradients of parameters take beside that."""
        assert self._allocations is not None
        ends, gradients = [stretch.end for stretch in self._allocations.stretches], self._gradients
        held, inside = [0], [0]
        for mark in range(1, len(gradients)):
            grown = (ends[mark] - ends[mark - 1], gradients[mark] - gradients[mark - 1])
            held.append(held[-1] + self._communicated[mark] * grown[0])
            inside.append(inside[-1] + self._communicated[mark] * grown[1])
        return held, [here - within for here, within in zip(gradients, inside, strict=True)]

    def _unseen(self, gradients: Sequence[int]) -> list[int]:
        """Return at each mark what gradients of before the step have freed without being seen to."""
        assert self._allocations is not None
        if self._allocations.sees_earlier:
            return [0] * len(gradients)
        return [gradients[0] - least for least in itertools.accumulate(gradients, min)]


def _shared(
    trace: _Trace, calls: tuple[int, ...], graphs: list[ActivationGraph], unfinished: Mapping[int, int]
) -> Iterable[SharedStorage]:
    """Give the storages that are handed on, and how long the script itself holds them."""
    places = [{name: place for place, name in enumerate(graph.names)} for graph in graphs]
    ends = {call: trace.events.index(-1 - call) - 1 for call in range(len(calls)) if -1 - call in trace.events}
    for key, born in trace.born.items():
        uses, last_use = [], born - 1
        explained: set[int] = set()
        for number, call in enumerate(trace.calls):
            begins = trace.events.index(number)
            name = call.returned.get(key) or call.given.get(key)
            graph, place = graphs[calls[number]], places[calls[number]]
            if name in place and len(graph.storages[place[name]]) == 1:
                uses.append((number, graph.storages[place[name]][0]))
            if key in call.given:
                last_use = max(last_use, begins - 1)
            if key in call.saved:
                explained |= set(range(begins, ends.get(number, unfinished.get(number, begins)) + 1))
        held = max([last_use, *(stretch for stretch in trace.seen[key] if stretch not in explained)])
        if uses:
            yield SharedStorage(tuple(dict.fromkeys(uses)), born, held)


def _in_gradients(rest: int, assigned: int, returned: int) -> int:
    """Return how many of the bytes are gradients of parameters: those assigned, and others that backwards returned."""
    return assigned + max(0, min(rest - assigned, returned - max(0, assigned)))


def _peak(counted: Sequence[Counted], unseen: Sequence[int], begin: int, end: int) -> int:
    """Return the highest point from one mark to another, without what is freed unseen before the first of them."""
    peaks = (counted[mark].peak - unseen[mark - 1] for mark in range(begin + 1, end + 1))
    return max(counted[begin].end - unseen[begin], *peaks)


def _key(value: Any) -> int | None:
    reference = storage_of(value) if isinstance(value, torch.Tensor) else None
    return None if reference is None else reference.cdata
