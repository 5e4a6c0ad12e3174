"""Engine ``aot``: AOTAutograd's forward and backward graphs, run as they are (eager's kernels, no code generation).

Joint graphs are kept, so that other plans cost one more partitioning: the function that AOTAutograd compiled calls
whichever pair of graphs is current.
"""

from __future__ import annotations

import operator
import time
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn

from ...records import ALL, RECOMPUTE, Configuration, Plan
from ..plans.partition import JointGraph, Pair, Quota

__all__ = ["AotEngine", "Graph", "Problem"]

_GRAPH_INDEX = "autotune_graph_index"

# Forwards whose backward may still come; more can only be forwards that never get one.
_MOST_PENDING = 256


@dataclass(frozen=True)
class Problem:
    """Why the configuration is not what ran: an invalid plan, or a fallback to the script without plans."""

    kind: str
    cause: str
    advice: str


@dataclass
class Graph:
    """One compiled graph of the script.

    ``slot`` is its place in a training call: Dynamo frame, and ordinal among the graphs that one call compiled for
    that frame (a block with a graph break inside is one frame, compiled for each instance). Graphs of one slot are
    variants of each other, for other shapes.
    """

    slot: tuple[str, int]
    joint: JointGraph
    compiled: Pair
    current: Pair
    forward_calls: int = 0
    node_times_s: dict[str, float] = field(default_factory=dict)
    # Inductor compiles the pair it is given and never asks again.
    is_fixed: bool = False
    # A forward's backward must be of the same pair, also when the plans are switched between them (a GAN's generator
    # has run when its discriminator steps): the pairs of the forwards under way.
    pending: dict[int, Pair] = field(default_factory=dict)
    # AOTAutograd's runtime (torch 2.15) keeps for each saved tensor whether it is an input, and reads it at each call.
    runtime_saved_inputs: list[bool] | None = None

    def switch(self, pair: Pair) -> None:
        """Run this pair from the next forward on."""
        self.current = pair
        if self.runtime_saved_inputs is not None:
            self.runtime_saved_inputs[:] = pair.saved_inputs

    def forward(self, arguments: list[Any], run: Callable[[Pair], Any]) -> Any:
        """Run the current pair's forward by ``run``, and remember that its backward is to come."""
        del arguments


class AotEngine:
    """Compiles root modules, partitions their graphs by plan, and switches plans without tracing again.

    ``use`` chooses the configuration; ``compile_root`` gives the callable for a root module; ``problem`` says whether
    what ran is what was asked for. Counts run over the graphs in the order in which they were first compiled, which
    is execution order.
    """

    name = "aot"

    def __init__(self) -> None:
        import torch._dynamo.config
        import torch._functorch.config

        # A cache hit would skip the partitioner, and with it the plans.
        torch._functorch.config.enable_autograd_cache = False
        # Lent buffers are found once, for the first pair of graphs; a switched pair saves other tensors.
        torch._functorch.config.donated_buffer = False
        # What Dynamo cannot trace runs as the script wrote it; `problem` reports it.
        torch._dynamo.config.suppress_errors = True
        # The script's own torch.compile is watched; this is the untouched one.
        self.torch_compile = torch.compile
        self.graphs: list[Graph] = []
        self.failures: list[str] = []
        self.active = False
        self._profiling = False
        self.configuration = Configuration()
        self._foreign: list[str] = []
        self._compiled_in_call: Counter[str] = Counter()

    # -- applying

    def use(self, configuration: Configuration) -> str | None:
        """Make a configuration current; gives the reason when the compiled graphs cannot be switched to it."""
        self.configuration = configuration
        self.active = configuration.engine == self.name
        for graph in self.graphs:
            graph.forward_calls = int(graph.is_fixed)
        wanted = [(graph, self._partition(graph.joint, graph.slot)) for graph in self.graphs]
        for graph, pair in wanted:
            if pair is not graph.compiled and graph.is_fixed:
                return "the script compiles with Inductor, which compiles each set of plans anew"
            if pair is not graph.compiled and pair.signature != graph.compiled.signature:
                return "a graph of the script hands other symbols to its backward under this plan"
            if pair is not graph.compiled and graph.joint.is_dynamic:
                return "a graph of the script has dynamic shapes"
        for graph, pair in wanted:
            graph.current = pair
        return None

    def begin_call(self) -> None:
        """A training call of a root begins; graphs compiled in one call have slots of their own."""
        self._compiled_in_call.clear()

    def compile_root(self, root: nn.Module) -> Callable[..., Any]:
        """Give the compiled form of a root module's call."""
        from torch._dynamo import trace_rules

        forward = root._call_impl
        if trace_rules.check(root.forward):
            # Dynamo skips the files of torch.nn: `nn.Sequential.forward` itself would be left as it is. A function of
            # ours around it is traced, and everything below it.
            forward = _wrapped(root)
        return self.torch_compile(forward, backend=self.backend())

    def backend(self) -> Any:
        """A Dynamo backend that partitions by the current plans."""
        from torch._dynamo.backends.common import aot_autograd
        from torch._dynamo.backends.debugging import boxed_nop

        return aot_autograd(
            fw_compiler=self._compile_forward,
            bw_compiler=self._compile_backward,
            inference_compiler=boxed_nop,
            partition_fn=self.partition,
            keep_inference_input_mutations=True,
        )

    def cannot_plan(self, what: str) -> None:
        """Note a part of the script that compiles itself in a way that takes no plans."""
        self._foreign.append(what)

    def partition(
        self,
        joint: fx.GraphModule,
        joint_inputs: Any,
        *,
        num_fwd_outputs: int,
        static_lifetime_input_indices: list[int] | None = None,
        **_: Any,
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        """The partitioner: AOTAutograd calls it once for each joint graph."""
        from torch._functorch.partitioners import default_partition

        graph = self._add_graph(joint, num_fwd_outputs, static_lifetime_input_indices)
        if graph is None:
            return default_partition(
                joint,
                joint_inputs,
                num_fwd_outputs=num_fwd_outputs,
                static_lifetime_input_indices=static_lifetime_input_indices,
            )
        return graph.compiled.forward, graph.compiled.backward

    def partition_for_inductor(
        self, joint: fx.GraphModule, joint_inputs: Any, **keywords: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        """The partitioner where the script compiles with Inductor: the stock one as long as no plan is current."""
        from torch._functorch.partitioners import min_cut_rematerialization_partition

        indices = keywords.get("static_lifetime_input_indices")
        graph = self._add_graph(joint, keywords["num_fwd_outputs"], indices)
        if graph is not None:
            graph.is_fixed = True
            # Inductor's code does not tell when it runs; a graph that was compiled is taken to run.
            graph.forward_calls = 1
            if graph.compiled is not graph.joint.unplanned:
                return graph.compiled.forward, graph.compiled.backward
        return min_cut_rematerialization_partition(joint, joint_inputs, **keywords)

    def _add_graph(self, joint: fx.GraphModule, num_fwd_outputs: int, static_indices: list[int] | None) -> Graph | None:
        """Keep a joint graph and partition it; None when that failed, and the script shall run without plans."""
        from torch._guards import CompileContext

        frame = str(CompileContext.current_compile_id()).partition("/")[0]
        slot = frame, self._compiled_in_call[frame]
        self._compiled_in_call[frame] += 1
        try:
            kept = JointGraph(joint, num_fwd_outputs, static_indices)
            pair = self._partition(kept, slot)
        except Exception as error:
            # Never raise into the script; `problem` reports it.
            self.failures.append(f"{type(error).__name__}: {error}")
            return None
        graph = Graph(slot, kept, pair, pair)
        pair.forward.meta[_GRAPH_INDEX] = pair.backward.meta[_GRAPH_INDEX] = len(self.graphs)
        self.graphs.append(graph)
        return graph

    def _partition(self, joint: JointGraph, slot: tuple[str, int]) -> Pair:
        """Partition by the current plans; slots compiled earlier have taken their occurrences first."""
        quota = Quota(self._plans())
        for graph in self.slots():
            if graph.slot == slot:
                break
            graph.joint.take(quota)
        return joint.partition(quota)

    def slots(self) -> list[Graph]:
        """One graph for each slot, in execution order: of its variants the last that ran, else the first."""
        chosen: dict[tuple[str, int], Graph] = {}
        for graph in self.graphs:
            if graph.slot not in chosen or graph.forward_calls:
                chosen[graph.slot] = graph
        return list(chosen.values())

    def _plans(self) -> tuple[Plan, ...]:
        if not self.active:
            return ()
        plans = self.configuration.plans
        if self.configuration.level:
            layers = {layer.cluster_id for graph in self.graphs for layer in graph.joint.layers}
            plans += tuple(Plan(cluster_id, RECOMPUTE, ALL) for cluster_id in sorted(layers))
        return plans

    def _compile_forward(self, module: fx.GraphModule, _: Any) -> Callable[..., Any]:
        return self._dispatch(module, "forward")

    def _compile_backward(self, module: fx.GraphModule, _: Any) -> Callable[..., Any]:
        return self._dispatch(module, "backward")

    def _dispatch(self, module: fx.GraphModule, side: str) -> Callable[..., Any]:
        """The callable that AOTAutograd keeps: it looks up the current pair at each call."""
        from torch._dynamo.backends.debugging import boxed_nop

        # AOTAutograd hands over copies, and the backward only when it first runs; copies keep `meta`.
        index = module.meta.get(_GRAPH_INDEX)
        if index is None:
            # The default partition after a failure: nothing to switch.
            return boxed_nop(module, [])
        owner = self.graphs[index]

        def run(arguments: list[Any]) -> Any:
            pair = owner.current
            if side == "forward":
                owner.forward_calls += 1
            if self._profiling:
                return _TimedNodes(getattr(pair, side), owner.node_times_s).boxed_run(arguments)
            return pair.run_forward(arguments) if side == "forward" else pair.run_backward(arguments)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    # -- checking

    def problem(self) -> Problem | None:
        """Say why what ran is not the current configuration, or None; to be asked after a training step."""
        if not self.active:
            return None
        if self.failures:
            cause = f"a graph could not be partitioned: {self.failures[0]}"
            return Problem("fallback", cause, "Please report this; --engine eager searches batch sizes only.")
        ran = [graph for graph in self.graphs if graph.forward_calls]
        if not ran:
            foreign = f" ({'; '.join(self._foreign)})" if self._foreign else ""
            cause = f"no graph of the model was captured, so there is nothing to recompute{foreign}"
            return Problem("fallback", cause, "--engine eager searches batch sizes only.")
        if self.configuration.level and not any(graph.joint.layers for graph in self.graphs):
            cause = f"level {self.configuration.level} recomputes layers, and the model has no repeated blocks"
            return Problem("fallback", cause, "`autotune discover SCRIPT` lists the plans of a script.")
        quota = Quota(self.configuration.plans)
        for graph in self.slots():
            graph.joint.take(quota)
        unknown = quota.unmatched()
        if unknown:
            known = sorted({name for graph in self.graphs for name in graph.joint.cluster_ids()})
            cause = f"the script has no cluster {', '.join(map(repr, unknown))}; it has {', '.join(known) or 'none'}"
            return Problem("invalid_plan", cause, "`autotune discover SCRIPT` lists the plans of a script.")
        return None

    def saved_bytes(self) -> int | None:
        """Bytes handed from forward to backward in one training call, over the graphs that ran; None if none did."""
        ran = [graph for graph in self.slots() if graph.forward_calls]
        return sum(graph.current.saved.value for graph in ran) if ran else None

    # -- describing

    def profile(self, *, on: bool) -> None:
        """Run the graphs node by node and keep each node's least time, or stop doing so."""
        self._profiling = on
        if on:
            for graph in self.graphs:
                graph.forward_calls = int(graph.is_fixed)


def _wrapped(root: nn.Module) -> Callable[..., Any]:
    """A function with a code object of its own around a root's call, so that each root has its own Dynamo cache."""
    reference = weakref.ref(root)

    def call(*arguments: Any, **keywords: Any) -> Any:
        module = reference()
        assert module is not None
        return module._call_impl(*arguments, **keywords)

    call.__code__ = call.__code__.replace(co_name=f"root_{id(root)}")
    return call


class _TimedNodes(fx.Interpreter):
    """Runs a graph node by node and keeps the least time of each, device work included."""

    def __init__(self, module: fx.GraphModule, times_s: dict[str, float]) -> None:
        super().__init__(module)
        self._times_s = times_s

    def run_node(self, n: fx.Node) -> Any:
        if n.op != "call_function" or n.target is operator.getitem:
            return super().run_node(n)
        _synchronize()
        start = time.perf_counter()
        result = super().run_node(n)
        _synchronize()
        elapsed = time.perf_counter() - start
        self._times_s[n.name] = min(elapsed, self._times_s.get(n.name, elapsed))
        return result


def _synchronize() -> None:
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
