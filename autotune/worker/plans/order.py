"""The order of a backward that recomputes: nothing is made before it must be, where waiting keeps nothing else."""

from __future__ import annotations

import torch
from torch import fx

from .joint import is_random, is_tensor, storage_key

__all__ = ["postpone"]


def postpone(graph: fx.Graph, lasting: set[int | None]) -> None:
    """Move nodes of a backward graph down, so that its peak falls or stays as it is.

    The partitioner recomputes what a node needs right before it, and autograd takes the gradient of a matrix product's
    input before that of its weight. The first would wait, unused, for what the second has recomputed.

    Args:
        graph: the backward.
        lasting: storages that the backward does not free, the parameters'.
    """
    if any(_changes_something(node) for node in graph.nodes):
        return
    uses: dict[int | None, list[fx.Node]] = {}
    for node in graph.nodes:
        for source in node.all_input_nodes:
            uses.setdefault(storage_key(source), []).append(node)
    for node in reversed(list(graph.nodes)):
        if (
            not isinstance(node.target, torch._ops.OpOverload)
            or not is_tensor(node)
            or is_random(node)
            or not node.users
        ):
            continue
        own = storage_key(node)
        limits = [min(node.users)]
        for source in node.all_input_nodes:
            key = storage_key(source)
            if not is_tensor(source):
                limits.append(node)
            elif key not in lasting and key != own:
                # No later than another node has the last use of it.
                limits.append(max((user for user in uses[key] if user is not node), default=node))
        limit = min(limits)
        if node < limit and node.next is not limit:
            limit.prepend(node)


def _changes_something(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
