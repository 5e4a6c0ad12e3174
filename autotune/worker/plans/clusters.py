"""What a joint graph stashes from forward to backward, and the re-computable subgraph behind each stash."""

from __future__ import annotations

import operator
from dataclasses import dataclass

import torch
from torch import fx

from ...records import COMPROMISED, NONE, RECOMPUTE
from .joint import (
    Bytes,
    is_checkpointed,
    is_tensor,
    is_view,
    label,
    node_bytes,
    parameter_storages,
    rng_state_bytes,
    storage_key,
    unique_bytes,
    value_of,
)
from .repeatable import Repeatable

__all__ = ["Occurrence", "find_occurrences"]


@dataclass(frozen=True)
class Occurrence:
    """One stash and the subgraph that produces it: an occurrence of the cluster ``cluster_id``.

    ``subgraph`` are the nodes to recompute, in execution order. ``strategy`` is the one that applies here: 1 when
    recomputing needs nothing that is not kept anyway, 2 when a smaller tensor must be stashed instead, 0 when there
    is nothing to gain. ``saving`` is what the strategy no longer stashes.
    """

    cluster_id: str
    strategy: int
    subgraph: tuple[str, ...]
    stash: str
    saving: Bytes


def find_occurrences(joint: fx.GraphModule, saved_names: list[str], repeatable: Repeatable) -> list[Occurrence]:
    """List the stashes of a joint graph in execution order.

    Args:
        joint: the joint graph.
        saved_names: names of what the stock partitioner saves, without any plan; the states of generators, which
            it adds for blocks that the script checkpoints itself, are no nodes of the joint graph and no stashes.
        repeatable: which of its nodes can be run again.
    """
    nodes = {node.name: node for node in joint.graph.nodes}
    order = {node: position for position, node in enumerate(joint.graph.nodes)}
    kept = parameter_storages(joint.graph)
    stashes: dict[int, list[fx.Node]] = {}
    for node in (nodes[name] for name in saved_names if name in nodes):
        key = storage_key(node)
        if key is not None and key not in kept:
            # Views of one storage are one stash: recomputing only some of them would free nothing.
            stashes.setdefault(key, []).append(node)
    stashed = set(stashes)
    found = []
    for group in stashes.values():
        occurrence = _trace_back(group, stashed, kept, order, repeatable)
        if occurrence is not None:
            found.append(occurrence)
    found.sort(key=lambda occurrence: order[nodes[occurrence.stash]])
    return found


def _trace_back(
    group: list[fx.Node],
    stashed: set[int],
    kept: set[int | None],
    order: dict[fx.Node, int],
    repeatable: Repeatable,
) -> Occurrence | None:
    """Walk from a stash back to what is kept anyway, and collect the nodes in between."""
    own = storage_key(group[0])
    subgraph: set[fx.Node] = set()
    needed: list[fx.Node] = []
    pending = list(group)
    while pending:
        node = pending.pop()
        if node in subgraph:
            continue
        # What the script's own checkpoint hands from one region to the next stays saved, whatever a plan says.
        if not repeatable(node, heavy=False) or is_checkpointed(node):
            return None
        subgraph.add(node)
        for source in node.all_input_nodes:
            key = storage_key(source)
            # Inputs, symbols, and what the script recomputes itself, are there in the backward.
            is_symbol = isinstance(value_of(source), (torch.SymInt, torch.SymFloat, torch.SymBool))
            if source.op == "placeholder" or is_symbol or is_checkpointed(source):
                continue
            if is_tensor(source) and key in kept and not repeatable(source, heavy=False):
                continue
            if is_tensor(source) and key in stashed and key != own and not is_view(source):
                continue
            if repeatable(source, heavy=False):
                pending.append(source)
            elif is_tensor(source):
                needed.append(source)
            else:
                # A tuple that cannot be recomputed: nothing smaller can be stashed in its place.
                return None
    ordered = sorted(subgraph, key=order.__getitem__)
    stash = min(group, key=order.__getitem__)
    cluster_id = _cluster_id(ordered, stash)
    if not cluster_id:
        return None
    size = node_bytes(group[0])
    smaller = unique_bytes([node for node in needed if storage_key(node) not in stashed], kept)
    instead = smaller + sum((rng_state_bytes(node) for node in ordered), Bytes())
    strategy = NONE if instead.value >= size.value else COMPROMISED if smaller.value else RECOMPUTE
    names = tuple(node.name for node in ordered)
    return Occurrence(cluster_id, strategy, names, stash.name, size - instead)


def _cluster_id(subgraph: list[fx.Node], stash: fx.Node) -> str:
    """The operator sequence, each followed by ``+``; views do not count, a decomposed operator counts once.

    One operator can stash several results (the output, the mean and the deviation of a normalization; a dropout's
    output and its mask), each with its own use of memory: results behind the first are told apart by ``[index]``, and
    boolean ones that no index tells apart by ``[mask]``.
    """
    operators: list[tuple[str, int | None]] = []
    for node in subgraph:
        if is_view(node) or node.target is operator.getitem:
            continue
        name, number = label(node), node.meta.get("seq_nr")
        before, number_before = operators[-1] if operators else ("", None)
        # What Inductor's passes put in the place of a node has the node's operator, but no number.
        if name == before and (number == number_before or None in (number, number_before)):
            operators[-1] = name, number_before if number is None else number
        else:
            operators.append((name, number))
    if not operators:
        return ""
    cluster_id = "".join(f"{name}+" for name, _ in operators)
    if stash.target is operator.getitem and stash.args[1]:
        cluster_id += f"[{stash.args[1]}]"
    elif stash.target is not operator.getitem and value_of(stash).dtype == torch.bool:
        cluster_id += "[mask]"
    return cluster_id
