"""Discovery under engines that run AOTAutograd's graphs: from the graphs and the hooks' counts to a plan table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import sympy
import torch
from torch import nn

from ..records import ALL, RECOMPUTE, ActivationGraph, Calibration, ClusterFacts, Plan, Quota
from .calibration import Calibrator
from .engines.engine import PlanEngine
from .engines.graphs import Graph
from .engines.port import Problem
from .environment import describe_environment
from .facts import Baseline, Description, PlanTable, storage_bytes
from .plans.joint import Bytes, traced_size

if TYPE_CHECKING:
    from .session import Session

__all__ = ["GraphDescription", "dimension_symbols"]

# One to trace and compile, some to time the operators, one to calibrate.
_STEPS = 5


class GraphDescription(Description):
    """Traces sizes as symbols, times the operators, and counts in one last step what each of them allocates."""

    _engine: PlanEngine

    def __init__(self, session: Session, engine: PlanEngine, baseline: Baseline) -> None:
        import torch.fx.experimental._config

        # Dimensions of equal size would share a symbol, and a formula would say batch**2 for batch*seq_len.
        torch.fx.experimental._config.use_duck_shape = False
        super().__init__(session, engine, baseline)
        self._dimension_names: dict[tuple[int, int], str] = {}
        self._calibrator: Calibrator | None = None
        self._steps_left = _STEPS
        # Steps in which the operators were timed, and the one of the calibration.
        self._timed_steps = 0

    def see_call(self, root: nn.Module, tensors: list[torch.Tensor], dimension: int) -> None:
        """Ask Dynamo to trace the batch and sequence dimensions of a root's inputs as symbols, where it can."""
        super().see_call(root, tensors, dimension)
        sizes = [tensor.shape[dimension] for tensor in tensors if tensor.dim() > dimension]
        if not sizes:
            return
        batch = sizes[0]
        self._dimension_names.setdefault((batch, dimension), "batch")
        for tensor in tensors:
            if tensor.dim() > dimension and tensor.shape[dimension] == batch and batch > 1:
                torch._dynamo.maybe_mark_dynamic(tensor, dimension)
            if tensor.dim() == 2 and not tensor.is_floating_point() and tensor.shape[1 - dimension] > 1:
                torch._dynamo.maybe_mark_dynamic(tensor, 1 - dimension)
                self._dimension_names.setdefault((tensor.shape[1 - dimension], 1 - dimension), "seq_len")

    def step_done(self) -> bool:
        """A step under the engine has ended; True when everything has been seen."""
        self._steps_left -= 1
        if self._steps_left == _STEPS - 1:
            self._engine.profile(on=True)
            return False
        self._timed_steps += 1
        if self._steps_left == 1:
            self._engine.profile(on=False)
            self._calibrate()
        return not self._steps_left

    def _calibrate(self) -> None:
        """Calibrate the graphs in the step that begins now."""
        names, _ = dimension_symbols(self._engine.graphs, self._dimension_names)
        self._engine.observer = self._calibrator = Calibrator(names, self._gradient_bytes)

    def backward_begins(self) -> None:
        """The script begins its backward."""
        if self._calibrator is not None:
            self._calibrator.script_backward_begins()

    def backward_done(self) -> None:
        """The script's backward has returned."""
        if self._calibrator is not None:
            self._calibrator.step_ended()

    def plan_table(self, modules: list[nn.Module], batch: int | None) -> PlanTable:
        """What can be planned, at the batch size that is usual."""
        names, values = dimension_symbols(self._engine.graphs, self._dimension_names)
        if batch is not None and "batch" in values:
            # The graphs may have been traced at an epoch's smaller last batch; the table is for the usual one.
            values["batch"] = batch
        problem = self._engine.problem()
        graphs, calibration = self._graphs(modules, problem)
        notes = []
        if any(isinstance(part, nn.RNNBase) for module in modules for part in module.modules()):
            notes.append("recurrent layers (nn.RNN, LSTM, GRU) are not traced by Dynamo: they get no plans")
        # Where the engine refuses the script, no plan would be measured.
        clusters = self._clusters(names, values) if problem is None else ()
        return PlanTable(clusters, values, graphs, calibration, tuple(notes))

    def _graphs(
        self, modules: list[nn.Module], problem: Problem | None
    ) -> tuple[tuple[ActivationGraph, ...], Calibration | None]:
        """The activation graphs that ran, if all of them can be simulated, and where their figures hold."""
        calibrator, self._engine.observer = self._calibrator, None
        if calibrator is None:
            return (), None
        calibrator.step_ended()
        ran = [graph for graph in self._engine.slots() if graph.forward_calls]
        found = [calibrator.graphs.get(graph.slot) for graph in ran]
        graphs = tuple(
            replace(exported, calls=graph.forward_calls / max(1, graph.training_calls))
            for graph, exported in zip(ran, found, strict=True)
            if exported is not None
        )
        reason = calibrator.reason if problem is None else problem.cause
        if any(graph.is_unseen or graph.is_fixed for graph in ran):
            reason = "the script compiles with Inductor"
        elif not reason and len(graphs) < len(ran):
            reason = "a graph did not run in the step that was counted"
        elif not reason and (
            len(modules) > 1 or len(self._engine.graphs) > 1 or any(graph.calls != 1 for graph in graphs)
        ):
            # Which of them run under a plan, and how often, is not simulated.
            reason = "several roots, several graphs, or several calls of one, make up a step"
        environment, precision = describe_environment(self._session.device), self._precision(modules)
        calibration = Calibration(
            torch=environment.torch,
            device_name=environment.device_name,
            dtype="" if precision is None else precision.dtype,
            num_threads=environment.num_threads,
            dimensions=calibrator.dimensions,
            error=None if reason else calibrator.error,
            reason=reason,
            engine=self._engine.name,
        )
        return () if reason else graphs, calibration

    def _gradient_bytes(self) -> int:
        """What the gradients of the script's parameters take."""
        parameters = [parameter for module in self._session.roots.modules() for parameter in module.parameters()]
        return storage_bytes(parameter.grad for parameter in parameters if parameter.grad is not None)

    def _clusters(self, names: dict[sympy.Symbol, sympy.Symbol], values: dict[str, int]) -> tuple[ClusterFacts, ...]:
        rows: dict[tuple[str, int], _Row] = {}
        for graph in self._engine.slots():
            if not graph.forward_calls:
                continue
            calls = self._calls_of(graph)
            self._add_operators(rows, graph, calls)
            self._add_layers(rows, graph, calls)
        facts = [row.facts(cluster_id, strategy, names, values) for (cluster_id, strategy), row in rows.items()]
        return tuple(sorted((row for row in facts if row.saving_bytes > 0), key=lambda row: -row.saving_bytes))

    def _add_operators(self, rows: dict[tuple[str, int], _Row], graph: Graph, calls: float) -> None:
        timed: dict[tuple[str, int], set[str]] = {}
        for occurrence in graph.joint.occurrences:
            key = occurrence.cluster_id, occurrence.strategy
            row = rows.setdefault(key, _Row())
            row.frequency += 1
            row.saving += occurrence.saving
            row.see(graph, calls)
            row.is_heavy |= occurrence.is_heavy
            timed.setdefault(key, set()).update(occurrence.subgraph)
        for key, nodes in timed.items():
            rows[key].time_s += calls * sum(graph.node_times_s.get(node, 0.0) for node in nodes)

    def _add_layers(self, rows: dict[tuple[str, int], _Row], graph: Graph, calls: float) -> None:
        for cluster_id, frequency in Counter(layer.cluster_id for layer in graph.joint.layers).items():
            pair = graph.joint.partition(Quota([Plan(cluster_id, RECOMPUTE, ALL)]))
            row = rows.setdefault((cluster_id, RECOMPUTE), _Row(is_layer=True))
            row.frequency += frequency
            row.saving += graph.joint.unplanned.saved - pair.saved
            row.see(graph, calls)
            row.time_s += calls * sum(graph.node_times_s.get(node, 0.0) for node in pair.recomputed)

    def _calls_of(self, graph: Graph) -> float:
        """How often a graph runs in a training step."""
        return 1.0 if graph.is_unseen else max(1.0, graph.forward_calls / max(1, self._timed_steps))


class _Row:
    """A row of the plan table while its occurrences are being added up."""

    def __init__(self, *, is_layer: bool = False) -> None:
        self.frequency = 0
        self.saving = Bytes()
        self.time_s = 0.0
        self._calls = 1.0
        self.is_heavy = False
        self._is_layer = is_layer
        self._is_unseen = False

    def see(self, graph: Graph, calls: float) -> None:
        self._calls = max(self._calls, calls)
        self._is_unseen |= graph.is_unseen

    def facts(
        self, cluster_id: str, strategy: int, names: dict[sympy.Symbol, sympy.Symbol], values: dict[str, int]
    ) -> ClusterFacts:
        notes = ["runs costly operators again"] if self.is_heavy else []
        if self._calls > 1:
            notes.append(f"its graph runs {self._calls:g} times a step")
        if self._is_unseen:
            notes.append("compiled by the script with Inductor: not timed")
        return ClusterFacts(
            cluster_id=cluster_id,
            strategy=strategy,
            frequency=self.frequency,
            saving_bytes=self.saving.value_at(names, values),
            saving_formula=str(self.saving.formula_in(names)),
            recompute_time_s=self.time_s,
            calls_per_step=self._calls,
            is_layer=self._is_layer,
            note="; ".join(notes),
        )


def dimension_symbols(
    graphs: Iterable[Graph], dimension_names: Mapping[tuple[int, int], str]
) -> tuple[dict[sympy.Symbol, sympy.Symbol], dict[str, int]]:
    """The symbols of the graphs' sizes under the names that people know, and the values they had.

    Args:
        graphs: graphs as traced.
        dimension_names: names by what the script's own tensors had: (size, which dimension).
    """
    names: dict[sympy.Symbol, sympy.Symbol] = {}
    values: dict[str, int] = {}
    for graph in graphs:
        for node in graph.joint.nodes.values():
            if node.op != "placeholder" or not isinstance(node.meta.get("val"), torch.Tensor):
                continue
            for place, size in enumerate(node.meta["val"].shape):
                if not isinstance(size, torch.SymInt) or not isinstance(size.node.expr, sympy.Symbol):
                    continue
                symbol, value = size.node.expr, traced_size(size)
                if symbol not in names:
                    # By the size alone only where it tells: a batch may be as large as its sequences are long.
                    of_size = {name for (known, _), name in dimension_names.items() if known == value}
                    by_size = of_size.pop() if len(of_size) == 1 else str(symbol)
                    name = dimension_names.get((value, place), by_size)
                    while name in values and values[name] != value:
                        name += "_"
                    names[symbol] = sympy.Symbol(name, positive=True, integer=True)
                    values[name] = value
    return names, values
