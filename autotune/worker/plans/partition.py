"""Applying plans: tag the chosen subgraphs of a joint graph and let the stock partitioner split it.

The stock ``default_partition`` saves every untagged value that the backward needs, so what is tagged
``MUST_RECOMPUTE`` is recomputed and nothing else: control is exact per occurrence. It also makes recomputed random
operators redraw what they drew (it saves the generator's state). Where a compiler has a partitioner of its own
(Inductor's min-cut), what that one recomputes is tagged in any case, and the plans come on top.
"""

from __future__ import annotations

import contextlib
import operator
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import fx
from torch._guards import TracingContext, detect_fake_mode, tracing
from torch.utils.checkpoint import CheckpointPolicy

from ...records import COMPROMISED, RECOMPUTE, Plan, Quota, level_plans
from ..meters import uncollected
from .again import Outline, Splitter, outline
from .clusters import Occurrence, find_occurrences
from .code import compiled
from .joint import (
    Bytes,
    copy_joint,
    correct_fake_values,
    is_checkpointed,
    is_random,
    is_tensor,
    parameter_storages,
    saved_nodes,
    storage_key,
    unique_bytes,
    value_of,
)
from .layers import Layer, find_layers, layer_tags
from .order import postpone
from .repeatable import Repeatable, is_functional

__all__ = ["JointGraph", "Pair", "Partitioner"]

_FIRST_REGION = 1_000_000

Partitioner = Callable[..., tuple[fx.GraphModule, fx.GraphModule]]
"""As torch's own: called with the joint graph and its inputs, and by name with what it should know."""


@dataclass(frozen=True, eq=False)
class Pair:
    """A joint graph split into forward and backward.

    ``saved`` is what is handed from one to the other. ``signature`` counts the saved symbols and the saved tensors
    without version check, which AOTAutograd's runtime fixed when it compiled the first pair of this graph.
    ``saved_inputs`` tells for each saved tensor whether it is an input of the forward. ``mark`` is the place among
    the saved values of a tensor that each run of the forward makes anew; None where there is none.
    """

    forward: fx.GraphModule
    backward: fx.GraphModule
    saved: Bytes
    signature: tuple[int, int]
    saved_inputs: tuple[bool, ...]
    mark: int | None
    num_forward_outputs: int
    recomputed: tuple[str, ...]

    @property
    def outlines(self) -> list[Outline]:
        """What forward and backward run on what, in order."""
        return [outline(self.forward), outline(self.backward)]

    @cached_property
    def run_forward(self) -> Callable[[list[Any]], Any]:
        """Run the forward on a list of inputs, emptied on the way so that each is freed after its last use."""
        return compiled(self.forward)

    @cached_property
    def run_backward(self) -> Callable[[list[Any]], Any]:
        """Run the backward on a list of saved values and gradients, emptied on the way."""
        return compiled(self.backward)

    def mark_of_forward(self, results: Sequence[Any]) -> int | None:
        """Identify a run of the forward by what it returned; None where that cannot be told."""
        return None if self.mark is None else _storage(results[self.num_forward_outputs + self.mark])

    def mark_of_backward(self, arguments: Sequence[Any]) -> int | None:
        """Identify the run of the forward whose saved values the backward is given, if this pair ran it."""
        # The runtime puts the saved symbols first here, and last in the forward's results.
        position = None if self.mark is None else self.signature[0] + self.mark
        return None if position is None or position >= len(arguments) else _storage(arguments[position])


_Policies = dict[str, tuple[CheckpointPolicy, int | None]]


class JointGraph:
    """A joint graph as traced, kept so that another set of plans costs one more partitioning and no tracing.

    Args:
        joint: the joint graph; it stays the caller's.
        num_forward_outputs: how many of its outputs are the forward's.
        static_input_indices: of the inputs that live as long as the model.
        partitioner: what splits the graph as long as there is no plan; None for the stock ``default_partition``.
    """

    def __init__(
        self,
        joint: fx.GraphModule,
        num_forward_outputs: int,
        static_input_indices: list[int] | None,
        partitioner: Partitioner | None = None,
    ) -> None:
        joint.graph.eliminate_dead_code()
        correct_fake_values(joint)
        self._joint = copy_joint(joint)
        self.num_forward_outputs = num_forward_outputs
        self._static_input_indices = static_input_indices
        # The same choice gives the same pair, as long as somebody holds it: the compiled one needs no switching then.
        self._pairs: weakref.WeakValueDictionary[Any, Pair] = weakref.WeakValueDictionary()
        # What knows how to split the graph once more, and whether that was looked into.
        self._splitter: Splitter | None = None
        self._was_split_again = False
        self.has_stock_partitioner = partitioner is None
        if partitioner is None:
            self.unplanned, self._always = self._split(copy_joint(joint)), frozenset[str]()
        else:
            self.unplanned = self._split(copy_joint(joint), partitioner)
            self._always = _replay(self._joint, self.unplanned)
        self._forward_names = {node.name for node in self.unplanned.forward.graph.nodes}
        self._repeatable = Repeatable(self._joint, num_forward_outputs)
        self.occurrences: list[Occurrence] = []
        self.layers: list[Layer] = []
        # The stock partitioner falls back to choices of its own where a graph has side effects.
        self.is_functional = is_functional(self._joint.graph)
        if self.is_functional:
            saved = [node.name for node in saved_nodes(self.unplanned.forward, num_forward_outputs)]
            self.occurrences = find_occurrences(self._joint, saved, self._repeatable)
            self.layers = find_layers(self._joint, self._forward_names, self._repeatable)

    @property
    def is_dynamic(self) -> bool:
        """Whether symbols are handed to the backward, or tensors whose sizes are symbols."""
        saved = saved_nodes(self.unplanned.forward, self.num_forward_outputs)
        return any(
            _is_symbol(node) or any(not isinstance(size, int) for size in getattr(node.meta.get("val"), "shape", ()))
            for node in saved
        )

    @property
    def always(self) -> frozenset[str]:
        """The nodes that the compiler's own partitioner recomputes, whatever the plans."""
        return self._always

    @property
    def module(self) -> fx.GraphModule:
        """The joint graph itself, not to be changed."""
        return self._joint

    @property
    def nodes(self) -> dict[str, fx.Node]:
        """The joint graph's nodes by name, in order."""
        return {node.name: node for node in self._joint.graph.nodes}

    @property
    def outputs(self) -> list[Any]:
        """What the joint graph returns: the forward's outputs, then the gradients; None where there is nothing."""
        return list(self._joint.graph.find_nodes(op="output")[0].args[0])

    def tags_of(self, layer: Layer) -> tuple[list[str], list[str]]:
        """What a plan for a layer recomputes and what it saves, by node name."""
        return layer_tags(self._joint, layer, self._forward_names, self._repeatable)

    def clusters(self) -> set[tuple[str, int]]:
        """Every cluster of this graph that a plan can name, with the strategy that applies to it."""
        operators = {(each.cluster_id, each.strategy) for each in self.occurrences}
        return operators | {(layer.cluster_id, RECOMPUTE) for layer in self.layers}

    def level_plans(self, level: int) -> tuple[Plan, ...]:
        """What a level stands for in this graph."""
        compromised = (each.cluster_id for each in self.occurrences if each.strategy == COMPROMISED)
        return level_plans(level, (layer.cluster_id for layer in self.layers), compromised)

    def take(self, quota: Quota) -> tuple[list[Layer], list[Occurrence]]:
        """Take this graph's occurrences from a quota, in execution order."""
        layers = [layer for layer in self.layers if quota.take(layer.cluster_id, RECOMPUTE)]
        chosen = [
            occurrence for occurrence in self.occurrences if quota.take(occurrence.cluster_id, occurrence.strategy)
        ]
        return layers, chosen

    def partition(self, quota: Quota) -> Pair:
        """Split the graph with the plans of ``quota``, taking its occurrences from it."""
        return self._known(quota, self._by_stock_partitioner)

    def partition_again(self, quota: Quota) -> Pair:
        """As ``partition``, but sooner from the second set of plans on.

        The first one is split in both ways: where the stock partitioner (of this torch, on this graph) makes something
        else, it is asked for the others as well.
        """
        return self._known(quota, self._again)

    def _known(self, quota: Quota, split: Callable[[_Policies], Pair]) -> Pair:
        policies = self._policies(quota)
        if not policies:
            return self.unplanned
        key = frozenset(policies.items())
        known = self._pairs.get(key)
        if known is None:
            with uncollected():
                known = self._pairs[key] = split(policies)
        return known

    def _policies(self, quota: Quota) -> _Policies:
        layers, occurrences = self.take(quota)
        policies: _Policies = {}
        # What a layer inside a layer would keep is recomputed with the outer one, so larger layers come first.
        for layer in sorted(layers, key=lambda layer: -len(layer.nodes)):
            number = self.layers.index(layer) + 1
            inner, border = self.tags_of(layer)
            for name in inner:
                policies.setdefault(name, (CheckpointPolicy.MUST_RECOMPUTE, number))
            for name in border:
                policies.setdefault(name, (CheckpointPolicy.MUST_SAVE, None))
        for occurrence in occurrences:
            for name in occurrence.subgraph:
                policies.setdefault(name, (CheckpointPolicy.MUST_RECOMPUTE, None))
        if policies:
            for name in self._always:
                policies.setdefault(name, (CheckpointPolicy.MUST_RECOMPUTE, None))
        return policies

    def _by_stock_partitioner(self, policies: _Policies) -> Pair:
        return self._split(self._tagged(policies))

    def _again(self, policies: _Policies) -> Pair:
        # Whatever goes wrong with our own way, on a torch that it was not written for: there is torch's.
        if self._splitter is not None:
            with contextlib.suppress(Exception):
                return self._split_again(self._splitter, policies)
            self._splitter = None
        pair = self._by_stock_partitioner(policies)
        if not self._was_split_again:
            self._was_split_again = True
            with contextlib.suppress(Exception):
                splitter = Splitter(self) if Splitter.can_split(self) else None
                if splitter is not None and self._split_again(splitter, policies).outlines == pair.outlines:
                    self._splitter = splitter
        return pair

    def _tagged(self, policies: dict[str, tuple[CheckpointPolicy, int | None]]) -> fx.GraphModule:
        """A copy of the joint graph with what is to be recomputed and what is to be saved by node name."""
        tagged = copy_joint(self._joint)
        for node in tagged.graph.nodes:
            policy, layer_number = policies.get(node.name, (None, None))
            if policy is None or is_checkpointed(node):
                continue
            node.meta["recompute"] = policy
            if layer_number is not None:
                # The partitioner saves what one checkpointed region hands to one with a higher number. The script's
                # own regions count from zero.
                node.meta["ac_graph_id"] = _FIRST_REGION + layer_number
        return tagged

    def _split(self, joint: fx.GraphModule, partitioner: Partitioner | None = None) -> Pair:
        from torch._functorch.partitioners import default_partition
        from torch.fx._lazy_graph_module import _LazyGraphModule

        recomputes = any(is_checkpointed(node) for node in joint.graph.nodes)
        with self._partitioning():
            forward, backward = (partitioner or default_partition)(
                joint,
                None,
                num_fwd_outputs=self.num_forward_outputs,
                static_lifetime_input_indices=self._static_input_indices,
            )
        forward_names = {node.name for node in forward.graph.nodes if node.op == "call_function"}
        operators = [node for node in joint.graph.nodes if node.target is not operator.getitem]
        backward_names = {node.name for node in backward.graph.nodes if node.op == "call_function"}
        # Random ones have lost their names, in both graphs, to operators that keep the generator's state.
        checkpointed = (node for node in operators if is_random(node) and is_checkpointed(node))
        redrawn = [node for node in checkpointed if node.name not in forward_names | backward_names]
        again = forward_names & backward_names | {node.name for node in redrawn}
        if recomputes and self.has_stock_partitioner:
            postpone(backward.graph, _lasting(forward.graph), redrawn)
            backward = _LazyGraphModule(backward, backward.graph)
        return self._pair(forward, backward, tuple(node.name for node in operators if node.name in again))

    def _split_again(self, splitter: Splitter, policies: _Policies) -> Pair:
        with self._partitioning():
            return self._pair(*splitter(policies, _FIRST_REGION))

    def _pair(self, forward: fx.GraphModule, backward: fx.GraphModule, recomputed: tuple[str, ...]) -> Pair:
        saved = saved_nodes(forward, self.num_forward_outputs)
        lasting = _lasting(forward.graph)
        marks = (place for place, node in enumerate(saved) if is_tensor(node) and storage_key(node) not in lasting)
        return Pair(
            forward=forward,
            backward=backward,
            saved=unique_bytes(saved, parameter_storages(forward.graph)),
            signature=(sum(_is_symbol(node) for node in saved), sum(_has_no_version_check(node) for node in saved)),
            saved_inputs=tuple(node.op == "placeholder" for node in saved if is_tensor(node)),
            mark=next(marks, None),
            num_forward_outputs=self.num_forward_outputs,
            recomputed=recomputed,
        )

    @cached_property
    def _fake_mode(self) -> Any:
        return detect_fake_mode([value_of(node) for node in self._joint.graph.nodes if is_tensor(node)])

    @contextlib.contextmanager
    def _partitioning(self) -> Iterator[None]:
        """What a partitioner needs around it."""
        from torch.fx._lazy_graph_module import _use_lazy_graph_module

        context = TracingContext.try_get() or TracingContext(self._fake_mode)
        # Not with generators as inputs: those are counted for the first pair of graphs only, and draw other values than
        # the script does.
        generators = torch._functorch.config.patch(graphsafe_rng_functionalization=False)
        # Nor with code for the graphs: they are run node by node, or compiled by what writes code of its own.
        lazily = _use_lazy_graph_module(True)
        with tracing(context), _static_shapes(context.fake_mode), generators, lazily:
            yield


def _replay(joint: fx.GraphModule, pair: Pair) -> frozenset[str]:
    """Prepare a joint graph so that the stock partitioner can repeat how another one has split it.

    The stock partitioner goes by where a node stands: what the other runs in the forward is moved there, though the
    backward alone needs it (a mask in place of what it is made of).

    Returns:
        The nodes in the forward's part that the other runs in the backward, again or only there: what to recompute.
    """
    nodes = list(joint.graph.nodes)
    ends = (node.op == "placeholder" or node.meta.get("partitioner_tag") == "is_forward" for node in nodes)
    border = max(position for position, is_forward in enumerate(ends) if is_forward)
    in_forward = {node.name for node in pair.forward.graph.nodes if node.op == "call_function"}
    standing = {node.name for node in nodes[: border + 1]}
    last = nodes[border]
    for node in nodes[border + 1 :]:
        # Not what updates inputs at the end of the forward: that has a place of its own.
        if node.name in in_forward and node.meta.get("partitioner_tag") != "must_be_in_forward":
            last.append(node)
            node.meta["partitioner_tag"] = "is_forward"
            standing.add(node.name)
            last = node
    joint.recompile()
    return frozenset(
        node.name
        for node in pair.backward.graph.nodes
        if node.op == "call_function" and node.name in standing and not _is_symbol(node)
    )


@contextlib.contextmanager
def _static_shapes(fake_mode: Any) -> Iterator[None]:
    """Have the states of generators, which the partitioner saves, traced with a fixed size.

    With a symbol for it, AOTAutograd's runtime would keep the place of each of them in the first pair of graphs, and
    fail on a pair that saves fewer tensors.
    """
    before, fake_mode.static_shapes = fake_mode.static_shapes, True
    try:
        yield
    finally:
        fake_mode.static_shapes = before


def _lasting(forward: fx.Graph) -> set[int | None]:
    """Storages that live longer than the step: of the forward's inputs and constants."""
    return parameter_storages(forward) | {storage_key(node) for node in forward.find_nodes(op="get_attr")}


def _is_symbol(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool, int))


def _has_no_version_check(node: fx.Node) -> bool:
    value: Any = node.meta.get("saved_tensor_with_no_vc_check", False)
    return bool(value)


def _storage(value: Any) -> int | None:
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None
