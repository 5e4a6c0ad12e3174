"""What the halves of a graph run, as torch's partitioner made them and as they are simulated."""

from __future__ import annotations

import operator

import torch
from torch import fx

from autotune.records import ActivationGraph
from autotune.worker.plans.partition import JointGraph


def operators(half: fx.GraphModule) -> list[str]:
    """What a half runs, in order, by node name; what redraws goes by its operator. Sizes and tuples are left out."""
    found = []
    for node in half.graph.nodes:
        if "rng_state" in str(node.target) and node.op == "call_function":
            found.append(next(str(argument) for argument in node.args if isinstance(argument, torch._ops.OpOverload)))
        elif node.op == "call_function" and node.target is not operator.getitem and _has_tensors(node):
            found.append(node.name)
    return found


def _has_tensors(node: fx.Node) -> bool:
    return any(isinstance(value, torch.Tensor) for value in torch.utils._pytree.tree_leaves(node.meta.get("val")))


def simulated_operators(
    joint: JointGraph, graph: ActivationGraph, order: list[int], redrawn: frozenset[int]
) -> list[str]:
    skipped = {*graph.getitems, *graph.symbols, *graph.constants}
    nodes = joint.nodes
    return [
        str(nodes[graph.names[node]].target) if node in redrawn else graph.names[node]
        for node in order
        if node not in skipped and (graph.storages[node] or node in graph.updates)
    ]
