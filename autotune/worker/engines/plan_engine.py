"""Base of the engines that partition AOTAutograd's graphs by plan.

The base lists the graphs, partitions them by the current plans, and checks whether those partitions are what ran.
Joint graphs are kept, so that other plans cost one more partitioning. Where graphs are run as they are, the function
that AOTAutograd compiled calls whichever pair of them is current.
"""

from __future__ import annotations

import functools
import math
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any

import torch
from torch import fx, nn

from ...records.configuration import Configuration, Shapes, SizedPlans
from ...records.engines import ENGINES
from ...records.outcome import Fallback, InvalidPlan
from ...records.plan import Plan, Quota
from ..call_stack import hook_on_saved_tensors, in_backward, is_of_checkpoint, modules_under_way
from ..failure import raised_by_compiler
from ..garbage import uncollected
from ..plans.graph_pair import Pair
from ..plans.joint import sizes_of
from ..plans.layers import Block, block_name_of, repeated_modules
from ..plans.partition import JointGraph, PartitionFunction
from .graphs import CHECKPOINTED, Graph, Observer, Slot
from .messages import put_off_messages
from .port import Engine, NothingRan, Problem
from .timed_nodes import TimedNodes
from .untraced import in_root, keep_untraced

_GRAPH_INDEX = "autotune_graph_index"
_BATCHES_ONLY = "--engine eager searches batch sizes only."
_FEW = 4
# A loop over time steps may call a graph any number of times. Calls beyond these have the plans of the last.
_MOST_CALLS = 256
_LISTS_PLANS = "`autotune discover SCRIPT` lists the plans of a script."


class PlanEngine(Engine):
    """Compiles root modules, partitions their graphs by plan, and switches plans without tracing again where it can.

    Counts run over the calls of graphs in the order in which each ran first, which is execution order.
    """

    def __init__(self) -> None:
        super().__init__()
        # The script's own torch.compile is watched; this is the untouched one.
        self.torch_compile = torch.compile
        # Each call of a compiled graph that plans may change, in the order of the first time.
        self.graphs: list[Graph] = []
        # Those that the script's own checkpoints run again: they leave nothing to plans.
        self.checkpointed: list[Graph] = []
        self._compiled: list[Graph] = []
        self._profiling = False
        # Whether what a graph hands to the next is to be traced with symbols for the sizes that are some in it.
        self.traces_sizes = False
        self.observer: Observer | None = None
        self._compiled_in_call: Counter[str] = Counter()
        self._training_call = 1
        # The latest compilation of Dynamo's, and how many graphs it has made: several where DistributedDataParallel
        # splits one.
        self._compilation: Any = None
        self._parts = 0
        # How often each place in a frame has run in the call of a root that is under way; and those places for which a
        # backward has run since: the next forward is of another call of a root.
        self._calls: Counter[tuple[str, int]] = Counter()
        self._is_over: set[tuple[str, int]] = set()
        # Whether a checkpoint of the script's own runs a whole root again, in a backward.
        self._repeats_root = False
        self._hooks_around_root: Any = None
        # The frames of the calls of blocks, under way, that new graphs are of, or parts of.
        self._block_calls: list[FrameType] = []

    # -- applying

    def use(self, configuration: Configuration) -> str | None:
        """Make a configuration current; gives the reason when the compiled graphs cannot be switched to it."""
        self.configuration = configuration
        self.active = configuration.engine == self.name
        for graph in (*self.graphs, *self.checkpointed):
            graph.reset_counts()
        try:
            wanted = self._pairs_under(None)
        except Exception as error:
            # Called from a hook inside the script's own step; the reason goes to the user.
            return f"a graph of the script cannot be partitioned by these plans: {type(error).__name__}: {error}"
        refusal = next(filter(None, (graph.why_not(pair) for graph, pair in wanted)), None)
        if refusal is None:
            for graph, pair in wanted:
                graph.begin(pair)
        return refusal

    def use_sized(self, sized: tuple[SizedPlans, ...]) -> None:
        """Run smaller batches under these plans from here on, where a graph can be switched to them."""
        self.configuration = replace(self.configuration, sized=sized)
        self._take(None)
        for graph in self.graphs:
            graph.pairs = {None: graph.pairs[None]}

    def begin_call(self, shapes: Shapes = ()) -> None:
        """Begin a training call of a root; graphs compiled in one call have slots of their own."""
        self._training_call += 1
        self._compiled_in_call.clear()
        self._calls.clear()
        self._is_over.clear()
        self._block_calls.clear()
        self._repeats_root, self._hooks_around_root = False, hook_on_saved_tensors()
        if self.configuration.sized and self.active:
            self._take(next((one for one in self.configuration.sized if one.hold_for(shapes)), None))

    def repeat_call(self, *, is_root: bool) -> None:
        """Begin a call in a backward, where the script's own checkpoint runs a root again, or a part of it."""
        self._calls.clear()
        self._is_over.clear()
        self._repeats_root, self._hooks_around_root = is_root, hook_on_saved_tensors()

    @property
    def is_in_checkpoint(self) -> bool:
        """Return whether the call of a root that has begun is one that a checkpoint of the script's own runs again."""
        return is_of_checkpoint(self._hooks_around_root)

    def end_call(self) -> None:
        """Let go what belongs to the call of a root: a frame holds the activations that it was given."""
        self._block_calls.clear()

    def _take(self, sized: SizedPlans | None) -> None:
        if any(sized not in graph.pairs for graph in self.graphs):
            self._add_pairs(sized)
        for graph in self.graphs:
            graph.current = graph.pairs[sized]

    def _add_pairs(self, sized: SizedPlans | None) -> None:
        """Add each graph's pair under the plans for smaller batches; the configuration's where it cannot switch."""
        try:
            found = self._pairs_under(sized)
        except Exception:
            found = []
        pairs = {id(graph): pair for graph, pair in found if graph.why_not(pair) is None}
        for graph in self.graphs:
            graph.pairs.setdefault(sized, pairs.get(id(graph), graph.pairs[None]))

    def _pairs_under(self, sized: SizedPlans | None) -> list[tuple[Graph, Pair]]:
        """Return each graph with its pair under the configuration's plans, or under those for smaller batches."""
        quota, slots = Quota(self._plans(sized)), self.slots()
        variants: dict[Slot, list[Graph]] = {}
        for graph in self.graphs:
            variants.setdefault(graph.slot, []).append(graph)
        found = []
        for chosen in slots:
            others = [graph for graph in variants[chosen.slot] if graph is not chosen]
            found += [(graph, graph.partition(quota.copy())) for graph in others]
            found.append((chosen, chosen.partition(quota)))
        return found

    def plans_of_share(self, share: float) -> tuple[Plan, ...]:
        """Return plans that recompute a share of what the configuration does, the first occurrences of each."""
        counts, plans = self.occurrences(), self.configuration.plans
        joints = [graph.joint for graph in self.slots()]
        plans += tuple({plan for joint in joints for plan in joint.level_plans(self.configuration.level)})
        numbers = {plan: math.ceil(share * plan.applies_to(counts[plan.cluster, plan.strategy])) for plan in plans}
        return tuple(sorted(replace(plan, count=number) for plan, number in numbers.items() if number))

    def leaves_out(self, module: nn.Module) -> bool:
        """Tell whether a module that a compiled root calls outside of its graphs gets plans only as its own root."""
        from torch._dynamo import trace_rules

        # Dynamo goes on behind a break in a graph, with every function that is called there, but not with those in the
        # files of torch.nn. A module without modules inside it saves its inputs, which no plan spares.
        can_trace = not isinstance(module, (nn.RNNBase, torch.jit.ScriptModule)) and module._compiled_call_impl is None
        return can_trace and next(module.children(), None) is not None and trace_rules.check(module.forward)

    def compile_root(self, root: nn.Module, *, block: Block | None = None) -> Callable[..., Any]:
        """Give the compiled form of a root module's call."""
        import torch._dynamo.config
        from torch._dynamo import trace_rules
        from torch._dynamo.eval_frame import skip_code

        # For the whole process, as they are read while the script runs; so not before the baseline was measured.
        # What Dynamo cannot trace runs as the script wrote it; `problem` reports it.
        torch._dynamo.config.suppress_errors = True
        # A model that counts its calls in a plain number would be compiled anew for each, until Dynamo gives up.
        torch._dynamo.config.allow_unspec_int_on_nn_module = True
        put_off_messages()
        keep_untraced(self._mark_mask)
        if torch.__version__ < "2.12":
            # Torch 2.11 misses that a layer is thawed, and would go on without its gradients.
            torch._dynamo.config.skip_tensor_guards_with_matching_dict_tags = False
        forward = _wrapped(root)
        if not trace_rules.check(root.forward):
            # Its own forward is the frame then, the same one as where the script compiles the model itself. Dynamo
            # skips the files of torch.nn: `nn.Sequential.forward` is traced as a part of our function only.
            skip_code(forward.__code__)
        return in_root(self.torch_compile(forward, backend=self.backend(block)))

    def backend(self, block: Block | None = None) -> Any:
        """Return a Dynamo backend that partitions by the current plans; ``block`` as in ``compile_root``."""
        return self.aot_backend(block)

    def aot_backend(self, block: Block | None = None) -> Any:
        """Return a Dynamo backend that runs AOTAutograd's graphs as they are."""
        from torch._dynamo.backends.common import aot_autograd
        from torch._dynamo.backends.debugging import boxed_nop

        compile_ = aot_autograd(
            fw_compiler=self.interpret_forward,
            bw_compiler=self.interpret_backward,
            inference_compiler=boxed_nop,
            partition_fn=functools.partial(self.partition, block=block),
            keep_inference_input_mutations=True,
        )

        def backend(module: fx.GraphModule, inputs: Sequence[Any], **keywords: Any) -> Any:
            # A cache hit would skip the partitioner, and with it the plans.
            with torch._functorch.config.patch(enable_autograd_cache=False), uncollected():
                return compile_(module, inputs, **keywords)

        return backend

    def partition(
        self,
        joint: fx.GraphModule,
        joint_inputs: Any,
        *,
        num_fwd_outputs: int,
        static_lifetime_input_indices: list[int] | None = None,
        block: Block | None = None,
        **_: Any,
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        """Partition a joint graph without a compiler: AOTAutograd calls this once for each of them."""
        from torch._functorch.partitioners import default_partition

        indices = static_lifetime_input_indices
        # A region compiled apart (torch.compiler.nested_compile_region) is partitioned before the graph that holds it,
        # without inputs, and cannot be switched by itself.
        graph = self.add_graph(joint, num_fwd_outputs, indices, block=block) if joint_inputs else None
        if graph is not None:
            return graph.compiled.forward, graph.compiled.backward
        return default_partition(
            joint, joint_inputs, num_fwd_outputs=num_fwd_outputs, static_lifetime_input_indices=indices
        )

    def add_graph(
        self,
        joint: fx.GraphModule,
        num_fwd_outputs: int,
        static_indices: list[int] | None,
        partitioner: PartitionFunction | None = None,
        block: Block | None = None,
        *,
        is_compiled: bool = False,
    ) -> Graph | None:
        """Keep a ``JointGraph`` of these arguments and partition it; None where that failed: it runs without plans."""
        from torch._guards import CompileContext

        compilation, before = CompileContext.try_get(), self._compilation
        frame = str(CompileContext.current_compile_id()).partition("/")[0]
        if ENGINES[self.name].switches:
            # Not by its number, which `torch._dynamo.reset` begins anew.
            self._parts = self._parts + 1 if compilation is before else 0
            self._compilation = compilation
            place = frame, self._parts
        else:
            # All calls of such a graph have one pair, so that it stands for the place where it was compiled first.
            place = frame, self._compiled_in_call[frame]
            self._compiled_in_call[frame] += 1
        slot = Slot(*place, self._calls[place])
        try:
            block = block or _block_under_way()
            kept = JointGraph(joint, num_fwd_outputs, static_indices, partitioner, block, is_compiled=is_compiled)
            continues = self._continues_block(kept, slot)
            pair = kept.partition(self._quota(kept, slot), continues=continues)
        except Exception as error:
            # Never raise into the script; `problem` reports it.
            cause = f"a graph could not be partitioned: {type(error).__name__}: {error}"
            self.failures.append(Fallback(cause, advice=f"Please report this; {_BATCHES_ONLY}"))
            return None
        graph = Graph(slot, kept, pair, pair, {None: pair}, is_fixed=is_compiled, continues=continues)
        pair.forward.meta[_GRAPH_INDEX] = pair.backward.meta[_GRAPH_INDEX] = len(self._compiled)
        self._compiled.append(graph)
        if is_compiled:
            graph.calls[0] = graph
            self._enter_block(kept)
            self.graphs.append(graph)
        return graph

    def _continues_block(self, joint: JointGraph, slot: Slot) -> bool:
        """Return whether a graph that is new in a slot is a part of a block's call that another graph has begun."""
        variant = next((graph for graph in self.graphs if graph.slot == slot), None)
        if variant is not None:
            return variant.continues
        found = _call_of_block() if joint.is_of_block else None
        return found is not None and any(found[1] is known for known in self._block_calls)

    def _enter_block(self, joint: JointGraph) -> None:
        """Note which call of a block a graph is of that runs in this place for the first time."""
        found = _call_of_block() if joint.is_of_block else None
        self._block_calls += [] if found is None else [found[1]]

    def _quota(self, joint: JointGraph, slot: Slot) -> Quota:
        """Return what the configuration's plans leave for a new graph: earlier slots take theirs first."""
        quota = Quota(self._plans(None, joint))
        for graph in self.slots():
            if graph.slot == slot:
                break
            graph.tags(quota)
        return quota

    def slots(self) -> list[Graph]:
        """Return one graph for each slot, in execution order: of its variants the last that ran, else the first."""
        chosen: dict[Slot, Graph] = {}
        for graph in self.graphs:
            if graph.slot not in chosen or graph.forward_calls:
                chosen[graph.slot] = graph
        return list(chosen.values())

    def _plans(self, sized: SizedPlans | None, *new: JointGraph) -> tuple[Plan, ...]:
        """Return the current plans with what the level stands for, or the plans for smaller batches."""
        if not self.active:
            return ()
        if sized is not None:
            return sized.plans
        level, joints = self.configuration.level, dict.fromkeys([*(graph.joint for graph in self.graphs), *new])
        of_level = dict.fromkeys(plan for joint in joints if level for plan in joint.level_plans(level))
        return (*self.configuration.plans, *of_level)

    def count(self, graph: Graph) -> None:
        """Note that a graph's forward runs; not where the script's own checkpoint runs a root in the backward."""
        if not in_backward():
            # Where the script calls no root, each run is a call of its own.
            graph.count(self._training_call if self._training_call > 1 else -1 - graph.forward_calls)

    def _call_of(self, compiled: Graph, arguments: Sequence[Any]) -> Graph:
        """Return which call of a compiled graph runs now, with these arguments."""
        place = compiled.slot.place
        number = CHECKPOINTED
        if not self._is_run_again():
            if place in self._is_over:
                self._is_over.remove(place)
                self._calls[place] = 0
            # Where the script calls no root, each run is a call of its own.
            tells_calls = self._training_call > 1 and ENGINES[self.name].switches
            number = min(self._calls[place], _MOST_CALLS - 1) if tells_calls else 0
            self._calls[place] += 1
        graph = compiled.calls.get(number)
        return self._new_call(compiled, number, arguments) if graph is None else graph

    def _new_call(self, compiled: Graph, number: int, arguments: Sequence[Any]) -> Graph:
        """Have the current plans go on with a call of a compiled graph that runs for the first time."""
        graph = compiled.new_call(number, sizes_of(compiled.compiled.forward, arguments))
        if number == CHECKPOINTED:
            graph.begin(graph.unplanned)
            self.checkpointed.append(graph)
            return graph
        graph.continues = self._continues_block(graph.joint, graph.slot)
        self._enter_block(graph.joint)
        try:
            pair = graph.partition(self._quota(graph.joint, graph.slot))
            refusal = graph.why_not(pair)
        except Exception as error:
            # Never raise into the script.
            pair, refusal = graph.compiled, f"a graph could not be partitioned: {type(error).__name__}: {error}"
        if refusal is not None:
            self.failures.append(Fallback(refusal, advice=_BATCHES_ONLY))
        graph.begin(graph.compiled if refusal else pair)
        self.graphs.append(graph)
        return graph

    def _is_run_again(self) -> bool:
        """Return whether a checkpoint of the script's own, inside of its model, runs again what runs now."""
        if in_backward() and not self._repeats_root:
            return True
        hooks = hook_on_saved_tensors()
        return is_of_checkpoint(hooks) and hooks is not self._hooks_around_root

    def interpret_forward(self, module: fx.GraphModule, _: Any) -> Callable[..., Any]:
        """Return the callable that AOTAutograd keeps for a forward; it looks up the current pair at each call."""
        from torch._guards import TracingContext

        owner = self._owner(module)
        if owner is None:
            return _boxed_default(module)
        owner.follow_runtime(getattr(TracingContext.try_get(), "fw_metadata", None))

        def run(arguments: list[Any]) -> Any:
            graph, observer = self._call_of(owner, arguments), self.observer
            pair = graph.current
            self.count(graph)
            if observer is not None:
                observer.forward_begins(graph, arguments)
            forward = TimedNodes(pair.forward, graph.node_times_s).boxed_run if self._profiling else pair.run_forward
            results = graph.marked(forward(arguments), pair)
            if observer is not None:
                observer.forward_ended(graph, results)
            if self.traces_sizes:
                for place, dimension in owner.varying_outputs:
                    torch._dynamo.maybe_mark_dynamic(results[place], dimension)
            return results

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    def interpret_backward(self, module: fx.GraphModule, _: Any) -> Callable[..., Any]:
        """Return the callable that AOTAutograd keeps for a backward; it looks up its forward's pair at each call."""
        owner = self._owner(module)
        if owner is None:
            return _boxed_default(module)

        def run(arguments: list[Any]) -> Any:
            self._is_over.add(owner.slot.place)
            graph, pair, number = owner.of_backward(arguments)
            observer = self.observer
            if observer is not None:
                observer.backward_begins(graph, number)
            backward = TimedNodes(pair.backward, graph.node_times_s).boxed_run if self._profiling else pair.run_backward
            gradients = backward(arguments)
            if observer is not None:
                observer.backward_ended()
            return gradients

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    def _owner(self, module: fx.GraphModule) -> Graph | None:
        """Return the graph that a forward or backward belongs to; None for the default partition after a failure."""
        # AOTAutograd hands over the forward itself, and a copy of the backward when it first runs; copies keep `meta`.
        index = module.meta.get(_GRAPH_INDEX)
        return None if index is None else self._compiled[index]

    # -- checking

    @property
    def num_compiled(self) -> int:
        """Return how many graphs have been compiled so far."""
        return len(self._compiled)

    @property
    def is_compiled(self) -> bool:
        """Return whether code was generated for what ran."""
        return any(graph.is_fixed for graph in self.graphs)

    def raised(self, error: BaseException) -> bool:
        """Return whether torch's compiler raised it."""
        return raised_by_compiler(error)

    def problem(self) -> Problem | None:
        """Say why what ran is not the current configuration, or None; to be asked after a training step."""
        if not self.active:
            return None
        if self.refusal:
            return Fallback(self.refusal, advice=_BATCHES_ONLY)
        if self.failures:
            return self.failures[0]
        ran = [graph for graph in self.graphs if graph.forward_calls]
        if self.checkpointed and not self.graphs:
            cause = "checkpoints of the script's own recompute all that its graphs keep, so plans can spare nothing"
            return Fallback(cause, advice=_BATCHES_ONLY)
        if not ran:
            why = f" ({'; '.join(self.without_plans)})" if self.without_plans else ""
            cause = f"no graph of the model was captured, so there is nothing to recompute{why}"
            return (Fallback if self.without_plans else NothingRan)(cause, advice=_BATCHES_ONLY)
        limit = torch._dynamo.config.recompile_limit
        # A model may well be compiled once for each of a few resolutions.
        if self._constant_sizes() >= max(_FEW, limit // 2):
            cause = f"an input's size varies: torch compiles the model for each value, and gives up after {limit}"
            return Fallback(cause, advice=f"TORCH_LOGS=recompiles says which size; {_BATCHES_ONLY}")
        if self.configuration.level and not any(graph.joint.layers for graph in self.graphs):
            cause = f"level {self.configuration.level} recomputes layers, and the model has no repeated blocks"
            return Fallback(cause, advice=_LISTS_PLANS)
        unknown = self._unknown(self.configuration.plans)
        unknown += tuple(plan for one in self.configuration.sized for plan in self._unknown(one.plans))
        if unknown:
            known = sorted({f"{name}:{strategy}" for graph in self.graphs for name, strategy in graph.joint.clusters()})
            asked = ", ".join(f"{plan.cluster_id}:{plan.strategy}" for plan in unknown)
            cause = f"the script has no cluster {asked}; it has {', '.join(known) or 'none'}"
            return InvalidPlan(cause, advice=_LISTS_PLANS)
        return None

    def _unknown(self, plans: tuple[Plan, ...]) -> tuple[Plan, ...]:
        quota = Quota(plans)
        for graph in self.slots():
            graph.tags(quota)
        return quota.unmatched()

    def _constant_sizes(self) -> int:
        """Return how many sizes, as constants, tell apart graphs of one slot that are otherwise alike."""
        # Torch traces a size that has changed as a symbol, where the model lets it: a loop over it does not.
        found: dict[Any, set[int]] = {}
        for graph in self.graphs if len(self.graphs) >= _FEW else ():
            sizes, lasting = graph.constant_sizes, {*(graph.joint.static_input_indices or ())}
            # Graphs of one slot may be of several instances, as of blocks of several widths: their weights differ too.
            of_weights = {size for (place, _), size in sizes.items() if place in lasting}
            for size in {*sizes.values()} - of_weights:
                others = frozenset(item for item in sizes.items() if item[1] != size)
                found.setdefault((graph.slot, len(sizes), others), set()).add(size)
        return max(map(len, found.values()), default=0)

    def occurrences(self) -> Counter[tuple[str, int]]:
        """Return how often each cluster occurs in the graphs so far, by its id and the strategy that applies to it."""
        return sum((graph.occurrence_counts() for graph in self.slots()), Counter())

    def level_occurrences(self) -> int:
        """Return how many occurrences the level recomputes beside the plans."""
        level = self.configuration.level
        counts = [(graph.joint.level_plans(level), graph.occurrence_counts()) for graph in self.slots()]
        return sum(count[plan.cluster, plan.strategy] for plans, count in counts for plan in plans)

    def ran_unchanged(self) -> bool:
        """Return whether of the graphs that the plans change none has run: what did is the script without them."""
        changed = [graph for graph in self.graphs if graph.pairs[None] is not graph.joint.unplanned]
        return bool(changed) and not any(graph.forward_calls for graph in changed)

    def forward_calls(self) -> Counter[Slot] | None:
        """Return how often each slot's graphs have run under the configuration; None where that does not show."""
        if any(graph.is_unseen for graph in self.graphs):
            return None
        calls: Counter[Slot] = Counter()
        for graph in self.graphs:
            calls[graph.slot] += graph.forward_calls
        return calls

    def frames_given_up(self) -> int:
        """Return how many functions, of the model or not, Dynamo has left alone after compiling them anew too often."""
        from torch._dynamo.utils import counters

        reasons = counters["unimplemented"]
        return sum(number for reason, number in reasons.items() if "recompile limit" in reason.lower())

    def saved_bytes(self) -> int | None:
        """Return the bytes handed from forward to backward in one training call; None if no graph ran."""
        # What one graph hands to the next and both backwards need (at a graph break) counts as an input, not as saved.
        ran = [graph for graph in self.slots() if graph.forward_calls]
        return sum(graph.saved_bytes for graph in ran) if ran else None

    # -- describing

    def mark_sizes(self, tensors: Sequence[torch.Tensor], marked: Collection[tuple[int, int]] = ()) -> None:
        """Have a module's inputs traced with symbols for sizes that are some in the graphs so far, or are ``marked``.

        Each is a size with the dimension that it is of.
        """
        known = {size for graph in self._compiled for size in graph.varying_sizes}.union(marked)
        _mark(tensors, lambda size, dimension: (size, dimension) in known)

    def _mark_mask(self, tensors: Sequence[torch.Tensor]) -> None:
        # A mask has the length of a sequence as its last two sizes, whatever dimension it is of the inputs.
        known = {size for graph in self.graphs for size, _ in graph.varying_sizes} if self.traces_sizes else set()
        _mark(tensors, lambda size, _: size in known)

    def profile(self, *, on: bool) -> None:
        """Run the graphs node by node and keep each node's least time, or stop doing so."""
        self._profiling = on
        if on:
            for graph in (*self.graphs, *self.checkpointed):
                graph.reset_counts()


def _block_under_way() -> Block | None:
    found = _call_of_block()
    return None if found is None else Block(block_name_of(found[0]))


def _call_of_block() -> tuple[nn.Module, FrameType] | None:
    """Return the innermost repeated block whose call is under way outside of graphs, with the frame of its call."""
    under_way = list(modules_under_way(sys._getframe(1)))
    repeated = {id(module) for module in repeated_modules(under_way[-1][0])} if under_way else ()
    return next(((module, frame) for module, frame in under_way if id(module) in repeated), None)


def _mark(tensors: Sequence[torch.Tensor], is_known: Callable[[int, int], bool]) -> None:
    for tensor in tensors:
        for dimension, size in enumerate(tensor.shape):
            if is_known(size, dimension):
                torch._dynamo.maybe_mark_dynamic(tensor, dimension)


def _wrapped(root: nn.Module) -> Callable[..., Any]:
    """Wrap a root's call in a function with a code object of its own, so that each root has its own Dynamo cache.

    It holds the root weakly: a bound method would keep the script's old models alive.
    """
    reference = weakref.ref(root)

    def call(*arguments: Any, **keywords: Any) -> Any:
        module = reference()
        assert module is not None
        return module._call_impl(*arguments, **keywords)

    call.__code__ = call.__code__.replace(co_name=f"root_{id(root)}")
    return call


def _boxed_default(module: fx.GraphModule) -> Callable[..., Any]:
    from torch._dynamo.backends.debugging import boxed_nop

    return boxed_nop(module, [])


class AotEngine(PlanEngine):
    """Runs the graphs node by node; other plans take effect at the next step, without compiling again."""

    name = "aot"

    def compile_root(self, root: nn.Module, *, block: Block | None = None) -> Callable[..., Any]:
        """Give the compiled form of a root module's call."""
        import torch._functorch.config as functorch

        # For the whole process, as it is read while the script runs; so not before the baseline was measured.
        # Lent buffers are found once, for the first pair of graphs; a switched pair saves other tensors.
        functorch.donated_buffer = False
        return super().compile_root(root, block=block)
