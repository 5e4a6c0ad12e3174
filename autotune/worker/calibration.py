"""Calibrating activation graphs in the training process: each node's workspace, and what the script holds around.

A graph's own halves are run once more, node by node, on inputs of the script's step whose batch is cut to a quarter
and to a half, and on the whole, and operators that need a workspace alone on twice and four times the batch: at the
beginning of a forward, so that it takes no more memory than the step, but for copies of the images of one convolution,
where a compiler lays them out with their channels last.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sympy
import torch

from ..predict import Simulation, interpolated
from ..records import ALL, RECOMPUTE, ActivationGraph, Boundary, Plan, Quota
from .allocations import Allocations
from .engines.graphs import Graph
from .halves import Halves, sizes_of
from .meters import uses_cuda
from .plans.export import export_graph, obstacle
from .plans.partition import JointGraph
from .workspace import as_inductor_lays_out, as_traced, workspaces

__all__ = ["Calibrator", "calibrated"]

# Torch traces sizes as symbols under the assumption that they are at least this.
_SMALLEST_BATCH = 2
# The forward begins and ends, the script's backward begins, the graph's begins and ends, the script's ends.
_MARKS_OF_A_STEP = 6
# Two points make a line; more, as the scratch memory of bf16 kernels grows in steps and then no more.
_PARTS_OF_BATCH = (4, 2, 1)
_LARGER_BATCHES = (2, 4)
_HALVES = 2


class Calibrator:
    """Watches one training step: calibrates each graph as its forward begins, then the script around it.

    What goes wrong is kept as ``reason`` and never raised into the script; ``graphs`` then lacks that graph.

    Args:
        names: what the symbols of the graphs' sizes are called.
        gradient_bytes: what the gradients of the script's parameters take at the moment.
    """

    def __init__(
        self, names: Mapping[sympy.Symbol, sympy.Symbol], gradient_bytes: Callable[[], int] = lambda: 0
    ) -> None:
        self.graphs: dict[tuple[str, int], ActivationGraph] = {}
        self.dimensions: dict[str, int] = {}
        self.error: float | None = None
        self.reason = ""
        self._names = names
        self._gradient_bytes = gradient_bytes
        self._seen: list[tuple[str, int]] = []
        self._step: Allocations | None = None
        self._gradients: list[int] = []

    def forward_begins(self, graph: Graph, arguments: Sequence[Any]) -> None:
        """Calibrate a graph that is seen for the first time, and count what the step itself allocates."""
        if self._is_elsewhere():
            return
        if self._step is not None:
            # Another graph runs before the backward of the first: only what a single one leaves to the script is told.
            step, self._step = self._step, None
            self._try(lambda: step.__exit__(None, None, None))
        if graph.slot not in self._seen:
            self._calibrate(graph, arguments)
        self._seen.append(graph.slot)
        if len(self._seen) == 1 and not self.reason:
            self._step = Allocations()
            self._try(self._step.__enter__)
        self._mark()

    def forward_ended(self) -> None:
        """A forward has returned."""
        if not self._is_elsewhere():
            self._mark()

    def script_backward_begins(self) -> None:
        """The script begins its backward."""
        if not self._is_elsewhere():
            self._mark()

    def backward_begins(self) -> None:
        """A graph's backward is called."""
        self._mark()

    def backward_ended(self) -> None:
        """A graph's backward has returned."""
        self._mark()

    def step_ended(self) -> None:
        """The script's backward has returned, or its step is over: work out what it holds around a single graph."""
        if self._is_elsewhere():
            return
        self._mark()
        step, self._step = self._step, None
        if step is None:
            return
        self._try(lambda: step.__exit__(None, None, None))
        if len(self._seen) == 1 and len(step.stretches) == _MARKS_OF_A_STEP and self._seen[0] in self.graphs:
            self._measure_boundary(step)

    def _is_elsewhere(self) -> bool:
        """Whether this is not the main thread: torch's profiler can crash where two threads switch it on and off."""
        if threading.current_thread() is threading.main_thread():
            return False
        self.reason = self.reason or "the script runs its model in another thread than its main one"
        return True

    def _mark(self) -> None:
        if self._step is not None:
            self._try(self._step.mark)
            self._gradients.append(self._gradient_bytes())

    def _measure_boundary(self, step: Allocations) -> None:
        # Gradients that the script empties on the way to its backward: that does not grow with the batch.
        freed = self._gradients[0] - self._gradients[3]
        unseen = 0 if step.sees_earlier else freed
        _, _, loss, loss_backward, backward, after = step.stretches
        (slot,) = self._seen
        graph = self.graphs[slot]
        # The step ran node by node, not as generated code would, which copies what it hands on.
        levels = Simulation([replace(graph, lowering="", copies=())]).levels(self.dimensions)
        boundary = Boundary(
            loss=loss.peak - levels.forward_end,
            loss_backward=loss_backward.peak - unseen + freed - levels.forward_end,
            at_backward=loss_backward.end - unseen + freed - levels.backward_begin,
            at_end=backward.end - unseen + freed - levels.backward_end,
            after=after.peak - backward.end,
            gradients=self._gradients[0],
            freed_gradients=freed,
            batch_size=self.dimensions.get("batch"),
        )
        self.graphs[slot] = graph = replace(graph, boundary=boundary)
        if graph.lowering:
            return
        before = [stretch.peak for stretch in step.stretches[:3]]
        highest = max(*before, *(stretch.peak - unseen for stretch in step.stretches[3:]))
        simulated = Simulation([graph]).run(dimensions=self.dimensions)
        if highest:
            self.error = max(self.error or 0.0, abs(simulated.peak_bytes - highest) / highest)

    def _calibrate(self, graph: Graph, arguments: Sequence[Any]) -> None:
        def measure() -> None:
            with _same_random_state():
                exported, dimensions, error = calibrated(graph, arguments, self._names)
            self.graphs[graph.slot] = exported
            self.dimensions |= dimensions
            self.error = max(self.error or 0.0, error)

        self._try(measure)

    def _try(self, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:
            # Inside the script's own step; the reason goes to the user.
            self.reason = self.reason or f"a graph could not be calibrated: {type(error).__name__}: {error}"
            self._step = None


def calibrated(
    of: Graph, arguments: Sequence[Any], names: Mapping[sympy.Symbol, sympy.Symbol]
) -> tuple[ActivationGraph, dict[str, int], float]:
    """Export a graph and measure its workspaces on the inputs of its forward.

    Gives the graph, the sizes of its dimensions, and the largest error of the self-check as a fraction of the measured
    peak.

    Raises:
        ValueError: the graph cannot be simulated.
        RuntimeError: allocations cannot be counted; or an operator cannot run apart from the step.
    """
    joint = of.joint
    reason = obstacle(joint)
    if reason is not None:
        raise ValueError(reason)
    graph = export_graph(joint, names, node_times_s=of.node_times_s, calls=1.0)
    sizes = sizes_of(joint.unplanned.forward, arguments)
    dimensions = {str(name): sizes[symbol] for symbol, name in names.items() if symbol in sizes}
    graph = _with_workspaces(graph, joint, arguments, sizes, names, dimensions)
    return graph, dimensions, _largest_error(of, graph, arguments, sizes, names, dimensions)


def _with_workspaces(
    graph: ActivationGraph,
    joint: JointGraph,
    arguments: Sequence[Any],
    sizes: Mapping[sympy.Symbol, int],
    names: Mapping[sympy.Symbol, sympy.Symbol],
    dimensions: dict[str, int],
) -> ActivationGraph:
    """Measure what each node allocates besides its results: up to the script's batch in its halves, above it alone."""

    def sizes_at(at: Mapping[str, int]) -> dict[sympy.Symbol, int]:
        return {symbol: at.get(str(names.get(symbol)), size) for symbol, size in sizes.items()}

    layout = as_inductor_lays_out if graph.lowering else as_traced
    batch = dimensions.get("batch")
    batches: list[int] = []
    if batch is not None:
        batches = sorted({min(batch, max(_SMALLEST_BATCH, batch // part)) for part in _PARTS_OF_BATCH})
    simulation = Simulation([graph])
    number = {name: place for place, name in enumerate(graph.names)}
    rows: dict[int, list[int]] = {}
    for at in [{**dimensions, "batch": cut} for cut in batches] or [dimensions]:
        for name, peak in Halves(joint.unplanned, arguments, sizes_at(at)).node_peaks(layout).items():
            if name not in number:
                # What saves the state of a generator, where the script checkpoints a random operator itself.
                continue
            workspace = max(0, peak - simulation.new_bytes(0, number[name], at))
            rows.setdefault(number[name], []).append(workspace)
    rows = {place: row for place, row in sorted(rows.items()) if any(row)}
    if batch is not None:
        most_bytes = simulation.run(dimensions=dimensions).peak_bytes
        halves = (joint.unplanned.forward, joint.unplanned.backward)
        nodes = {number[node.name]: node for half in halves for node in half.graph.nodes if node.name in number}
        for larger in (batch * factor for factor in _LARGER_BATCHES):
            expected = {nodes[place]: interpolated(batches, row, larger) for place, row in rows.items()}
            found = workspaces(expected, sizes_at({**dimensions, "batch": larger}), most_bytes, layout)
            for place, row in rows.items():
                row.append(found[nodes[place]])
            batches.append(larger)
    return replace(graph, workspace=tuple((place, *row) for place, row in rows.items()), batch_sizes=tuple(batches))


def _largest_error(
    of: Graph,
    graph: ActivationGraph,
    arguments: Sequence[Any],
    sizes: Mapping[sympy.Symbol, int],
    names: Mapping[sympy.Symbol, sympy.Symbol],
    dimensions: dict[str, int],
) -> float:
    """Run a graph without plans and with the most that can be recomputed, and compare with its simulation.

    Of generated code there is that without plans only.
    """
    joint = of.joint
    clusters = {layer.cluster_id: RECOMPUTE for layer in joint.layers} or dict(sorted(joint.clusters()))
    everything = tuple(Plan(cluster_id, strategy, ALL) for cluster_id, strategy in clusters.items())
    simulation, largest = Simulation([graph]), 0.0
    if graph.lowering and len(of.generated) < _HALVES:
        raise ValueError(f"Inductor generated no code for it: {of.not_generated or 'its backward has not run'}")
    for plans in ((), everything):
        pair = joint.partition(Quota(plans))
        simulated = simulation.run(plans, dimensions=dimensions)
        if simulated.saved_bytes != pair.saved.value_at(dict(names), dimensions):
            raise ValueError(f"its simulation saves other tensors under {', '.join(map(str, plans)) or 'no plans'}")
        if graph.lowering and plans:
            continue
        run = of.generated if graph.lowering else {False: pair.run_forward, True: pair.run_backward}
        peak = Halves(pair, arguments, sizes).peak(run[False], run[True])
        if peak:
            largest = max(largest, abs(simulated.peak_bytes - peak) / peak)
    return largest


@contextlib.contextmanager
def _same_random_state() -> Iterator[None]:
    """Leave the generators as they were."""
    host = torch.get_rng_state()
    device = torch.cuda.get_rng_state() if uses_cuda() else None
    try:
        yield
    finally:
        torch.set_rng_state(host)
        if device is not None:
            torch.cuda.set_rng_state(device)
