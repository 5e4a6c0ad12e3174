"""Splitting a joint graph by one set of plans after the other, at a fraction of what the stock partitioner takes.

That one copies the graph six times to find out what ``predict.partition.GraphSplitter`` tells from numbers: what each
half runs, and in which order. Here each half is copied once, in that order.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from ...predict.partition import MUST_RECOMPUTE, MUST_SAVE, GraphSplitter, Tags
from ...records.quota import Quota
from .activation_graph import activation_graph, obstacle
from .graph_pair import Pair
from .joint import is_checkpointed, value_of
from .partition import FIRST_REGION, JointGraph, Policies
from .redrawing import redraw

_POLICIES = {CheckpointPolicy.MUST_RECOMPUTE: MUST_RECOMPUTE, CheckpointPolicy.MUST_SAVE: MUST_SAVE}


class FastSplit:
    """Partitions a joint graph as ``JointGraph.partition`` does, but sooner from the second set of plans on.

    The first one is split in both ways: where the stock partitioner (of this torch, on this graph) makes something
    else, it is asked for the others as well.
    """

    def __init__(self, joint: JointGraph) -> None:
        self._joint = joint
        # What splits the graph, once that was looked into and was right.
        self._splitter: JointSplitter | None = None
        self._was_tried = False

    def partition(self, quota: Quota) -> Pair:
        """Split the graph with the plans of ``quota``, taking its occurrences from it."""
        return self._joint.partition(quota, self._split)

    def _split(self, policies: Policies) -> Pair:
        # Whatever goes wrong with our own way, on a torch that it was not written for: there is torch's.
        if self._splitter is not None:
            with contextlib.suppress(Exception):
                return self._splitter.pair(policies)
            self._splitter = None
        pair = self._joint.split_by_tags(policies)
        if not self._was_tried:
            self._was_tried = True
            with contextlib.suppress(Exception):
                splitter = JointSplitter(self._joint) if JointSplitter.can_split(self._joint) else None
                if splitter is not None and splitter.pair(policies).outlines == pair.outlines:
                    self._splitter = splitter
        return pair


class JointSplitter:
    """Splits one joint graph as the stock partitioner does.

    Args:
        joint: one that ``JointSplitter.can_split``.
    """

    def __init__(self, joint: JointGraph) -> None:
        self._joint = joint
        self._module = joint.module
        self._nodes = [node for node in joint.nodes.values() if node.op != "output"]
        self._number = {node.name: place for place, node in enumerate(self._nodes)}
        graph = activation_graph(joint, {}, node_times_s={}, calls=1.0)
        self._forward_outputs = joint.outputs[: joint.num_forward_outputs]
        self._backward_outputs = joint.outputs[joint.num_forward_outputs :]
        self._primals = [self._nodes[number] for number in graph.primals]
        self._tangents = [self._nodes[number] for number in graph.tangents]
        self._checkpoints = graph.checkpoints
        self._splitter = GraphSplitter(graph)

    @staticmethod
    def can_split(joint: JointGraph) -> bool:
        """Tell whether a graph holds nothing that the stock partitioner treats in a way of its own, symbols included.

        A graph whose compiler has a partitioner of its own is not split here.
        """
        numbers = (torch.SymInt, torch.SymFloat, torch.SymBool, int, float)
        return (
            joint.has_stock_partitioner
            and obstacle(joint) is None
            and not joint.is_dynamic
            and not any(isinstance(value_of(node), numbers) for node in joint.nodes.values())
        )

    def pair(self, policies: Policies) -> Pair:
        """Split the graph."""
        with self._joint.partitioning():
            forward, backward, recomputed = self.halves(policies)
        outputs = self._joint.num_forward_outputs
        return Pair.of(forward, backward, num_forward_outputs=outputs, recomputed=recomputed)

    def halves(self, policies: Policies) -> tuple[fx.GraphModule, fx.GraphModule, tuple[str, ...]]:
        """The forward, the backward, and the names of what both run."""
        from torch.fx._lazy_graph_module import _LazyGraphModule

        split = self._splitter.split(self._tags(policies))
        # A stable sort, as the runtime wants it: behind the others what is saved without a version check.
        saved = sorted(
            (self._nodes[number] for number in split.saved),
            key=lambda node: bool(node.meta.get("saved_tensor_with_no_vc_check")),
        )
        forward = self._half(self._primals, split.forward, [*self._forward_outputs, *saved])
        backward = self._half([*saved, *self._tangents], split.backward, self._backward_outputs)
        halves = _LazyGraphModule(self._module, forward), _LazyGraphModule(self._module, backward)
        redraw(*halves, num_symbols=0)
        both = (self._nodes[number] for number in sorted(set(split.forward) & set(split.backward)))
        operators = (node for node in both if node.op == "call_function" and node.target is not operator.getitem)
        return *halves, tuple(node.name for node in operators)

    def _tags(self, policies: Policies) -> Tags:
        own = {number: policy for number, policy, _ in self._checkpoints}
        regions = {number: region for number, _, region in self._checkpoints if region >= 0}
        for name, (policy, region) in policies.items():
            number = self._number[name]
            if is_checkpointed(self._nodes[number]):
                continue
            own[number] = _POLICIES[policy]
            if region is not None:
                regions[number] = FIRST_REGION + region
        return Tags(own, regions)

    def _half(self, inputs: Iterable[fx.Node], order: Iterable[int], outputs: Sequence[Any]) -> fx.Graph:
        half = fx.Graph()
        copies: dict[fx.Node, fx.Node] = {}
        for node in inputs:
            copies[node] = half.placeholder(node.name)
            copies[node].meta = node.meta
        for number in order:
            node = self._nodes[number]
            copies[node] = half.node_copy(node, copies.__getitem__)
        half.output(tuple(copies[node] if isinstance(node, fx.Node) else node for node in outputs))
        return half
