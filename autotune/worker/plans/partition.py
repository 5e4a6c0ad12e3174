"""Applying plans: tag the chosen subgraphs of a joint graph and let the stock partitioner split it.

The stock ``default_partition`` saves every untagged value that the backward needs, so what is tagged
``MUST_RECOMPUTE`` is recomputed and nothing else: control is exact per occurrence. It also makes recomputed random
operators redraw what they drew (it saves the generator's state).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import fx
from torch._functorch.partitioners import default_partition
from torch._guards import TracingContext, detect_fake_mode, tracing
from torch.utils.checkpoint import CheckpointPolicy

from ...records import ALL, NONE, RECOMPUTE, Plan
from .clusters import Occurrence, find_occurrences
from .joint import Bytes, copy_joint, parameter_storages, saved_nodes, unique_bytes
from .layers import Layer, find_layers, layer_tags

__all__ = ["JointGraph", "Pair", "Quota"]


@dataclass(frozen=True)
class Pair:
    """A joint graph split into forward and backward.

    ``run_forward`` and ``run_backward`` take the list of inputs and empty it as they go, so that each input is freed
    after its last use. ``saved`` is what is handed from one to the other; ``signature`` are the numbers of saved symbols and of saved
    tensors without version check, which AOTAutograd's runtime fixed when it compiled the first pair of this graph.
    """

    forward: fx.GraphModule
    backward: fx.GraphModule
    saved: Bytes
    signature: tuple[int, int]
    recomputed: tuple[str, ...]

    @cached_property
    def run_forward(self) -> Callable[[list[Any]], Any]:
        return _boxed(self.forward)

    @cached_property
    def run_backward(self) -> Callable[[list[Any]], Any]:
        return _boxed(self.backward)


class Quota:
    """How many occurrences of each cluster are still to be recomputed, counted over all graphs in execution order."""

    def __init__(self, plans: Iterable[Plan]) -> None:
        self._left: dict[str, int] = {}
        self._strategy: dict[str, int] = {}
        for plan in plans:
            if plan.strategy != NONE and plan.count != 0:
                self._left[plan.cluster_id] = plan.count
                self._strategy[plan.cluster_id] = plan.strategy
        self.matched: Counter[str] = Counter()

    def take(self, cluster_id: str, strategy: int) -> bool:
        """Whether the next occurrence of a cluster, with the strategy that applies to it, is to be recomputed."""
        left = self._left.get(cluster_id, 0)
        if left == 0 or self._strategy[cluster_id] != strategy:
            return False
        self.matched[cluster_id] += 1
        if left != ALL:
            self._left[cluster_id] = left - 1
        return True

    def unmatched(self) -> tuple[str, ...]:
        """Clusters that no occurrence was found of."""
        return tuple(cluster_id for cluster_id in self._left if not self.matched[cluster_id])


class JointGraph:
    """A joint graph as traced, kept so that another set of plans costs one more partitioning and no tracing."""

    def __init__(self, joint: fx.GraphModule, num_forward_outputs: int, static_input_indices: list[int] | None) -> None:
        joint.graph.eliminate_dead_code()
        self._joint = copy_joint(joint)
        self._num_forward_outputs = num_forward_outputs
        self._static_input_indices = static_input_indices
        self.unplanned = self._split(copy_joint(joint))
        self._forward_names = {node.name for node in self.unplanned.forward.graph.nodes}
        saved = [node.name for node in saved_nodes(self.unplanned.forward, num_forward_outputs)]
        self.occurrences: list[Occurrence] = find_occurrences(self._joint, saved)
        self.layers: list[Layer] = find_layers(self._joint, self._forward_names)
        self.signature = self.unplanned.signature

    @property
    def is_dynamic(self) -> bool:
        """Whether symbols are handed to the backward, or tensors whose sizes are symbols."""
        saved = saved_nodes(self.unplanned.forward, self._num_forward_outputs)
        return any(
            _is_symbol(node) or any(not isinstance(size, int) for size in getattr(node.meta.get("val"), "shape", ()))
            for node in saved
        )

    @property
    def nodes(self) -> dict[str, fx.Node]:
        """The joint graph's nodes by name."""
        return {node.name: node for node in self._joint.graph.nodes}

    def cluster_ids(self) -> set[str]:
        """Every cluster of this graph that a plan can name."""
        ids = {occurrence.cluster_id for occurrence in self.occurrences if occurrence.strategy != NONE}
        return ids | {layer.cluster_id for layer in self.layers}

    def take(self, quota: Quota) -> tuple[list[Layer], list[Occurrence]]:
        """Take this graph's occurrences from a quota, in execution order."""
        layers = [layer for layer in self.layers if quota.take(layer.cluster_id, RECOMPUTE)]
        chosen = [
            occurrence for occurrence in self.occurrences if quota.take(occurrence.cluster_id, occurrence.strategy)
        ]
        return layers, chosen

    def partition(self, quota: Quota) -> Pair:
        """Split the graph with the plans of ``quota``, taking its occurrences from it."""
        recompute: dict[str, int | None] = {}
        save: set[str] = set()
        layers, occurrences = self.take(quota)
        for layer in layers:
            inner, border = layer_tags(self._joint, layer, self._forward_names)
            recompute |= dict.fromkeys(inner, self.layers.index(layer) + 1)
            save |= set(border)
        for occurrence in occurrences:
            for name in occurrence.subgraph:
                recompute.setdefault(name, None)
        if not recompute:
            return self.unplanned
        tagged = copy_joint(self._joint)
        for node in tagged.graph.nodes:
            if node.name in save:
                node.meta["recompute"] = CheckpointPolicy.MUST_SAVE
            elif node.name in recompute:
                node.meta["recompute"] = CheckpointPolicy.MUST_RECOMPUTE
                layer_number = recompute[node.name]
                if layer_number is not None:
                    # The partitioner saves what one checkpointed region hands to the next by these numbers.
                    node.meta["ac_graph_id"] = layer_number
        return self._split(tagged)

    def _split(self, joint: fx.GraphModule) -> Pair:
        values = [node.meta["val"] for node in joint.graph.nodes if isinstance(node.meta.get("val"), torch.Tensor)]
        context = TracingContext.try_get() or TracingContext(detect_fake_mode(values))
        with tracing(context):
            forward, backward = default_partition(
                joint,
                None,
                num_fwd_outputs=self._num_forward_outputs,
                static_lifetime_input_indices=self._static_input_indices,
            )
        saved = saved_nodes(forward, self._num_forward_outputs)
        forward_names = {node.name for node in forward.graph.nodes if node.op == "call_function"}
        recomputed = tuple(
            node.name for node in backward.graph.nodes if node.op == "call_function" and node.name in forward_names
        )
        return Pair(
            forward,
            backward,
            unique_bytes(saved, parameter_storages(forward.graph)),
            (sum(_is_symbol(node) for node in saved), sum(_has_no_version_check(node) for node in saved)),
            recomputed,
        )


def _is_symbol(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool, int))


def _has_no_version_check(node: fx.Node) -> bool:
    value: Any = node.meta.get("saved_tensor_with_no_vc_check", False)
    return bool(value)


def _boxed(module: fx.GraphModule) -> Callable[[list[Any]], Any]:
    from torch._dynamo.backends.debugging import boxed_nop

    return boxed_nop(module, [])
