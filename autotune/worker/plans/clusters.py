"""Activations that a joint graph stashes from forward to backward, and the re-computable subgraph behind each stash."""

from __future__ import annotations

import operator
from dataclasses import dataclass

import torch
from torch import fx

from ...records.plan import COMPROMISED, RECOMPUTE
from .joint import (
    Bytes,
    is_checkpointed,
    is_random,
    is_tensor,
    is_view,
    is_whole_slice,
    label,
    node_bytes,
    parameter_storages,
    rng_state_bytes,
    storage_key,
    unique_bytes,
    value_of,
)
from .repeatable import Repeatable, is_heavy

# A chain longer than this is no cluster that anybody would name: with frozen weights little is stashed on the way, and
# the way back from a stash is the whole model.
_LONGEST = 200


@dataclass(frozen=True)
class Occurrence:
    """One stash and the subgraph that produces it: an occurrence of the cluster ``cluster_id``.

    ``subgraph`` are the nodes to recompute, in execution order. ``strategy`` is the one that applies here: 1 when
    recomputing needs nothing that is not kept anyway, 2 when a smaller tensor must be stashed instead. ``saving`` is
    what the strategy no longer stashes. ``is_heavy``: a matrix product, a convolution or attention is among the nodes.
    """

    cluster_id: str
    strategy: int
    subgraph: tuple[str, ...]
    stash: str
    saving: Bytes
    is_heavy: bool = False


def find_occurrences(joint: fx.GraphModule, saved_names: list[str], repeatable: Repeatable) -> list[Occurrence]:
    """List the stashes of a joint graph in execution order, with the subgraphs that save most.

    A stash occurs once with the light operators before it, and again with heavy ones where those save more.
    ``saved_names`` are those of what the stock partitioner saves without any plan.
    """
    nodes = {node.name: node for node in joint.graph.nodes}
    order = {node: position for position, node in enumerate(joint.graph.nodes)}
    kept = parameter_storages(joint.graph)
    stashes: dict[int, list[fx.Node]] = {}
    # Where the script checkpoints blocks itself, the partitioner also saves states of generators: no nodes, no stashes.
    for node in (nodes[name] for name in saved_names if name in nodes):
        key = storage_key(node)
        if key is not None and key not in kept:
            # Views of one storage are one stash: recomputing only some of them would free nothing.
            stashes.setdefault(key, []).append(node)
    found = []
    for group in stashes.values():
        light = _occurrence(_way_back(group, set(stashes), kept, repeatable, heavy=False), kept, order)
        heavy = _occurrence(_way_back(group, set(stashes), kept, repeatable, heavy=True), kept, order)
        if light is not None:
            found.append(light)
        if heavy is not None and heavy.is_heavy and (light is None or heavy.saving.value > light.saving.value):
            found.append(heavy)
    found.sort(key=lambda occurrence: order[nodes[occurrence.stash]])
    return found


@dataclass
class _WayBack:
    """The way from a stash back to what is kept anyway: each node with those of its sources that are not.

    ``ends`` cannot be run again; those that are tensors could be stashed instead, at ``price``, and nodes between.
    """

    group: list[fx.Node]
    sources: dict[fx.Node, list[fx.Node]]
    ends: set[fx.Node]
    price: dict[fx.Node, Bytes]


def _way_back(
    group: list[fx.Node], stashed: set[int], kept: set[int | None], repeatable: Repeatable, *, heavy: bool
) -> _WayBack | None:
    """Walk back from a stash; None where it cannot be recomputed."""
    own = storage_key(group[0])
    way = _WayBack(group, {}, set(), {})
    pending = list(group)
    while pending:
        node = pending.pop()
        if node in way.sources:
            continue
        # What the script's own checkpoint hands from one region to the next stays saved, whatever a plan says.
        if len(way.sources) > _LONGEST or not repeatable(node, heavy=heavy) or is_checkpointed(node):
            return None
        way.sources[node] = []
        for source in node.all_input_nodes:
            key = storage_key(source)
            # Inputs, symbols, and what the script recomputes itself, are there in the backward.
            is_symbol = isinstance(value_of(source), (torch.SymInt, torch.SymFloat, torch.SymBool))
            if source.op == "placeholder" or is_symbol or is_checkpointed(source):
                continue
            can_repeat = repeatable(source, heavy=heavy)
            if is_tensor(source) and key in kept and not can_repeat:
                continue
            if is_tensor(source) and key in stashed and key != own and not (is_view(source) and can_repeat):
                continue
            way.sources[node].append(source)
            # Of the views of a tensor none can be stashed but the tensor itself, which they would keep.
            if is_tensor(source) and not (is_view(source) and can_repeat):
                way.price[source] = node_bytes(source)
            if can_repeat:
                pending.append(source)
            else:
                way.ends.add(source)
    return way


def _occurrence(way: _WayBack | None, kept: set[int | None], order: dict[fx.Node, int]) -> Occurrence | None:
    """Choose what of a way back to recompute, at the least price of what must be stashed instead."""
    if way is None:
        return None
    subgraph = set(way.sources)
    if way.ends or any(is_random(node) for node in subgraph):
        subgraph = _cheapest(way)
    if not subgraph:
        return None
    ordered = sorted(subgraph, key=order.__getitem__)
    stash = min(way.group, key=order.__getitem__)
    cluster_id = _cluster_id(ordered, stash)
    size = node_bytes(way.group[0])
    needed = {source for node in ordered for source in way.sources[node] if source not in subgraph}
    smaller = unique_bytes(sorted(needed, key=order.__getitem__), kept)
    instead = smaller + sum((rng_state_bytes(node) for node in ordered), Bytes())
    if not cluster_id or instead.value >= size.value:
        return None
    strategy = COMPROMISED if smaller.value else RECOMPUTE
    names = tuple(node.name for node in ordered)
    return Occurrence(cluster_id, strategy, names, stash.name, size - instead, any(map(is_heavy, ordered)))


def _cheapest(way: _WayBack) -> set[fx.Node]:
    """Choose the nodes to recompute so that what must be stashed instead is least: a minimum cut of the way back.

    Of equal cuts it is the shortest. There is none at a tuple that cannot be run again, nor be stashed.
    """
    import networkx as nx

    # An edge that is cut from `before` to `after` a node stashes it, one from the start redraws it; recomputed is
    # what lies with the stash behind the cut.
    flow = nx.DiGraph()
    for node in (*way.sources, *way.ends):
        price = way.price.get(node)
        if node in way.group or price is None:
            flow.add_edge((node, "before"), (node, "after"))
        else:
            flow.add_edge((node, "before"), (node, "after"), capacity=price.value)
        if node in way.ends:
            flow.add_edge("start", (node, "before"))
        elif is_random(node):
            flow.add_edge("start", (node, "before"), capacity=rng_state_bytes(node).value)
        for source in way.sources.get(node, ()):
            flow.add_edge((source, "after"), (node, "before"))
    for node in way.group:
        flow.add_edge((node, "before"), "stash")
    try:
        _, (_, behind) = nx.minimum_cut(flow, "start", "stash")
    except nx.NetworkXUnbounded:
        return set()
    return {node for node in way.sources if (node, "before") in behind}


def _cluster_id(subgraph: list[fx.Node], stash: fx.Node) -> str:
    """Name the operators in order, each followed by ``+``; a decomposed operator counts once.

    Views do not count, nor slices that leave nothing away: some are there only where sizes are traced as symbols. One
    operator can stash several results, such as a dropout's output and its mask. Results behind the first are told apart
    by ``[index]``, and boolean ones that no index tells apart by ``[mask]``.
    """
    operators: list[tuple[str, int | None]] = []
    for node in subgraph:
        if is_view(node) or is_whole_slice(node) or node.target is operator.getitem:
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
