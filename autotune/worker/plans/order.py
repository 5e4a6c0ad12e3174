"""Moving nodes of a backward that recomputes to where they hold least, as the simulation does."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import fx

from ...predict.order import postponed
from .joint import is_mutable, is_random, is_tensor, storages_of


def postpone(backward: fx.Graph, lasting: Collection[int | None]) -> None:
    """Move the nodes of a backward as ``predict.postponed`` does.

    Args:
        backward: the graph; its peak falls or stays, but for what operators allocate besides their results.
        lasting: storages that it does not free.
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
