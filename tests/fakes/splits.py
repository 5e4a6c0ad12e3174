"""What the halves of a graph run, as torch's partitioner made them and as they are simulated."""

from __future__ import annotations

import operator

import torch
from torch import fx

from autotune.records.graph import ActivationGraph


def operators(half: fx.GraphModule) -> list[str]:
    """What a half runs, in order, by node name. Sizes, tuples and what reads a generator's state are left out."""
    return [
        node.name
        for node in half.graph.nodes
        if node.op == "call_function"
        and node.target is not operator.getitem
        and getattr(node.target, "__name__", "") != "rng_state"
        and _has_tensors(node)
    ]


def _has_tensors(node: fx.Node) -> bool:
    return any(isinstance(value, torch.Tensor) for value in torch.utils._pytree.tree_leaves(node.meta.get("val")))


def simulated_operators(graph: ActivationGraph, order: list[int]) -> list[str]:
    skipped = {*graph.getitems, *graph.symbols, *graph.constants}
    return [graph.names[node] for node in order if node not in skipped and graph.storages[node]]
