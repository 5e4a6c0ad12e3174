"""A joint graph as plain data, for simulation without torch."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any

import sympy
import torch
from torch import fx

from ...predict.partition import MUST_RECOMPUTE, MUST_SAVE
from ...records.graph import ActivationGraph, LayerNodes, OccurrenceNodes
from .joint import (
    base_of,
    is_checkpointed,
    is_mutable,
    is_random,
    is_symbol,
    is_tensor,
    tensors_of,
    traced_size,
    value_of,
)
from .partition import JointGraph, may_move

# The stock partitioner passes over these.
_PASSED_OVER = ("_assert_scalar", "_assert_async", "_record_function_enter", "_record_function_exit")


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
        name = getattr(getattr(node.target, "overloadpacket", node.target), "__name__", "")
        if node.op == "call_function" and not name.startswith(_PASSED_OVER) and node.is_impure(impure_random=False):
            return f"its operator {name} has side effects"
    return None


def activation_graph(
    joint: JointGraph,
    names: Mapping[sympy.Symbol, sympy.Expr],
    *,
    node_times_s: Mapping[str, float],
    calls: float,
) -> ActivationGraph:
    """Write a joint graph down.

    Args:
        joint: one without an ``obstacle``.
        names: the dimensions that the symbols of its sizes are; others are written as the values they had.
        node_times_s: measured seconds of its nodes.
        calls: how often a training call runs it.
    """
    nodes = _nodes(joint)
    number = {node: place for place, node in enumerate(nodes)}
    named = {node.name: place for place, node in enumerate(nodes)}
    storages = _Storages(nodes, names)
    held = [storages.of(base_of(node) if is_tensor(node) else node) for node in nodes]
    outputs = [node for node in joint.outputs if isinstance(node, fx.Node)]
    forward_outputs = [node for node in joint.outputs[: joint.num_forward_outputs] if isinstance(node, fx.Node)]
    inputs = [node for node in nodes if node.op == "placeholder"]

    def numbers(chosen: Iterable[fx.Node]) -> tuple[int, ...]:
        return tuple(number[node] for node in chosen)

    def of_names(chosen: Iterable[str]) -> tuple[int, ...]:
        return tuple(named[name] for name in chosen)

    device = storages.most_used_device()
    return ActivationGraph(
        names=tuple(node.name for node in nodes),
        inputs=tuple(numbers(node.all_input_nodes) for node in nodes),
        storages=tuple(held),
        sizes=tuple(storages.sizes),
        formulas=tuple(storages.formulas),
        forward_outputs=numbers(forward_outputs),
        backward_outputs=numbers(outputs[len(forward_outputs) :]),
        last_forward=_last_forward(nodes),
        primals=numbers(node for node in inputs if not _is_tangent(node)),
        tangents=numbers(node for node in inputs if _is_tangent(node)),
        constants=numbers(node for node in nodes if node.op == "get_attr"),
        symbols=numbers(node for node in nodes if is_symbol(node) or isinstance(value_of(node), float)),
        getitems=numbers(node for node in nodes if node.target is operator.getitem),
        random=numbers(node for node in nodes if is_random(node)),
        updates=numbers(node for node in nodes if is_mutable(node)),
        checkpoints=tuple(
            (place, MUST_RECOMPUTE if is_checkpointed(node) else MUST_SAVE, node.meta.get("ac_graph_id", -1))
            for node, place in number.items()
            if node.meta.get("recompute")
        ),
        layers=tuple(
            LayerNodes(each.cluster_id, len(each.nodes), of_names(each.recompute), of_names(each.keep))
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
        elsewhere=storages.elsewhere(device),
        calls=calls,
        times_ns=tuple(round(1e9 * node_times_s.get(node.name, 0.0)) for node in nodes),
    )


def holds_tangents() -> bool:
    """Return whether AOTAutograd's runtime keeps the gradients that a backward is given until it has ended.

    Up to torch 2.12 they are the arguments of a Python function that is under way.
    """
    return torch.__version__ < "2.13"


class _Storages:
    """Numbers the storages of a graph, and writes their sizes as formulas, each formula once."""

    def __init__(self, nodes: Iterable[fx.Node], names: Mapping[sympy.Symbol, sympy.Expr]) -> None:
        self.sizes: list[int] = []
        self.formulas: list[str] = []
        self._devices: list[torch.device] = []
        self._numbers: dict[int, int] = {}
        self._known: dict[Any, int] = {}
        self._replacements: dict[sympy.Symbol, Any] = {}
        for node in nodes:
            for size in (value_of(node), *(size for tensor in tensors_of(node) for size in tensor.shape)):
                if isinstance(size, torch.SymInt) and isinstance(size.node.expr, sympy.Symbol):
                    self._replacements.setdefault(size.node.expr, traced_size(size))
        self._replacements |= names

    def of(self, node: fx.Node) -> tuple[int, ...]:
        """Number the storages that a node's value lies in."""
        return tuple(map(self._number, tensors_of(node)))

    def formula(self, size: Any) -> int:
        """Number a size's formula."""
        known = self._known.get(size)
        if known is None:
            text = str(sympy.sympify(size).subs(self._replacements))
            if text not in self.formulas:
                self.formulas.append(text)
            known = self._known[size] = self.formulas.index(text)
        return known

    def most_used_device(self) -> torch.device | None:
        """Return the accelerator that the graph computes on; None where it computes on the CPU."""
        on_accelerator = [device for device in self._devices if device.type != "cpu"]
        return max(set(on_accelerator), key=on_accelerator.count) if on_accelerator else None

    def elsewhere(self, device: torch.device | None) -> tuple[int, ...]:
        """Return the storages on other devices."""
        return tuple(place for place, own in enumerate(self._devices) if device is not None and own != device)

    def _number(self, tensor: torch.Tensor) -> int:
        storage = tensor.untyped_storage()
        known = self._numbers.get(storage._cdata)
        if known is None:
            total = storage.nbytes()
            expression = total.node.expr if isinstance(total, torch.SymInt) else total
            known = self._numbers[storage._cdata] = len(self.sizes)
            self.sizes.append(self.formula(expression))
            self._devices.append(tensor.device)
        return known


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
