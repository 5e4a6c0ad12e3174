"""What a configuration saves, allocates at its peak and recomputes, from the activation graphs alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ..records import COMPROMISED, ActivationGraph, Plan, Quota, level_plans
from .buffers import Buffers
from .formulas import Formula
from .lifetimes import Lifetimes, Peak
from .partition import Partitioner, Split, Tags

__all__ = ["Simulated", "Simulation", "interpolated"]


@dataclass(frozen=True)
class Simulated:
    """One configuration, simulated.

    ``saved_bytes`` go from forward to backward in one training call; ``peak_bytes`` is the highest point of what the
    call allocates on top of what there was before it (gradients included, what the optimizer needs not).
    ``recompute_time_s`` is the sum of the recomputed nodes' times in one call, ``num_recomputed`` their number.
    ``peak_at`` names the node that ran at the peak (or the script itself, after it) and the phase, and ``unmatched``
    the plans that the graphs have no cluster for.
    """

    saved_bytes: int
    peak_bytes: int
    recompute_time_s: float
    num_recomputed: int
    peak_at: str
    unmatched: tuple[Plan, ...] = ()


@dataclass(frozen=True)
class Levels:
    """Bytes that a graph accounts for when its forward has ended, and when its backward begins and has ended."""

    forward_end: int
    backward_begin: int
    backward_end: int


@dataclass(frozen=True)
class _Halves:
    """One graph's two halves, each with what the script does after it, and what is alive between them."""

    forward: Peak
    backward: Peak
    between_bytes: int
    saved_bytes: int
    recomputed: list[int]


class Simulation:
    """Simulates configurations of the graphs of one script. Setting it up takes longer than a run of it."""

    def __init__(self, graphs: Sequence[ActivationGraph]) -> None:
        self._graphs = [_Graph(graph) for graph in graphs]
        self._layers = [layer.cluster_id for graph in graphs for layer in graph.layers]
        self._compromised = [
            each.cluster_id for graph in graphs for each in graph.occurrences if each.strategy == COMPROMISED
        ]

    def run(self, plans: Iterable[Plan] = (), level: int = 0, *, dimensions: Mapping[str, int]) -> Simulated:
        """Simulate plans and level at the given sizes; ``dimensions`` has a value for each name in the formulas."""
        quota = Quota((*plans, *level_plans(level, self._layers, self._compromised)))
        halves = [graph.run(graph.partitioner.tags(quota), dimensions) for graph in self._graphs]
        peak_bytes, peak_at, before = 0, "", 0
        # Each forward runs on top of what the ones before it left, its own earlier calls among them; each backward too.
        for graph, own in zip(self._graphs, halves, strict=True):
            before += int((graph.graph.calls - 1) * own.between_bytes)
            for phase, peak in (("forward", own.forward), ("backward", own.backward)):
                if before + peak.bytes > peak_bytes:
                    name = "the script" if peak.node is None else graph.graph.names[peak.node]
                    peak_bytes, peak_at = before + peak.bytes, f"{name}, {phase}"
            before += own.between_bytes
        times = [
            graph.graph.calls * sum(graph.graph.times_ns[node] for node in own.recomputed)
            for graph, own in zip(self._graphs, halves, strict=True)
            if graph.graph.times_ns
        ]
        return Simulated(
            saved_bytes=sum(
                int(own.saved_bytes * graph.graph.calls) for graph, own in zip(self._graphs, halves, strict=True)
            ),
            peak_bytes=peak_bytes,
            recompute_time_s=sum(times) / 1e9,
            num_recomputed=sum(len(own.recomputed) for own in halves),
            peak_at=peak_at,
            unmatched=quota.unmatched(),
        )

    def levels(self, dimensions: Mapping[str, int]) -> Levels:
        """What the first graph, without plans, holds at the ends of its halves."""
        graph = self._graphs[0]
        halves = graph.run(graph.partitioner.tags(Quota(())), dimensions)
        return Levels(halves.forward.end_bytes, halves.between_bytes, halves.backward.end_bytes)

    def new_bytes(self, graph: int, node: int, dimensions: Mapping[str, int]) -> int:
        """What the results of a node of a graph allocate."""
        return self._graphs[graph].new_bytes(node, dimensions)

    def splits(self, plans: Iterable[Plan] = ()) -> list[Split]:
        """How the graphs are split under plans, in the graphs' own node numbers."""
        quota = Quota(plans)
        return [graph.partitioner.split(graph.partitioner.tags(quota)) for graph in self._graphs]


@dataclass(frozen=True)
class _Sizes:
    """Values at some dimensions: of each formula, each storage, those that the step allocates, and each workspace."""

    values: list[int]
    all: list[int]
    own: list[int]
    workspace: dict[int, int]


class _Graph:
    """One graph with what does not depend on the configuration worked out."""

    def __init__(self, graph: ActivationGraph) -> None:
        self.graph = graph
        self.partitioner = Partitioner(graph)
        self._lifetimes = Lifetimes(graph)
        self._buffers = Buffers(graph) if graph.lowering else None
        self._formulas = [Formula(text) for text in graph.formulas]
        self._primals = _storages(graph, graph.primals)
        self._lasting = self._primals | _storages(graph, graph.constants) | set(graph.elsewhere)
        # Inputs that the backward gets as copies.
        self._copied = {row[0]: row[2] for row in graph.copies if row[0] == row[1]}
        self._known: dict[tuple[tuple[str, int], ...], _Sizes] = {}

    def run(self, tags: Tags, dimensions: Mapping[str, int]) -> _Halves:
        graph, split = self.graph, self.partitioner.split(tags)
        sizes = self._sizes(dimensions)
        saved = _storages(graph, split.saved)
        states = len(split.redrawn) * graph.rng_state_bytes
        live_states = 0 if graph.rng_state_elsewhere else states
        # What the compiler recomputes in any case is no part of a plan's price.
        both, spared = set(split.forward), {*graph.getitems, *graph.always}
        recomputed = [node for node in split.backward if node in both and node not in spared]
        run = self._lifetimes.run
        if self._buffers is not None:
            run = partial(self._buffers.run, all_sizes=sizes.all, values=sizes.values)
        forward = run(
            split.forward,
            given=graph.primals,
            outputs=(*graph.forward_outputs, *split.saved),
            sizes=sizes.own,
            workspace=lambda node: sizes.workspace.get(node, 0),
            redrawn=split.redrawn,
            start_bytes=0,
            is_forward=True,
        )
        results = _storages(graph, graph.forward_outputs)
        live = saved | results | _storages(graph, graph.tangents)
        live.update(self._copied[node] for node in split.saved if node in self._copied)
        between_bytes = sum(sizes.own[storage] for storage in live) + live_states
        # What the forward returned belongs to the script: the backward does not free it.
        lasting = results | _storages(graph, graph.tangents) if graph.holds_tangents else results
        backward_sizes = sizes.own
        if lasting:
            backward_sizes = list(sizes.own)
            for storage in lasting:
                backward_sizes[storage] = 0
        backward = run(
            split.backward,
            given=(*split.saved, *graph.tangents),
            outputs=graph.backward_outputs,
            sizes=backward_sizes,
            workspace=lambda node: sizes.workspace.get(node, 0),
            redrawn=split.redrawn,
            start_bytes=between_bytes,
            is_forward=False,
        )
        forward, backward = self._with_boundary(forward, backward, sizes, dimensions)
        return _Halves(
            forward=forward,
            backward=backward,
            between_bytes=between_bytes,
            saved_bytes=sum(sizes.all[storage] for storage in saved - self._primals) + states,
            recomputed=recomputed,
        )

    def new_bytes(self, node: int, dimensions: Mapping[str, int]) -> int:
        """What the results of a node allocate: the storages that none of its inputs lie in."""
        graph, sizes = self.graph, self._sizes(dimensions)
        if node in graph.getitems:
            return 0
        held = _storages(graph, graph.inputs[node])
        return sum(sizes.own[storage] for storage in set(graph.storages[node]) - held)

    def _with_boundary(
        self, forward: Peak, backward: Peak, sizes: _Sizes, dimensions: Mapping[str, int]
    ) -> tuple[Peak, Peak]:
        """Add what the script itself holds around the graph, in proportion to what the forward gives it."""
        boundary = self.graph.boundary
        if boundary is None:
            return forward, backward
        results = _storages(self.graph, self.graph.forward_outputs)
        scale = 1.0
        batch, measured_at = dimensions.get("batch"), boundary.batch_size
        if measured_at is None and self.graph.batch_sizes:
            # Facts of before it was written down: workspaces were measured up to it.
            measured_at = self.graph.batch_sizes[-1]
        if batch is not None and measured_at is not None:
            there = self._sizes({**dimensions, "batch": measured_at})
            given, calibrated = (sum(each.own[storage] for storage in results) for each in (sizes, there))
            scale = given / calibrated if calibrated else 1.0
        freed = boundary.freed_gradients
        between = forward.end_bytes + max(int(scale * boundary.loss), int(scale * boundary.loss_backward) - freed)
        if between > forward.bytes:
            forward = Peak(between, None, forward.end_bytes)
        highest = backward.bytes + int(scale * boundary.at_backward) - freed
        end = backward.end_bytes + int(scale * boundary.at_end) - freed
        after = end + boundary.after
        backward = Peak(max(highest, after), backward.node if highest >= after else None, end)
        return forward, backward

    def _sizes(self, dimensions: Mapping[str, int]) -> _Sizes:
        key = tuple(sorted(dimensions.items()))
        known = self._known.get(key)
        if known is None:
            values = [formula(dimensions) for formula in self._formulas]
            all_ = [values[number] for number in self.graph.sizes]
            own = [0 if storage in self._lasting else size for storage, size in enumerate(all_)]
            at, batch = self.graph.batch_sizes, dimensions.get("batch")
            workspace = {row[0]: interpolated(at, row[1:], batch) for row in self.graph.workspace}
            known = self._known[key] = _Sizes(values, all_, own, workspace)
        return known


def interpolated(batch_sizes: Sequence[int], measured: Sequence[int], batch: int | None) -> int:
    """Bytes at a batch size: piecewise linear through what was measured at others, the last piece going on."""
    at = batch_sizes
    if batch is None or len(at) < 2:
        return measured[-1]
    piece = next((number for number in range(len(at) - 2) if batch <= at[number + 1]), len(at) - 2)
    slope = (measured[piece + 1] - measured[piece]) / (at[piece + 1] - at[piece])
    return max(0, round(measured[piece] + slope * (batch - at[piece])))


def _storages(graph: ActivationGraph, nodes: Iterable[int]) -> set[int]:
    return {storage for node in nodes for storage in graph.storages[node]}
