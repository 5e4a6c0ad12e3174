"""A joint graph as plain data, for simulation without torch."""

from __future__ import annotations

import functools
import itertools
import operator
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import sympy
import torch
from torch import fx

from ...predict.partition import MUST_RECOMPUTE, MUST_SAVE
from ...records.graph import ActivationGraph, LayerNodes, OccurrenceNodes
from .joint import (
    base_of,
    is_check_or_mark,
    is_checkpointed,
    is_mutable,
    is_random,
    is_single_symbol,
    is_symbol,
    is_tensor,
    operator_name,
    parts_of,
    storages_of,
    symbols_of,
    tensors_of,
    traced_size,
    value_of,
)
from .partition import JointGraph, may_move


def obstacle(joint: JointGraph) -> str | None:
    """Return why a graph cannot be simulated: something in it that the stock partitioner treats in a way of its own."""
    if not joint.is_functional:
        return "it has side effects"
    nodes = _nodes(joint)
    if not joint.has_stock_partitioner and any(
        tensor.device.type != "cpu" for node in nodes for tensor in tensors_of(node)
    ):
        return "no prediction under Inductor was held against a measured peak on a GPU yet"
    forward = nodes[: _last_forward(nodes) + 1]
    for node in nodes:
        if node.op == "placeholder" and any(word in str(node.target) for word in ("_seed", "_base_offset")):
            return "its random numbers are drawn from seeds that it is given"
        if getattr(node.target, "namespace", None) == "_c10d_functional":
            return "it holds collective operators"
        if node.meta.get("has_backward_hook"):
            return "it has hooks on gradients inside a part that the script checkpoints"
        if is_mutable(node) and node.meta.get("partitioner_tag") in ("is_backward", "must_be_in_backward"):
            return "its backward changes its inputs"
        if node.op not in ("placeholder", "get_attr", "call_function"):
            return f"it holds a node of kind {node.op}"
    for node in forward:
        if node.op == "call_function" and not is_check_or_mark(node) and node.is_impure(impure_random=False):
            return f"its operator {operator_name(node)} has side effects"
    return None


def activation_graph(
    joint: JointGraph,
    names: Mapping[sympy.Symbol, sympy.Expr],
    *,
    node_times_s: Mapping[str, float],
    calls: float,
    continues: bool = False,
) -> ActivationGraph:
    """Write down a joint graph without an ``obstacle``; ``calls`` is how often a training call runs it.

    ``continues`` is as for ``JointGraph.tags``. ``names`` are the dimensions that the symbols of its sizes are. Other
    symbols are written as the values they had.
    """
    nodes = _nodes(joint)
    number = {node: place for place, node in enumerate(nodes)}
    named = {node.name: place for place, node in enumerate(nodes)}
    bases = [base_of(node) if is_tensor(node) else node for node in nodes]
    storages: dict[int, torch.Tensor] = {}
    for tensor in itertools.chain.from_iterable(map(tensors_of, bases)):
        storages.setdefault(tensor.untyped_storage()._cdata, tensor)
    place_of = {key: place for place, key in enumerate(storages)}
    devices = [tensor.device for tensor in storages.values()]
    accelerators = Counter(device for device in devices if device.type != "cpu").most_common(1)
    device = accelerators[0][0] if accelerators else None
    sizes = _size_formulas(storages.values(), nodes, names)
    formulas = tuple(dict.fromkeys(sizes))
    outputs = [node for node in joint.outputs if isinstance(node, fx.Node)]
    forward_outputs = [node for node in joint.outputs[: joint.num_forward_outputs] if isinstance(node, fx.Node)]
    inputs = [node for node in nodes if node.op == "placeholder"]

    def numbers(chosen: Iterable[fx.Node]) -> tuple[int, ...]:
        return tuple(number[node] for node in chosen)

    def of_names(chosen: Iterable[str]) -> tuple[int, ...]:
        return tuple(named[name] for name in chosen)

    return ActivationGraph(
        names=tuple(node.name for node in nodes),
        inputs=tuple(numbers(node.all_input_nodes) for node in nodes),
        storages=tuple(tuple(place_of[key] for key in storages_of(base)) for base in bases),
        sizes=tuple(map(formulas.index, sizes)),
        formulas=formulas,
        forward_outputs=numbers(forward_outputs),
        backward_outputs=numbers(outputs[len(forward_outputs) :]),
        last_forward=_last_forward(nodes),
        primals=numbers(node for node in inputs if not _is_tangent(node)),
        tangents=numbers(node for node in inputs if _is_tangent(node)),
        constants=numbers(node for node in nodes if node.op == "get_attr"),
        symbols=numbers(node for node in nodes if is_symbol(node) or isinstance(value_of(node), float)),
        getitems=numbers(node for node in nodes if node.target is operator.getitem),
        random=numbers(node for node in nodes if is_random(node)),
        updates=numbers(node for node in nodes if is_mutable(node) or is_check_or_mark(node)),
        checkpoints=tuple(
            (place, MUST_RECOMPUTE if is_checkpointed(node) else MUST_SAVE, node.meta.get("ac_graph_id", -1))
            for node, place in number.items()
            if node.meta.get("recompute")
        ),
        layers=tuple(
            LayerNodes(
                each.cluster_id,
                len(each.nodes),
                of_names(each.recompute),
                of_names(each.keep),
                continues and not each.path,
            )
            for each in joint.layers
        ),
        occurrences=tuple(
            OccurrenceNodes(each.cluster_id, each.strategy, of_names(each.subgraph)) for each in joint.occurrences
        ),
        rng_state_bytes=torch.get_rng_state().nbytes if device is None else 16,
        always=tuple(sorted(of_names(joint.always))),
        holds_tangents=holds_tangents(),
        rng_state_elsewhere=device is not None,
        fixed=numbers(node for node in nodes if node.op == "call_function" and not may_move(node)),
        elsewhere=tuple(place for place, own in enumerate(devices) if device is not None and own != device),
        calls=calls,
        times_ns=tuple(round(1e9 * node_times_s.get(node.name, 0.0)) for node in nodes),
    )


def holds_tangents() -> bool:
    """Return whether AOTAutograd's runtime keeps the gradients that a backward is given until it has ended.

    Up to torch 2.12 they are the arguments of a Python function that is under way.
    """
    return torch.__version__ < "2.13"


def _size_formulas(
    storages: Iterable[torch.Tensor], nodes: Iterable[fx.Node], names: Mapping[sympy.Symbol, sympy.Expr]
) -> list[str]:
    """Write the sizes of storages as formulas of the named dimensions."""
    replacements: dict[sympy.Symbol, Any] = {}
    for node in nodes:
        numbers = (part for part in parts_of(node) if is_single_symbol(part))
        for size in (*numbers, *(size for tensor in tensors_of(node) for _, size in symbols_of(tensor))):
            replacements.setdefault(size.node.expr, traced_size(size))
    replacements |= names
    # Sympy takes long, and many storages are of one size.
    write = functools.cache(lambda size: str(sympy.sympify(size).subs(replacements)))
    totals = [tensor.untyped_storage().nbytes() for tensor in storages]
    return [write(total.node.expr if isinstance(total, torch.SymInt) else total) for total in totals]


def _nodes(joint: JointGraph) -> list[fx.Node]:
    return [node for node in joint.nodes.values() if node.op != "output"]


def _is_tangent(node: fx.Node) -> bool:
    return node.op == "placeholder" and "tangents" in str(node.target)


def _last_forward(nodes: list[fx.Node]) -> int:
    """Return where the stock partitioner takes the forward to end."""
    return max(
        place
        for place, node in enumerate(nodes)
        if node.meta.get("partitioner_tag") == "is_forward" or (node.op == "placeholder" and not _is_tangent(node))
    )
