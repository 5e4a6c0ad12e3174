"""Applying plans: tag the chosen subgraphs of a joint graph and let the stock partitioner split it.

The stock ``default_partition`` saves every untagged value that the backward needs, and recomputes exactly what is
tagged ``MUST_RECOMPUTE``. What a compiler's own partitioner recomputes (Inductor's min-cut) is tagged in any case.
"""

from __future__ import annotations

import contextlib
import operator
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch
from torch import fx
from torch._guards import TracingContext, detect_fake_mode, tracing
from torch.utils.checkpoint import CheckpointPolicy

from ...predict.partition import MUST_RECOMPUTE, MUST_SAVE, Tags, plan_tags, postponed
from ...records.plan import COMPROMISED, RECOMPUTE, Plan, Quota, level_plans
from ..garbage import uncollected
from .clusters import Occurrence, find_occurrences
from .graph_pair import Pair
from .joint import (
    copy_joint,
    correct_fake_values,
    is_check_or_mark,
    is_checkpointed,
    is_mutable,
    is_random,
    is_symbol,
    is_tensor,
    lasting_storages,
    saved_nodes,
    storages_of,
    value_of,
)
from .layers import Block, Layer, find_layers
from .redrawing import redrawing
from .repeatable import Repeatable, is_functional


def postpone(backward: fx.Graph, lasting: Collection[int | None]) -> None:
    """Move the nodes of a backward as ``predict.postponed`` does; ``lasting`` are storages that it does not free.

    The peak falls or stays, but for what operators allocate besides their results.
    """
    *nodes, output = backward.nodes
    if any(is_mutable(node) for node in nodes):
        return
    number = {node: place for place, node in enumerate(nodes)}
    order = postponed(
        range(len(nodes)),
        inputs=[[number[source] for source in node.all_input_nodes] for node in nodes],
        storages=[storages_of(node) for node in nodes],
        outputs=[number[node] for node in output.all_input_nodes],
        lasting=lasting,
        fixed={place for node, place in number.items() if not may_move(node)},
    )
    for place in order:
        output.prepend(nodes[place])


def may_move(node: fx.Node) -> bool:
    """Return whether a node makes one tensor and has no other effect: no draw, no communication, nothing unknown."""
    return (
        isinstance(node.target, torch._ops.OpOverload)
        and node.target.namespace in ("aten", "prims")
        and is_tensor(node)
        and not is_random(node)
        and not is_mutable(node)
    )


_POLICIES = {MUST_RECOMPUTE: CheckpointPolicy.MUST_RECOMPUTE, MUST_SAVE: CheckpointPolicy.MUST_SAVE}

PartitionFunction = Callable[..., tuple[fx.GraphModule, fx.GraphModule]]
"""As torch's own: called with the joint graph and its inputs, and by name with what it should know."""


class JointGraph:
    """A joint graph as traced, kept so that another set of plans costs one more partitioning and no tracing.

    Args:
        joint: the joint graph; it stays the caller's.
        num_forward_outputs: how many of its outputs are the forward's.
        static_input_indices: of the inputs that live as long as the model.
        partitioner: what splits the graph as long as there is no plan; None for the stock ``default_partition``.
        block: the repeated block that the graph was compiled for by itself, or for a part of it.
        is_compiled: whether Inductor compiles the halves, once; otherwise they are run node by node, and switched.

    Attributes:
        always: The nodes that the compiler's own partitioner recomputes, whatever the plans.
    """

    def __init__(
        self,
        joint: fx.GraphModule,
        num_forward_outputs: int,
        static_input_indices: list[int] | None,
        partitioner: PartitionFunction | None = None,
        block: Block | None = None,
        *,
        is_compiled: bool = False,
    ) -> None:
        joint.graph.eliminate_dead_code()
        correct_fake_values(joint)
        self._joint = copy_joint(joint)
        _check_once(self._joint)
        self._fake_mode = detect_fake_mode([value_of(node) for node in joint.graph.nodes if is_tensor(node)])
        self.num_forward_outputs = num_forward_outputs
        self.static_input_indices = static_input_indices
        self._is_compiled = is_compiled
        # The same choice gives the same pair, as long as somebody holds it: the compiled one needs no switching then.
        self._pairs: weakref.WeakValueDictionary[Any, Pair] = weakref.WeakValueDictionary()
        self.has_stock_partitioner = partitioner is None
        if partitioner is None:
            self.unplanned, self.always = self._split(copy_joint(self._joint)), frozenset[str]()
        else:
            self.unplanned = self._split(copy_joint(joint), partitioner)
            self.always = _replay(self._joint, self.unplanned)
        self.occurrences: list[Occurrence] = []
        self.layers: list[Layer] = []
        # The stock partitioner falls back to choices of its own where a graph has side effects.
        self.is_functional = is_functional(self._joint.graph)
        if self.is_functional:
            repeatable = Repeatable(self._joint, num_forward_outputs)
            saved = [node.name for node in saved_nodes(self.unplanned.forward, num_forward_outputs)]
            self.occurrences = find_occurrences(self._joint, saved, repeatable)
            forward_names = {node.name for node in self.unplanned.forward.graph.nodes}
            self.layers = find_layers(self._joint, forward_names, repeatable, block)

    @property
    def nodes(self) -> dict[str, fx.Node]:
        """The joint graph's nodes by name, in order."""
        return {node.name: node for node in self._joint.graph.nodes}

    @property
    def outputs(self) -> list[Any]:
        """Return the joint graph's outputs: the forward's outputs, then the gradients; None where there is nothing."""
        return list(self._joint.graph.find_nodes(op="output")[0].args[0])

    def clusters(self) -> set[tuple[str, int]]:
        """Return every cluster of this graph that a plan can name, with the strategy that applies to it."""
        return set(self.occurrence_counts())

    def occurrence_counts(self, *, continues: bool = False) -> Counter[tuple[str, int]]:
        """Return how often each of ``clusters`` occurs in this graph; ``continues`` as in ``tags``."""
        operators = Counter((each.cluster_id, each.strategy) for each in self.occurrences)
        layers = (layer for layer in self.layers if layer.path or not continues)
        return operators + Counter((layer.cluster_id, RECOMPUTE) for layer in layers)

    @property
    def is_of_block(self) -> bool:
        """Return whether all of the graph is a call of a repeated block, or a part of such a call."""
        return any(not layer.path for layer in self.layers)

    def level_plans(self, level: int) -> tuple[Plan, ...]:
        """Return what a level stands for in this graph."""
        compromised = (each.cluster_id for each in self.occurrences if each.strategy == COMPROMISED)
        return level_plans(level, (layer.cluster_id for layer in self.layers), compromised)

    def tags(self, quota: Quota, *, continues: bool = False) -> Tags[str]:
        """Return the tags of a set of plans by node name, and take this graph's occurrences from their quota.

        ``continues``: the graph is a part of a block's call, of which another graph has been before.
        """
        layers = (
            (each.cluster_id, len(each.nodes), each.recompute, each.keep, continues and not each.path)
            for each in self.layers
        )
        return plan_tags(quota, layers, ((each.cluster_id, each.strategy, each.subgraph) for each in self.occurrences))

    def partition(self, quota: Quota, *, continues: bool = False) -> Pair:
        """Split the graph with the plans of ``quota``, taking its occurrences from it; ``continues`` as in ``tags``."""
        tags = self.tags(quota, continues=continues)
        if not tags.policies:
            return self.unplanned
        key = frozenset(tags.policies.items()), frozenset(tags.regions.items())
        known = self._pairs.get(key)
        if known is None:
            with uncollected():
                known = self._pairs[key] = self._split(self._tagged(tags))
        return known

    def _tagged(self, tags: Tags[str]) -> fx.GraphModule:
        """Copy the joint graph, with the tags that the partitioner finds in it."""
        tagged = copy_joint(self._joint)
        policies = {**dict.fromkeys(self.always, MUST_RECOMPUTE), **tags.policies}
        for node in tagged.graph.nodes:
            if node.name in policies and not is_checkpointed(node):
                node.meta["recompute"] = _POLICIES[policies[node.name]]
                if node.name in tags.regions:
                    # The partitioner saves what one checkpointed region hands to one with a higher number.
                    node.meta["ac_graph_id"] = tags.regions[node.name]
        return tagged

    def _split(self, joint: fx.GraphModule, partitioner: PartitionFunction | None = None) -> Pair:
        from torch._functorch.partitioners import default_partition
        from torch.fx._lazy_graph_module import _LazyGraphModule, _use_lazy_graph_module

        recomputes = any(is_checkpointed(node) for node in joint.graph.nodes)
        context = TracingContext.try_get() or TracingContext(self._fake_mode)
        generators = redrawing(is_compiled=self._is_compiled)
        # No code for the graphs: they are run node by node, or compiled by what writes code of its own.
        lazily = _use_lazy_graph_module(True)
        with tracing(context), _static_shapes(context.fake_mode), generators, lazily:
            forward, backward = (partitioner or default_partition)(
                joint,
                None,
                num_fwd_outputs=self.num_forward_outputs,
                static_lifetime_input_indices=self.static_input_indices,
            )
        forward_names = {node.name for node in forward.graph.nodes if node.op == "call_function"}
        operators = [node for node in joint.graph.nodes if node.target is not operator.getitem]
        backward_names = {node.name for node in backward.graph.nodes if node.op == "call_function"}
        again = forward_names & backward_names
        if self._is_compiled:
            # Random ones have lost their names, in both graphs, to torch's wrappers.
            checkpointed = {node.name for node in operators if is_random(node) and is_checkpointed(node)}
            again |= checkpointed - forward_names - backward_names
        if recomputes and self.has_stock_partitioner:
            postpone(backward.graph, lasting_storages(forward.graph))
            backward = _LazyGraphModule(backward, backward.graph)
        recomputed = tuple(node.name for node in operators if node.name in again)
        return Pair(forward, backward, num_forward_outputs=self.num_forward_outputs, recomputed=recomputed)


def _check_once(joint: fx.GraphModule) -> None:
    """Have the forward alone check values.

    The stock partitioner copies a check into the backward if the saved tensors suffice for it. It would save some
    tensors for checks alone.
    """
    for node in joint.graph.nodes:
        if is_check_or_mark(node) and node.meta.get("partitioner_tag") == "is_forward":
            node.meta["partitioner_tag"] = "must_be_in_forward"


def _replay(joint: fx.GraphModule, pair: Pair) -> frozenset[str]:
    """Prepare a joint graph so that the stock partitioner can repeat how another one has split it.

    The stock partitioner goes by where a node stands: what the other runs in the forward is moved there, though the
    backward alone needs it (a mask in place of what it is made of). Return the nodes in the forward's part that the
    other runs in the backward, again or only there: what to recompute.
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
        if node.op == "call_function" and node.name in standing and not is_symbol(node)
    )


@contextlib.contextmanager
def _static_shapes(fake_mode: Any) -> Iterator[None]:
    """Have the states of generators, which the partitioner saves, traced with a fixed size.

    With a symbol AOTAutograd's runtime would keep the place of each, and fail on a pair that saves fewer tensors.
    """
    before, fake_mode.static_shapes = fake_mode.static_shapes, True
    try:
        yield
    finally:
        fake_mode.static_shapes = before
