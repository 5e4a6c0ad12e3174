"""Calibrating activation graphs in the training process: each node's workspace, and what the script holds around.

A graph's own halves are run once more, node by node, on inputs of the script's step: a quarter of the batch, half of
it, and the whole. Operators with a workspace are run alone on twice and four times the batch. That happens at the
beginning of a forward, so that it takes no more memory than the step, but for copies of one convolution's images.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

import sympy
import torch

from ...predict.simulation import Simulation, interpolated
from ...records.graph import ActivationGraph, StepTrace
from ...records.plan import ALL, RECOMPUTE, Plan, Quota
from ..device import uses_cuda
from ..engines.graphs import CHECKPOINTED, Graph, Observer, Slot
from ..plans.activation_graph import activation_graph, obstacle
from ..plans.joint import sizes_of
from ..plans.partition import JointGraph
from ..plans.redrawing import draws_again
from .allocations import why_uncounted
from .dimensions import Dimensions, Names, size_of
from .isolated_run import IsolatedRun
from .root_inputs import BATCH
from .step_recorder import StepRecorder
from .workspace import as_inductor_lays_out, as_traced, workspaces

# Torch traces sizes as symbols under the assumption that they are at least this.
_SMALLEST_BATCH = 2
# Beside the whole one. Three points, not two, as the scratch memory of bf16 kernels grows in steps and then no more.
_PARTS_OF_BATCH = (4, 2)
_LARGER_BATCHES = (2, 4)
_HALVES = 2


class Calibrator(Observer):
    """Watches two training steps: calibrates each graph as its forward begins, then records what a step runs of them.

    What goes wrong is kept as ``reason`` and never raised into the script; ``graphs`` then lacks that graph.
    ``error`` and ``generated_share`` are those of ``Calibration``. ``traces`` number the graphs by their order.

    Args:
        dimensions: what the symbols of the graphs' sizes are.
        gradient_bytes: what the gradients of the script's parameters take at the moment.
        lasting: parameters and buffers, which are there in any case.
        growing: the dimensions that grow with the batch, besides the batch itself.
        samples: how many samples the training call under way has.
    """

    def __init__(
        self,
        dimensions: Dimensions,
        gradient_bytes: Callable[[], int] = lambda: 0,
        lasting: Iterable[torch.Tensor] = (),
        *,
        growing: AbstractSet[str] = frozenset(),
        samples: Callable[[], int] = lambda: 0,
    ) -> None:
        self.graphs: dict[Slot, ActivationGraph] = {}
        self.traces: tuple[StepTrace, ...] = ()
        self.dimensions: dict[str, int] = {}
        self.error: float | None = None
        self.generated_share: float | None = None
        self.reason = why_uncounted()
        self._names_of = dimensions.of
        # The sizes of the latest training call: of a graph that has none of the script's own tensors too.
        self._latest: dict[str, int] = {}
        self._gradient_bytes = gradient_bytes
        self._lasting = list(lasting)
        self._growing = growing
        self._samples = samples
        self._recorder: StepRecorder | None = None
        self._is_over = False

    def record(self, slots: Iterable[Slot]) -> None:
        """Record the step that begins now; the graphs are numbered in the order of these slots."""
        self.graphs = {slot: self.graphs[slot] for slot in slots if slot in self.graphs}
        self._recorder = StepRecorder(self._gradient_bytes, self._lasting)

    def forward_begins(self, graph: Graph, arguments: Sequence[Any]) -> None:
        """Calibrate a graph that is seen for the first time, or record that it runs."""
        if self._is_over or self._is_elsewhere():
            return
        if self._recorder is None:
            if graph.slot not in self.graphs and not self.reason:
                self._calibrate(graph, arguments)
        else:
            self._try(lambda recorder: recorder.forward_begins(graph, arguments, self._dimensions(graph, arguments)))

    def forward_ended(self, graph: Graph, results: Sequence[Any]) -> None:
        """Record that a forward has returned."""
        if not self._is_elsewhere():
            self._try(lambda recorder: recorder.forward_ended(graph, results))

    def call_begins(self) -> None:
        """Record that the script calls a root."""
        if not self._is_elsewhere():
            self._try(StepRecorder.call_begins)

    def hooks_done(self) -> None:
        """Record that the hooks have run at the end of a module's call."""
        if not self._is_elsewhere():
            self._try(StepRecorder.hooks_done)

    def script_backward_begins(self) -> None:
        """Record that the script begins its backward."""
        if not self._is_elsewhere():
            self._try(StepRecorder.mark)

    def backward_begins(self, graph: Graph, number: int) -> None:
        """Record that the backward of the forward with this number is called."""
        self._try(lambda recorder: recorder.backward_begins(graph, number))

    def backward_ended(self) -> None:
        """Record that a graph's backward has returned."""
        self._try(StepRecorder.backward_ended)

    def script_backward_ended(self) -> None:
        """Record that the script's backward has returned."""
        if not self._is_elsewhere():
            self._try(StepRecorder.script_backward_ended)

    def step_ended(self) -> None:
        """Work out what the script holds around the graphs, of a recorded step that is over."""
        recorder = self._recorder
        if recorder is None or self._is_over or self._is_elsewhere():
            return
        self._try(StepRecorder.step_ended)
        if not self.reason:
            self._try(self._work_out)
        self._is_over = True

    def _work_out(self, recorder: StepRecorder) -> None:
        self.traces, error = recorder.traces(self.graphs, self.dimensions)
        self.error = max(self.error or 0.0, error)

    def _is_elsewhere(self) -> bool:
        """Tell whether this thread is not the main one, and keep that as the reason."""
        # Torch's profiler can crash where two threads switch it on and off.
        if threading.current_thread() is threading.main_thread():
            return False
        self.reason = self.reason or "the script runs its model in another thread than its main one"
        return True

    def _dimensions(self, graph: Graph, arguments: Sequence[Any]) -> dict[str, int]:
        """Return the sizes of a graph's dimensions in a call; where others grow with the batch, that is among them."""
        sizes = sizes_of(graph.joint.unplanned.forward, arguments)
        known = [(name, sizes[symbol]) for symbol, name in self._names_of(graph).items() if symbol in sizes]
        dimensions = {str(name): size for name, size in known if name.is_Symbol}
        following = [(formula, size) for formula, size in known if not formula.is_Symbol]
        grows = self._growing & dimensions.keys()
        if samples := self._samples() if grows else 0:
            dimensions.setdefault(BATCH, samples)
        self._latest |= dimensions
        for formula, size in following:
            of = {str(symbol): self._latest.get(str(symbol), 0) for symbol in formula.free_symbols}
            if size_of(formula, of) != size:
                raise ValueError(f"{formula} is not {size} where {', '.join(f'{n} is {s}' for n, s in of.items())}")
            dimensions |= of
        return dimensions

    def _calibrate(self, graph: Graph, arguments: Sequence[Any]) -> None:
        """Export a graph, measure its workspaces on the inputs of its forward, and hold it against its simulation."""
        names = self._names_of(graph)
        try:
            if reason := obstacle(graph.joint):
                raise ValueError(reason)
            with _same_random_state():
                dimensions = self._dimensions(graph, arguments)
                bare = activation_graph(
                    graph.joint, names, node_times_s=graph.node_times_s, calls=1.0, continues=graph.continues
                )
                growing = self._growing & dimensions.keys()
                exported = _with_workspaces(bare, graph.joint, arguments, names, dimensions, growing)
                difference, share = _checked(exported, graph, arguments, names, dimensions)
        except Exception as error:
            self._note(error)
            return
        if graph.slot.call == CHECKPOINTED:
            exported = replace(exported, layers=(), occurrences=())
        self.graphs[graph.slot] = exported
        if share is not None:
            # Of several graphs the one that is least like its simulation.
            self.generated_share = max(share, self.generated_share or share)
        if any(self.dimensions.get(name, value) != value for name, value in dimensions.items()):
            self.reason = "two of its graphs have sizes of one name that differ"
        self.dimensions |= dimensions
        self.error = max(self.error or 0.0, difference)

    def _try(self, action: Callable[[StepRecorder], object]) -> None:
        recorder = self._recorder
        if recorder is None or self._is_over:
            return
        try:
            action(recorder)
        except Exception as error:
            self._note(error)
            self._is_over = True
            recorder.give_up()

    def _note(self, error: Exception) -> None:
        # Inside the script's own step; the reason goes to the user.
        # The first line: below it the compiler repeats the script.
        said = (str(error).strip().splitlines() or [""])[0]
        self.reason = self.reason or f"a graph could not be calibrated: {type(error).__name__}: {said}"


def _with_workspaces(
    graph: ActivationGraph,
    joint: JointGraph,
    arguments: Sequence[Any],
    names: Names,
    dimensions: Mapping[str, int],
    growing: AbstractSet[str],
) -> ActivationGraph:
    """Measure what each node allocates besides its results: up to the script's batch in its halves, above it alone.

    ``growing`` are the dimensions that are cut in the same proportion as the batch.
    """
    sizes = sizes_of(joint.unplanned.forward, arguments)

    def dimensions_at(batch_size: int) -> dict[str, int]:
        shared = {name: max(_SMALLEST_BATCH, dimensions[name] * batch_size // dimensions[BATCH]) for name in growing}
        return {**dimensions, BATCH: batch_size, **shared}

    def sizes_at(at: Mapping[str, int]) -> dict[sympy.Symbol, int]:
        return {symbol: size_of(names[symbol], at) if symbol in names else size for symbol, size in sizes.items()}

    layout = as_traced if joint.has_stock_partitioner else as_inductor_lays_out
    batch = dimensions.get(BATCH)
    cuts: set[int] = set()
    if batch is not None:
        cuts = {max(_SMALLEST_BATCH, batch // part) for part in _PARTS_OF_BATCH}
    simulation = Simulation([graph])
    number = {name: place for place, name in enumerate(graph.names)}
    # Where the script checkpoints a random operator itself. The simulation counts the states by itself.
    state_bytes = 0 if graph.rng_state_elsewhere else graph.rng_state_bytes
    again = {node.name for node in joint.unplanned.backward.graph.nodes if draws_again(node)}
    rows: dict[int, list[int]] = {}
    batches: list[int] = []
    for at in [*(dimensions_at(cut) for cut in sorted(cuts) if cut < dimensions[BATCH]), dimensions]:
        try:
            peaks = IsolatedRun(joint.unplanned, arguments, sizes_at(at)).node_peaks(layout)
        except (RuntimeError, IndexError, ValueError) as error:
            # Of dimensions that depend on each other not every part is a batch. The whole one is.
            if at is dimensions or isinstance(error, torch.OutOfMemoryError):
                raise
            continue
        if batch is not None:
            batches.append(at[BATCH])
        for name, peak in peaks.items():
            if name not in number:
                continue  # what saves the state of a generator
            state = state_bytes if name in again else 0
            workspace = max(0, peak - state - simulation.new_bytes(0, number[name], at))
            rows.setdefault(number[name], []).append(workspace)
    rows = {place: row for place, row in sorted(rows.items()) if any(row)}
    if batch is not None:
        most_bytes = simulation.run(dimensions=dimensions).peak_bytes
        isolated = (joint.unplanned.forward, joint.unplanned.backward)
        nodes = {number[node.name]: node for half in isolated for node in half.graph.nodes if node.name in number}
        for larger in (batch * factor for factor in _LARGER_BATCHES):
            expected = {nodes[place]: _expected(batches, row, larger) for place, row in rows.items()}
            # Many do not grow. Where one does and there is no memory for it, a GPU's allocator says so.
            taken = {nodes[place]: row[-1] for place, row in rows.items()} if uses_cuda() else expected
            found = workspaces(expected, taken, sizes_at(dimensions_at(larger)), most_bytes, layout)
            for place, row in rows.items():
                row.append(found[nodes[place]])
            batches.append(larger)
    return replace(
        graph,
        workspace=tuple((place, *row) for place, row in rows.items()),
        batch_sizes=tuple(batches),
        growing=() if batch is None else tuple((name, dimensions[name] / batch) for name in sorted(growing)),
    )


def _expected(batches: Sequence[int], row: Sequence[int], larger: int) -> int:
    """Expect a workspace at a batch that is larger than those measured: as it grew last, or in proportion if less."""
    # Kernels that split sums have none up to some size, and a constant one from there on.
    return min(interpolated(batches, row, larger), row[-1] * larger // batches[-1])


def _checked(
    graph: ActivationGraph, of: Graph, arguments: Sequence[Any], names: Names, dimensions: Mapping[str, int]
) -> tuple[float, float | None]:
    """Run a graph without plans and with the most that can be recomputed, and compare with its simulation.

    Return the largest error, as a fraction of the measured peak, and the peak of generated code, as a fraction of the
    simulated one. Trials run generated code where there is any; it is there without plans only.
    """
    joint, generates = of.joint, not of.joint.has_stock_partitioner
    sizes = sizes_of(joint.unplanned.forward, arguments)
    clusters = {layer.cluster_id: RECOMPUTE for layer in joint.layers} or dict(sorted(joint.clusters()))
    everything = tuple(Plan(cluster_id, strategy, ALL) for cluster_id, strategy in clusters.items())
    simulation, largest = Simulation([graph]), 0.0
    share: float | None = None
    if generates and len(of.generated) < _HALVES:
        raise ValueError(f"Inductor generated no code for it: {of.not_generated or 'its backward has not run'}")
    for plans in ((), everything):
        pair = joint.partition(Quota(plans))
        simulated = simulation.run(plans, dimensions=dimensions)
        if simulated.saved_bytes != pair.saved.named(names).value_at(dimensions):
            raise ValueError(f"its simulation saves other tensors under {', '.join(map(str, plans)) or 'no plans'}")
        if generates and plans:
            continue
        run = of.generated if generates else {False: pair.run_forward, True: pair.run_backward}
        peak = IsolatedRun(pair, arguments, sizes).peak(run[False], run[True])
        if peak:
            largest = max(largest, abs(simulated.peak_bytes - peak) / peak)
        if generates and simulated.peak_bytes:
            share = peak / simulated.peak_bytes
    return largest, share


@contextlib.contextmanager
def _same_random_state() -> Iterator[None]:
    host = torch.get_rng_state()
    device = torch.cuda.get_rng_state() if uses_cuda() else None
    try:
        yield
    finally:
        torch.set_rng_state(host)
        if device is not None:
            torch.cuda.set_rng_state(device)
