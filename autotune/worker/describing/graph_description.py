"""Discovery under engines that run AOTAutograd's graphs: from the graphs and the hooks' counts to a plan table."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import sympy
import torch
from torch import nn

from ...records.facts import ClusterFacts, OutsideFacts
from ...records.graph import ActivationGraph, Calibration, StepTrace
from ...records.plan import ALL, RECOMPUTE, Plan, Quota
from ..engines.graphs import Graph
from ..engines.plan_engine import PlanEngine
from ..engines.port import Problem
from ..environment import describe_environment
from ..hooks.hooked_script import HookedScript
from ..hooks.watch import Watch
from ..measuring.memory_split import storage_bytes
from ..plans.joint import Bytes
from ..process import TrainingProcess
from .attention import difference, graph_attention
from .calibration import Calibrator
from .description import Baseline, Description, PlanTable
from .dimensions import Dimensions, Names
from .root_inputs import BATCH, RootCall, RootInputs

# One to trace and compile, some to time the operators, one to calibrate, one to record.
_STEPS = 6


class GraphDescription(Description):
    """Traces sizes as symbols, times the operators, and counts in one last step what each of them allocates."""

    steps = _STEPS
    _engine: PlanEngine

    def __init__(
        self,
        process: TrainingProcess,
        script: HookedScript,
        engine: PlanEngine,
        baseline: Baseline,
        inputs: RootInputs,
    ) -> None:
        import torch.fx.experimental._config

        # Dimensions of equal size would share a symbol, and a formula would say batch**2 for batch*seq_len.
        torch.fx.experimental._config.use_duck_shape = False
        super().__init__(process, script, engine, baseline, inputs)
        engine.traces_sizes = True
        self._watch: Watch | None = None
        self._calibrator: Calibrator | None = None
        self._steps_left = _STEPS
        # Whole steps since the graphs have begun to count their runs, and how often each has run in them.
        self._counted_steps = 0
        self._runs: dict[int, int] = {}

    def see_call(self, call: RootCall) -> None:
        """Have what grows with the batch traced as symbols."""
        self._inputs.mark(call)

    def see_inner_call(self, tensors: Sequence[torch.Tensor]) -> None:
        """Have it traced with symbols for the sizes that are some in the graphs before it."""
        self._engine.mark_sizes(tensors)

    def step_done(self) -> bool:
        """A step under the engine has ended; True when everything has been seen."""
        self._steps_left -= 1
        roots, engine = self._script.roots, self._engine
        if self._steps_left == _STEPS - 1:
            engine.profile(on=True)
            engine.observer = roots.watch = self._watch = Watch(self._lasting())
            return False
        engine.observer = roots.watch = None
        self._counted_steps += 1
        self._runs = {id(graph): graph.forward_calls for graph in engine.graphs}
        if self._steps_left == 2:
            self._engine.profile(on=False)
            self._calibrate()
        elif self._steps_left == 1 and self._calibrator is not None:
            self._engine.observer = self._calibrator
            self._calibrator.record(graph.slot for graph in self._engine.slots())
        return not self._steps_left

    def _calibrate(self) -> None:
        """Calibrate the graphs in the step that begins now."""
        self._engine.observer = self._calibrator = Calibrator(
            Dimensions(self._engine.graphs, self._inputs.names),
            self._gradient_bytes,
            self._lasting(),
            growing=frozenset(self._inputs.per_sample),
            samples=lambda: self._inputs.samples,
        )

    def backward_begins(self) -> None:
        """The script begins its backward."""
        if self._calibrator is not None:
            self._calibrator.script_backward_begins()

    def backward_done(self) -> None:
        """The script's backward has returned."""
        if self._calibrator is not None:
            self._calibrator.script_backward_ended()

    def plan_table(self, modules: list[nn.Module], batch: int | None) -> PlanTable:
        """Return what can be planned, at the batch size that is usual."""
        dimensions = Dimensions(self._engine.graphs, self._inputs.names)
        # The graphs may have been traced at an epoch's smaller last batch; the table is for the usual one.
        values = {name: self._inputs.usual(name, value, batch) for name, value in dimensions.values.items()}
        problem = self._engine.problem()
        graphs, traces, calibration = self._graphs(modules, problem)
        notes = []
        if batch is not None and batch > 1 and not {BATCH, *self._inputs.per_sample} & values.keys():
            fixed = "its size in the inputs was not recognized, or torch traced it as a constant"
            notes.append(f"what plans save is known at batch size {batch} only: {fixed}")
        nodes = itertools.chain.from_iterable(graph.joint.nodes.values() for graph in self._engine.slots())
        if other := difference(self._baseline.attention, graph_attention(nodes)):
            notes.append(other)
        if any(isinstance(part, nn.RNNBase) for module in modules for part in module.modules()):
            notes.append("recurrent layers (nn.RNN, LSTM, GRU) are not traced by Dynamo: they get no plans")
        # Where the engine refuses the script, no plan would be measured.
        clusters = self._clusters(dimensions, values) if problem is None else ()
        return PlanTable(clusters, values, graphs, calibration, tuple(notes), self._outside(), traces)

    def _outside(self) -> tuple[OutsideFacts, ...]:
        """The modules that ran outside of graphs and have kept something, those with the most first."""
        watch = self._watch
        if watch is None or not watch.calls:
            return ()
        numbers = watch.num_modules
        return tuple(
            OutsideFacts(name, numbers[name], saved // watch.calls) for name, saved in watch.saved_bytes.most_common()
        )

    def _graphs(
        self, modules: list[nn.Module], problem: Problem | None
    ) -> tuple[tuple[ActivationGraph, ...], tuple[StepTrace, ...], Calibration | None]:
        """The activation graphs that ran, if all can be simulated, how a step runs them, and where that holds."""
        calibrator, self._engine.observer = self._calibrator, None
        if calibrator is None:
            return (), (), None
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
        elif not reason and not calibrator.traces:
            reason = "no step was recorded"
        environment, precision = (
            describe_environment(self._process.device, trains_on_cpu=self._process.trains_on_cpu),
            self._precision(modules),
        )
        calibration = Calibration(
            torch=environment.torch,
            device_name=environment.device_name,
            dtype="" if precision is None else precision.dtype,
            num_threads=environment.num_threads,
            dimensions=calibrator.dimensions,
            error=None if reason else calibrator.error,
            reason=reason,
            engine=self._engine.name,
            generated_share=calibrator.generated_share,
        )
        return *(((), ()) if reason else (graphs, calibrator.traces)), calibration

    def _lasting(self) -> Iterable[torch.Tensor]:
        """The parameters and the buffers of the roots."""
        modules = list(self._script.roots.modules())
        return itertools.chain(*(module.parameters() for module in modules), *(m.buffers() for m in modules))

    def _gradient_bytes(self) -> int:
        """Return what the gradients of the script's parameters take."""
        parameters = [parameter for module in self._script.roots.modules() for parameter in module.parameters()]
        return storage_bytes(parameter.grad for parameter in parameters if parameter.grad is not None)

    def _clusters(self, dimensions: Dimensions, values: Mapping[str, int]) -> tuple[ClusterFacts, ...]:
        rows: dict[tuple[str, int], _Row] = {}
        for graph in self._engine.slots():
            if not graph.forward_calls:
                continue
            calls, names = self._calls_of(graph), dimensions.of(graph)
            self._add_operators(rows, graph, calls, names)
            self._add_layers(rows, graph, calls, names)
        facts = [row.facts(cluster_id, strategy, values) for (cluster_id, strategy), row in rows.items()]
        return tuple(sorted((row for row in facts if row.saving_bytes > 0), key=lambda row: -row.saving_bytes))

    def _add_operators(self, rows: dict[tuple[str, int], _Row], graph: Graph, calls: float, names: Names) -> None:
        timed: dict[tuple[str, int], set[str]] = {}
        savings: dict[tuple[str, int], list[Bytes]] = {}
        for occurrence in graph.joint.occurrences:
            key = occurrence.cluster_id, occurrence.strategy
            row = rows.setdefault(key, _Row())
            row.frequency += 1
            savings.setdefault(key, []).append(occurrence.saving)
            row.see(graph, calls)
            row.is_heavy |= occurrence.is_heavy
            timed.setdefault(key, set()).update(occurrence.subgraph)
        for key, nodes in timed.items():
            rows[key].saving += Bytes.total(savings[key]).named(names)
            rows[key].time_s += calls * sum(graph.node_times_s.get(node, 0.0) for node in nodes)

    def _add_layers(self, rows: dict[tuple[str, int], _Row], graph: Graph, calls: float, names: Names) -> None:
        for cluster_id, frequency in Counter(layer.cluster_id for layer in graph.joint.layers).items():
            pair = graph.joint.partition(Quota([Plan(cluster_id, RECOMPUTE, ALL)]))
            row = rows.setdefault((cluster_id, RECOMPUTE), _Row(is_layer=True))
            row.frequency += frequency
            row.saving += (graph.joint.unplanned.saved - pair.saved).named(names)
            row.see(graph, calls)
            row.time_s += calls * sum(graph.node_times_s.get(node, 0.0) for node in pair.recomputed)

    def _calls_of(self, graph: Graph) -> float:
        """Return how often a graph runs in a training step."""
        return 1.0 if graph.is_unseen else max(1.0, self._runs.get(id(graph), 0) / max(1, self._counted_steps))


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
        self._is_timed = False

    def see(self, graph: Graph, calls: float) -> None:
        self._calls = max(self._calls, calls)
        self._is_unseen |= graph.is_unseen
        self._is_timed |= bool(graph.node_times_s)

    def facts(self, cluster_id: str, strategy: int, values: Mapping[str, int]) -> ClusterFacts:
        notes = ["runs costly operators again"] if self.is_heavy else []
        if self._calls > 1:
            notes.append(f"its graph runs {self._calls:g} times a step")
        if self._is_unseen:
            notes.append("compiled by the script with Inductor: not timed")
        elif not self._is_timed:
            notes.append("not timed")
        return ClusterFacts(
            cluster_id=cluster_id,
            strategy=strategy,
            frequency=self.frequency,
            saving_bytes=self.saving.value_at(values),
            saving_formula=str(sympy.factor(self.saving.formula)),
            recompute_time_s=self.time_s,
            calls_per_step=self._calls,
            is_layer=self._is_layer,
            note="; ".join(notes),
        )
