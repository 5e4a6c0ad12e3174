"""Discovery under engines that run AOTAutograd's graphs: from the graphs and the hooks' counts to a plan table."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import sympy
import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from ...records.facts import ClusterFacts, OutsideFacts
from ...records.graph import ActivationGraph, Calibration, StepTrace
from ...records.plan import ALL, RECOMPUTE, Plan, Quota
from ..engines.graphs import CHECKPOINTED, Graph
from ..engines.plan_engine import PlanEngine
from ..engines.port import Problem
from ..environment import describe_environment
from ..hooks.compilation import keep_out
from ..hooks.samples import tensors_of
from ..hooks.watch import Watch
from ..measuring.memory_split import storage_bytes
from ..plans.clusters import Occurrence
from ..plans.joint import Bytes
from .attention import difference, graph_attention
from .calibration import Calibrator
from .description import Description, PlanTable
from .dimensions import Dimensions
from .root_inputs import BATCH, RootCall

# One to trace and compile, some to time the operators, one to calibrate, one to record.
_STEPS = 6


@dataclass(eq=False)
class GraphDescription(Description):
    """Traces sizes as symbols, times the operators, and counts in one last step what each of them allocates."""

    engine: PlanEngine

    def __post_init__(self) -> None:
        import torch.fx.experimental._config

        # Dimensions of equal size would share a symbol, and a formula would say batch**2 for batch*seq_len.
        torch.fx.experimental._config.use_duck_shape = False
        self.engine.traces_sizes = True
        self._watch: Watch | None = None
        self._calibrator: Calibrator | None = None
        self._root_has_hooks = False
        self._steps_left = _STEPS
        # Whole steps since the graphs have begun to count their runs, and how often each has run in them.
        self._counted_steps = 0
        self._runs: dict[int, int] = {}

    @property
    def knows_plans(self) -> bool:
        """Return whether the graphs were traced, and their operators timed once."""
        return self._counted_steps > 0 and self.engine.problem() is None

    def see_call(self, call: RootCall) -> None:
        """Have what grows with the batch traced as symbols."""
        self.inputs.mark(call)
        self._root_has_hooks = bool(call.root._forward_hooks)
        if self._calibrator is not None:
            self._calibrator.call_begins()

    def call_done(self) -> None:
        """Note that the script's call of a module has returned."""
        if self._calibrator is not None and self._root_has_hooks:
            self._calibrator.hooks_done()

    def see_inner_call(self, module: nn.Module, inputs: Any) -> None:
        """Have it traced with symbols for the sizes that are some in the root's inputs or in the graphs before it."""
        self._mark(inputs)
        if module._forward_pre_hooks:
            # One of `fully_shard` hands on views, of which nothing is marked.
            _once(module.register_forward_pre_hook, lambda *inputs: self._mark(inputs))
        if module._forward_hooks and self._calibrator is not None:
            calibrator = self._calibrator
            _once(module.register_forward_hook, lambda *_: calibrator.hooks_done())

    def _mark(self, inputs: Any) -> None:
        self.engine.mark_sizes(tensors_of(inputs), self.inputs.marked)

    def step_done(self) -> bool:
        """Note that a step under the engine has ended; True when everything has been seen."""
        self._steps_left -= 1
        roots, engine = self.script.roots, self.engine
        if self._steps_left == _STEPS - 1:
            engine.profile(on=True)
            engine.observer = roots.watch = self._watch = Watch(self._lasting())
            return False
        engine.observer = roots.watch = None
        self._counted_steps += 1
        self._runs = {id(graph): graph.forward_calls for graph in engine.graphs}
        if self._steps_left == 2:
            engine.profile(on=False)
            engine.observer = self._calibrator = Calibrator(
                Dimensions(engine.graphs, self.inputs.names),
                self._gradient_bytes,
                self._lasting(),
                growing=frozenset(self.inputs.per_sample),
                samples=lambda: self.inputs.samples,
            )
        elif self._steps_left == 1 and self._calibrator is not None:
            engine.observer = self._calibrator
            self._calibrator.record(graph.slot for graph in (*engine.slots(), *engine.checkpointed))
        return not self._steps_left

    def backward_begins(self) -> None:
        """Note that the script begins its backward."""
        if self._calibrator is not None:
            self._calibrator.script_backward_begins()

    def backward_done(self) -> None:
        """Note that the script's backward has returned."""
        if self._calibrator is not None:
            self._calibrator.script_backward_ended()

    def plan_table(self, modules: list[nn.Module], batch: int | None) -> PlanTable:
        """Return what can be planned, at the batch size that is usual."""
        dimensions = Dimensions(self.engine.graphs, self.inputs.names)
        # The graphs may have been traced at an epoch's smaller last batch; the table is for the usual one.
        values = {name: self.inputs.usual(name, value, batch) for name, value in dimensions.values.items()}
        problem = self.engine.problem()
        graphs, traces, calibration = self._graphs(modules, problem)
        notes = []
        if problem is None and batch is not None and batch > 1 and not {BATCH, *self.inputs.per_sample} & values.keys():
            fixed = "its size in the inputs was not recognized, or torch traced it as a constant"
            notes.append(f"what plans save is known at batch size {batch} only: {fixed}")
        nodes = itertools.chain.from_iterable(graph.joint.nodes.values() for graph in self.engine.slots())
        if other := difference(self.baseline.attention, graph_attention(nodes)):
            notes.append(other)
        if any(isinstance(part, nn.RNNBase) for module in modules for part in module.modules()):
            notes.append("recurrent layers (nn.RNN, LSTM, GRU) are not traced by Dynamo: they get no plans")
        # Where the engine refuses the script, no plan would be measured.
        clusters = self._clusters(dimensions, values) if problem is None else ()
        return PlanTable(clusters, values, graphs, calibration, tuple(notes), self._outside(), traces)

    def _outside(self) -> tuple[OutsideFacts, ...]:
        """List the modules that ran outside of graphs and have kept something, those with the most first."""
        watch = self._watch
        # What the script compiles with Inductor saves tensors like what runs outside of graphs.
        if watch is None or not watch.calls or any(graph.is_unseen for graph in self.engine.graphs):
            return ()
        numbers = watch.num_modules
        return tuple(
            OutsideFacts(name, numbers[name], saved // watch.calls) for name, saved in watch.saved_bytes.most_common()
        )

    def _graphs(
        self, modules: list[nn.Module], problem: Problem | None
    ) -> tuple[tuple[ActivationGraph, ...], tuple[StepTrace, ...], Calibration | None]:
        """List the activation graphs that ran, if all can be simulated, how a step runs them, and where that holds."""
        calibrator, self.engine.observer = self._calibrator, None
        if calibrator is None:
            return (), (), None
        calibrator.step_ended()
        ran = [graph for graph in (*self.engine.slots(), *self.engine.checkpointed) if graph.forward_calls]
        found = [calibrator.graphs.get(graph.slot) for graph in ran]
        graphs = tuple(
            replace(exported, calls=_kept_calls(graph))
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
        environment = describe_environment(self.process.device, trains_on_cpu=self.process.trains_on_cpu)
        precision = self._precision(modules)
        calibration = Calibration(
            torch=environment.torch,
            device_name=environment.device_name,
            dtype="" if precision is None else precision.dtype,
            num_threads=environment.num_threads,
            dimensions=calibrator.dimensions,
            error=None if reason else calibrator.error,
            reason=reason,
            engine=self.engine.name,
            generated_share=calibrator.generated_share,
        )
        return *(((), ()) if reason else (graphs, calibrator.traces)), calibration

    def _lasting(self) -> Iterable[torch.Tensor]:
        modules = list(self.script.roots.modules())
        return itertools.chain(*(module.parameters() for module in modules), *(m.buffers() for m in modules))

    def _gradient_bytes(self) -> int:
        parameters = [parameter for module in self.script.roots.modules() for parameter in module.parameters()]
        return storage_bytes(parameter.grad for parameter in parameters if parameter.grad is not None)

    def _clusters(self, dimensions: Dimensions, values: Mapping[str, int]) -> tuple[ClusterFacts, ...]:
        rows: dict[tuple[str, int], _Row] = {}
        for graph in self.engine.slots():
            if not graph.forward_calls:
                continue
            runs = self._runs.get(id(graph), 0) / max(1, self._counted_steps)
            calls, names = 1.0 if graph.is_unseen else max(1.0, runs), dimensions.of(graph)
            # An engine that does not switch has the same plans in all calls of a graph.
            times = max(1, round(_kept_calls(graph)))
            operators: dict[tuple[str, int], list[Occurrence]] = {}
            for one in graph.joint.occurrences:
                operators.setdefault((one.cluster_id, one.strategy), []).append(one)
            for key, found in operators.items():
                row = rows.setdefault(key, _Row())
                row.is_heavy |= any(one.is_heavy for one in found)
                saving = Bytes.total([one.saving for one in found] * times).named(names)
                row.add(graph, calls, len(found), saving, {node for one in found for node in one.subgraph})
            for cluster_id in dict.fromkeys(layer.cluster_id for layer in graph.joint.layers):
                frequency = graph.occurrence_counts()[cluster_id, RECOMPUTE]
                pair = graph.joint.partition(Quota([Plan(cluster_id, RECOMPUTE, ALL)]))
                row = rows.setdefault((cluster_id, RECOMPUTE), _Row(is_layer=True))
                saving = Bytes.total([graph.joint.unplanned.saved - pair.saved] * times).named(names)
                row.add(graph, calls, frequency, saving, pair.recomputed)
        facts = [row.facts(cluster_id, strategy, values) for (cluster_id, strategy), row in rows.items()]
        return tuple(sorted((row for row in facts if row.saving_bytes > 0), key=lambda row: -row.saving_bytes))


def _kept_calls(graph: Graph) -> float:
    """Return how often a training call runs a graph and keeps what it saves."""
    return 0.0 if graph.slot.call == CHECKPOINTED else graph.forward_calls / max(1, graph.training_calls)


def _once(register: Callable[..., RemovableHandle], act: Callable[..., None]) -> None:
    """Act in the next call of a module, after the hooks that are there."""

    def hook(_: nn.Module, *inputs: Any) -> None:
        handle.remove()
        act(*inputs)

    handle = register(hook, with_kwargs=True)
    keep_out(hook)


@dataclass
class _Row:
    """A row of the plan table while its occurrences are being added up."""

    is_layer: bool = False
    frequency: int = 0
    saving: Bytes = field(default_factory=Bytes)
    time_s: float = 0.0
    calls: float = 1.0
    is_heavy: bool = False
    is_unseen: bool = False
    is_timed: bool = False

    def add(self, graph: Graph, calls: float, frequency: int, saving: Bytes, nodes: Iterable[str]) -> None:
        self.frequency += frequency
        self.saving += saving
        self.time_s += calls * sum(graph.node_times_s.get(node, 0.0) for node in nodes)
        self.calls = max(self.calls, calls)
        self.is_unseen |= graph.is_unseen
        self.is_timed |= bool(graph.node_times_s)

    def facts(self, cluster_id: str, strategy: int, values: Mapping[str, int]) -> ClusterFacts:
        notes = ["runs costly operators again"] if self.is_heavy else []
        if self.calls > 1:
            notes.append(f"its graph runs {self.calls:g} times a step")
        if self.is_unseen:
            notes.append("compiled by the script with Inductor: not timed")
        elif not self.is_timed:
            notes.append("not timed")
        return ClusterFacts(
            cluster_id=cluster_id,
            strategy=strategy,
            frequency=self.frequency,
            saving_bytes=self.saving.value_at(values),
            saving_formula=str(sympy.factor(self.saving.formula)),
            recompute_time_s=self.time_s,
            calls_per_step=self.calls,
            is_layer=self.is_layer,
            note="; ".join(notes),
        )
