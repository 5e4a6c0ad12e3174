"""Simulation of a configuration's saved bytes, peak and recomputation from the activation graphs alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..records.graph import ActivationGraph, SharedStorage, StepTrace, Stretch
from ..records.plan import COMPROMISED, Plan, Quota, level_plans
from .formulas import Formula
from .lifetimes import highest_point
from .memory_timeline import Blocks, MemoryTimeline
from .partition import GraphSplitter, Split


@dataclass(frozen=True)
class Simulated:
    """One configuration, simulated.

    ``saved_bytes`` go from forward to backward in one training call; ``peak_bytes`` is the highest point of what the
    call allocates on top of what there was before it (gradients included, what the optimizer needs not).
    ``recompute_time_s`` is the sum of the recomputed nodes' times in one call, ``unmatched`` the plans that the graphs
    have no cluster for. ``gradient_bytes`` is what gradients take when the trace with this peak begins.
    """

    saved_bytes: int
    peak_bytes: int
    recompute_time_s: float
    unmatched: tuple[Plan, ...] = ()
    gradient_bytes: int = 0


@dataclass(frozen=True)
class Kept:
    """The bytes that the calls of one graph hand to the backward in one training call, by the node that makes them.

    ``bytes`` has the nodes that something is kept of. ``recomputed`` are the nodes that the backward runs again.
    """

    bytes: Mapping[int, int]
    recomputed: frozenset[int]


@dataclass(frozen=True)
class Accounted:
    """Bytes of a trace that its graphs account for, in each stretch; ``results`` are what all forwards return.

    ``kept`` is there all through it. The half before it has ``returned`` gradients, the one after is ``given`` some.
    """

    kept: list[int]
    returned: list[int]
    given: list[int]
    results: int


class Simulation:
    """Simulates configurations of the graphs of one script, as the traces ran them.

    Without traces each graph's calls run one after the other, and then their backwards.
    """

    def __init__(self, graphs: Sequence[ActivationGraph], traces: Sequence[StepTrace] = ()) -> None:
        self._graphs = [_Graph(graph) for graph in graphs]
        self._traces = [_Trace(trace, self._graphs) for trace in traces or [_plain_trace(self._graphs)]]
        # Of those that differ in the gradients alone that they find, the one with the fewest.
        least: dict[tuple[tuple[int, ...], ...], _Trace] = {}
        for trace in sorted(self._traces, key=lambda own: own.trace.gradients):
            least.setdefault((trace.trace.calls, trace.trace.events), trace)
        self._first_traces = list(least.values())
        self._layers = [layer.cluster_id for graph in graphs for layer in graph.layers]
        self._compromised = [
            each.cluster_id for graph in graphs for each in graph.occurrences if each.strategy == COMPROMISED
        ]

    def run(
        self, plans: Iterable[Plan] = (), level: int = 0, *, dimensions: Mapping[str, int], accumulates: bool = True
    ) -> Simulated:
        """Simulate plans and level."""
        quota = self._quota(plans, level)
        splits = self._split(quota)
        traces = self._traces if accumulates else self._first_traces
        peaks = [(trace.run(splits, dimensions), trace.trace.gradients) for trace in traces]
        peak, gradients = max(peaks, key=sum)
        saved_bytes, recompute_ns = 0, 0.0
        for graph, split in zip(self._graphs, splits, strict=True):
            calls, times_ns = graph.graph.calls, graph.graph.times_ns
            saved_bytes += int(graph.kept(split, dimensions).total() * calls)
            if times_ns:
                recompute_ns += calls * sum(times_ns[node] for node in graph.recomputed(split))
        return Simulated(saved_bytes, peak, recompute_ns / 1e9, quota.unmatched(), gradients)

    def kept(self, plans: Iterable[Plan] = (), level: int = 0, *, dimensions: Mapping[str, int]) -> list[Kept]:
        """Return what each graph hands to the backward: all together are the ``saved_bytes`` of ``run``."""
        found = []
        for graph, split in zip(self._graphs, self._split(self._quota(plans, level)), strict=True):
            # A graph may run 1.5 times in a call. Rounded one by one, the nodes would not add up.
            kept, total, calls = {}, 0, graph.graph.calls
            for node, size in sorted(graph.kept(split, dimensions).items()):
                kept[node] = int((total + size) * calls) - int(total * calls)
                total += size
            found.append(Kept(kept, frozenset(graph.recomputed(split))))
        return found

    def timeline(
        self, plans: Iterable[Plan] = (), level: int = 0, *, dimensions: Mapping[str, int], accumulates: bool = True
    ) -> MemoryTimeline:
        """Return every moment of the trace whose peak ``run`` gives, with the same arguments."""
        splits = self._split(self._quota(plans, level))
        traces = self._traces if accumulates else self._first_traces
        highest = max(traces, key=lambda trace: trace.run(splits, dimensions) + trace.trace.gradients)
        timeline = MemoryTimeline([graph.graph for graph in self._graphs])
        highest.run(splits, dimensions, timeline)
        return timeline

    def accounted(self, dimensions: Mapping[str, int]) -> list[Accounted]:
        """Return for each trace what the graphs account for without plans."""
        splits = self._split(Quota(()))
        return [trace.accounted(splits, dimensions) for trace in self._traces]

    def new_bytes(self, graph: int, node: int, dimensions: Mapping[str, int]) -> int:
        """Return what the results of a node of a graph allocate."""
        return self._graphs[graph].new_bytes(node, dimensions)

    def _quota(self, plans: Iterable[Plan], level: int) -> Quota:
        return Quota((*plans, *level_plans(level, self._layers, self._compromised)))

    def _split(self, quota: Quota) -> list[Split]:
        return [graph.splitter.split(graph.splitter.tags(quota)) for graph in self._graphs]


@dataclass(frozen=True)
class _Sizes:
    """Bytes at some dimensions: of each storage, of those that the step allocates, and of each workspace."""

    all: list[int]
    own: list[int]
    workspace: dict[int, int]


class _Graph:
    """One graph, with what does not depend on the configuration."""

    def __init__(self, graph: ActivationGraph) -> None:
        self.graph = graph
        self.splitter = GraphSplitter(graph)
        # A node may hold a storage in several parts of a tuple; it is one holder.
        self._held = [tuple(dict.fromkeys(held)) for held in graph.storages]
        self._formulas = [Formula(text) for text in graph.formulas]
        self._primals = _storages(graph, graph.primals)
        self._makers = Blocks(graph).makers
        self.tangents = _storages(graph, graph.tangents)
        self.gradients = _storages(graph, graph.backward_outputs) - self._primals
        self.elsewhere = frozenset(graph.elsewhere)
        self.state_bytes = 0 if graph.rng_state_elsewhere else graph.rng_state_bytes
        self._lasting = self._primals | _storages(graph, graph.constants) | set(graph.elsewhere)
        self.results = _storages(graph, graph.forward_outputs) - self._lasting
        self._known: dict[tuple[tuple[str, int], ...], _Sizes] = {}

    def recomputed(self, split: Split) -> list[int]:
        """List the nodes that a split runs twice, but for what the compiler recomputes in any case."""
        both, spared = set(split.forward), {*self.graph.getitems, *self.graph.always}
        return [node for node in split.backward if node in both and node not in spared]

    def kept(self, split: Split, dimensions: Mapping[str, int]) -> Counter[int]:
        """Return the bytes that one call hands to its backward, by the node that makes them.

        A generator's state belongs to the node that draws again from it.
        """
        sizes, kept = self.sizes(dimensions).all, Counter[int]()
        for storage in _storages(self.graph, split.saved) - self._primals:
            kept[self._makers[storage]] += sizes[storage]
        for node in split.redrawn:
            kept[node] += self.graph.rng_state_bytes
        return kept

    def run(
        self,
        split: Split,
        dimensions: Mapping[str, int],
        start_bytes: int,
        timeline: MemoryTimeline | None,
        changed: Mapping[int, int] | None = None,
    ) -> int:
        """Run a half on top of what is there, and return its highest point: a backward where ``changed`` is given.

        ``changed`` is what a backward frees of the storages that are not, or not only, its own.
        """
        graph, sizes = self.graph, self.sizes(dimensions)
        given, outputs, own = graph.primals, (*graph.forward_outputs, *split.saved), sizes.own
        if changed is not None:
            given, outputs = (*split.saved, *graph.tangents), graph.backward_outputs
            own = [changed.get(storage, size) for storage, size in enumerate(sizes.own)]
            for storage in self.tangents if graph.holds_tangents else ():
                own[storage] = 0
        return highest_point(
            split.forward if changed is None else split.backward,
            inputs=graph.inputs,
            storages=self._held,
            given=given,
            outputs=outputs,
            sizes=own,
            workspace=sizes.workspace,
            redrawn=split.redrawn,
            state_bytes=self.state_bytes,
            start_bytes=start_bytes,
            is_forward=changed is None,
            timeline=timeline,
        )

    def returned_bytes(self, saved: set[int], dimensions: Mapping[str, int]) -> int:
        """Return what a backward has allocated of what it returns."""
        return self.own_bytes(self.gradients - saved - self.tangents - self.results, dimensions)

    def own_bytes(self, storages: Iterable[int], dimensions: Mapping[str, int]) -> int:
        """Return what storages take, apart from those that live longer anyway."""
        own = self.sizes(dimensions).own
        return sum(own[storage] for storage in storages)

    def new_bytes(self, node: int, dimensions: Mapping[str, int]) -> int:
        """Return what the results of a node allocate: the storages that none of its inputs lie in."""
        graph = self.graph
        if node in graph.getitems:
            return 0
        return self.own_bytes(set(graph.storages[node]) - _storages(graph, graph.inputs[node]), dimensions)

    def sizes(self, dimensions: Mapping[str, int]) -> _Sizes:
        key = tuple(sorted(dimensions.items()))
        known = self._known.get(key)
        if known is None:
            values = [formula(dimensions) for formula in self._formulas]
            all_ = [values[number] for number in self.graph.sizes]
            own = [0 if storage in self._lasting else size for storage, size in enumerate(all_)]
            at = self.graph.batch_sizes
            # Nodes and edges may be as many as those of another number of samples were.
            shares = [dimensions[name] / share for name, share in self.graph.growing]
            batch = max(shares, default=dimensions.get("batch"))
            workspace = {row[0]: interpolated(at, row[1:], batch) for row in self.graph.workspace}
            known = self._known[key] = _Sizes(all_, own, workspace)
        return known


class _Trace:
    """One trace with what does not depend on the configuration worked out."""

    def __init__(self, trace: StepTrace, graphs: Sequence[_Graph]) -> None:
        self.trace = trace
        self._graphs = [graphs[number] for number in trace.calls]
        # Of each call the shared storages by the number that they have in its graph.
        self._shared: list[dict[int, int]] = [{} for _ in trace.calls]
        for number, each in enumerate(trace.shared):
            for call, storage in each.uses:
                self._shared[call][storage] = number
        # In which stretches what a call saves is there, and of the script's own.
        ends = dict(trace.unfinished) | {-1 - event: place - 1 for place, event in enumerate(trace.events) if event < 0}
        self._pending: list[list[int]] = [[] for _ in trace.events]
        self._held: list[list[int]] = [[] for _ in trace.events]
        for place, event in enumerate(trace.events):
            if event >= 0:
                for stretch in range(place, ends.get(event, place) + 1):
                    self._pending[stretch].append(event)
        for number, each in enumerate(trace.shared):
            for stretch in range(each.born, each.held_until + 1):
                self._held[stretch].append(number)

    def run(
        self, splits: Sequence[Split], dimensions: Mapping[str, int], timeline: MemoryTimeline | None = None
    ) -> int:
        """Return the highest point, above what there is when it begins; ``timeline`` is told of every point."""
        trace, saved = self.trace, self._saved(splits)
        alive = self._alive(saved)
        kept = self._kept(splits, saved, alive, dimensions)
        # What the script holds grows with what the forwards give it.
        scale = self._result_bytes(dimensions) / trace.results if trace.results else 1.0
        highest, level = 0, trace.start_fixed + int(scale * trace.start)
        for place, (event, stretch) in enumerate(zip(trace.events, trace.stretches, strict=True)):
            call = event if event >= 0 else -1 - event
            graph, split = self._graphs[call], splits[trace.calls[call]]
            if timeline is not None:
                timeline.enter(
                    trace.calls[call],
                    saved=saved[call],
                    held=[
                        (trace.calls[other], saved[other], self._graphs[other].sizes(dimensions).own)
                        for other in (self._pending[place - 1] if place else ())
                    ],
                    gradients=trace.stretches[place - 1].gradients_end if place else 0,
                    returned=graph.gradients,
                    is_forward=event >= 0,
                )
            if event >= 0:
                peak, returned = graph.run(split, dimensions, level, timeline), 0
            else:
                level += graph.own_bytes(graph.tangents, dimensions)
                # Nothing is freed of what is held elsewhere too. What is not given is another copy, recomputed.
                changed = {
                    storage: self._size(number, dimensions)
                    if storage in saved[call] and number not in alive[place]
                    else 0
                    for storage, number in self._shared[call].items()
                    if storage in saved[call] or storage in graph.tangents
                }
                peak = graph.run(split, dimensions, level, timeline, changed)
                returned = graph.returned_bytes(saved[call], dimensions)
            begin = kept[place] + returned + stretch.gradients_begin + int(scale * stretch.begin)
            # What comes after the last backward is about parameters, and so are the copies that become their gradients.
            is_last = place == len(trace.events) - 1
            copied = max(0, stretch.gradients_end - stretch.gradients_begin)
            fixed = min(stretch.rise, copied) if stretch.fixed_rise is None else stretch.fixed_rise
            fixed = stretch.rise if is_last else fixed
            rise = fixed + int(scale * (stretch.rise - fixed))
            if timeline is not None:
                timeline.left(begin + rise, gradients=stretch.gradients_end)
            highest = max(highest, peak, begin + rise)
            if stretch.late_rise is not None:
                late = begin + stretch.gradients_end - stretch.gradients_begin + int(scale * stretch.late_rise)
                highest = max(highest, late)
            level = kept[place] + stretch.gradients_end + int(scale * stretch.end)
        return highest

    def accounted(self, splits: Sequence[Split], dimensions: Mapping[str, int]) -> Accounted:
        """Return what the graphs account for in each stretch."""
        saved = self._saved(splits)
        returned, given = ([0] * len(self.trace.events) for _ in range(2))
        for place, event in enumerate(self.trace.events):
            if event < 0:
                graph = self._graphs[-1 - event]
                returned[place] = graph.returned_bytes(saved[-1 - event], dimensions)
                given[place - 1] = graph.own_bytes(graph.tangents, dimensions)
        kept = self._kept(splits, saved, self._alive(saved), dimensions)
        return Accounted(kept, returned, given, self._result_bytes(dimensions))

    def _saved(self, splits: Sequence[Split]) -> list[set[int]]:
        """Return the storages that each call hands to its backward."""
        graphs = dict(zip(self.trace.calls, self._graphs, strict=True))
        of_graphs = {number: _storages(graph.graph, splits[number].saved) for number, graph in graphs.items()}
        return [of_graphs[number] for number in self.trace.calls]

    def _alive(self, saved: Sequence[set[int]]) -> list[set[int]]:
        """Return the shared storages that are there, stretch by stretch."""
        of_calls = [
            {number for storage, number in shared.items() if storage in own}
            for shared, own in zip(self._shared, saved, strict=True)
        ]
        return [
            set(held).union(*(of_calls[call] for call in pending))
            for held, pending in zip(self._held, self._pending, strict=True)
        ]

    def _kept(
        self,
        splits: Sequence[Split],
        saved: Sequence[set[int]],
        alive: Sequence[set[int]],
        dimensions: Mapping[str, int],
    ) -> list[int]:
        """Return for each stretch what calls under way have saved, and what the script holds of their results."""
        own = []
        for call, number in enumerate(self.trace.calls):
            graph = self._graphs[call]
            private = saved[call] - self._shared[call].keys()
            own.append(graph.own_bytes(private, dimensions) + len(splits[number].redrawn) * graph.state_bytes)
        shared = [self._size(number, dimensions) for number in range(len(self.trace.shared))]
        return [
            sum(own[call] for call in pending) + sum(shared[number] for number in there)
            for pending, there in zip(self._pending, alive, strict=True)
        ]

    def _size(self, number: int, dimensions: Mapping[str, int]) -> int:
        # What is an input of its graph is allocated all the same.
        call, storage = self.trace.shared[number].uses[0]
        graph = self._graphs[call]
        return 0 if storage in graph.elsewhere else graph.sizes(dimensions).all[storage]

    def _result_bytes(self, dimensions: Mapping[str, int]) -> int:
        return sum(graph.own_bytes(graph.results, dimensions) for graph in self._graphs)


def _plain_trace(graphs: Sequence[_Graph]) -> StepTrace:
    """Run each graph's calls one after the other, then their backwards, with nothing held around them."""
    calls = [number for number, graph in enumerate(graphs) for _ in range(max(1, round(graph.graph.calls)))]
    events = [*range(len(calls)), *(-1 - call for call in reversed(range(len(calls))))]
    shared = [
        SharedStorage(((call, storage),), call, len(events) - 1)
        for call, number in enumerate(calls)
        for storage in sorted(graphs[number].results)
    ]
    return StepTrace(tuple(calls), tuple(events), (Stretch(0, 0, 0),) * len(events), tuple(shared))


def interpolated(batch_sizes: Sequence[int], measured: Sequence[int], batch: float | None) -> int:
    """Return bytes at a batch size: piecewise linear through what was measured at others, the last piece going on."""
    at = batch_sizes
    if batch is None or len(at) < 2:
        return measured[-1]
    piece = next((number for number in range(len(at) - 2) if batch <= at[number + 1]), len(at) - 2)
    slope = (measured[piece + 1] - measured[piece]) / (at[piece + 1] - at[piece])
    return max(0, round(measured[piece] + slope * (batch - at[piece])))


def _storages(graph: ActivationGraph, nodes: Iterable[int]) -> set[int]:
    return {storage for node in nodes for storage in graph.storages[node]}
