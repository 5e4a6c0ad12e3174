"""Nodes of a joint graph that the backward can run again without changing what the step computes."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from .joint import ancestors, arguments_of, device_of, is_mutable, is_random, is_tensor, label, storage_key

aten = torch.ops.aten

# Operators whose time is often worth more than the memory they stash: clusters with them stand beside those without.
# Not every version of torch has each of them.
_HEAVY = {
    getattr(aten, name)
    for name in (
        *("mm", "bmm", "addmm", "baddbmm", "convolution"),
        *("_int_mm", "_scaled_mm", "_grouped_mm", "_scaled_grouped_mm"),
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_cudnn_attention",
        "_scaled_dot_product_fused_attention_overrideable",
        "_flash_attention_forward",
        "_efficient_attention_forward",
        "_cudnn_attention_forward",
        "_cudnn_rnn",
    )
    if hasattr(aten, name)
}

# Recomputing these would draw a second seed, and the backward would see another dropout mask than the forward.
_SEED_OPERATORS = ("prims.inductor_seeds", "prims.inductor_lookup_seed")

# In training these read the running statistics only for the results from this index on, the updated statistics.
_NORMALIZATIONS: dict[Any, int] = {
    aten._native_batch_norm_legit_functional: 3,
    aten._batch_norm_with_update_functional: 4,
}


class Repeatable:
    """The nodes of a joint graph that the backward can run again, with the same values and no other effect.

    Left out are nodes that change something, draw seeds, or read what the forward changes afterwards (a buffer updated
    in place). Random nodes count only where the forward runs them, with the current device's own generator.
    """

    def __init__(self, joint: fx.GraphModule, num_forward_outputs: int) -> None:
        # The forward runs these for its own outputs, whatever the backward needs.
        in_forward = ancestors(joint.graph.find_nodes(op="output")[0].args[0][:num_forward_outputs])
        self._barred = _readers_of_changed(joint.graph) | {
            node for node in joint.graph.nodes if is_random(node) and (node not in in_forward or _is_elsewhere(node))
        }

    def __call__(self, node: fx.Node, *, heavy: bool) -> bool:
        """Return whether a node can be run again; ``heavy`` lets matrix products, convolutions and attention be."""
        if node.op != "call_function" or node in self._barred:
            return False
        if node.target is operator.getitem:
            source = node.args[0]
            return isinstance(source, fx.Node) and self(source, heavy=heavy)
        if not isinstance(node.target, torch._ops.OpOverload) or is_mutable(node):
            return False
        if node.target.namespace not in ("aten", "prims", "inductor"):
            return False
        if str(node.target.overloadpacket) in _SEED_OPERATORS:
            return False
        return heavy or not is_heavy(node)


def is_heavy(node: fx.Node) -> bool:
    """Return whether a node is a matrix product, a convolution, attention or a recurrence."""
    return getattr(node.target, "overloadpacket", None) in _HEAVY


def is_functional(graph: fx.Graph) -> bool:
    """Return whether a graph changes nothing but its inputs; only then does the stock partitioner do as it is told."""
    allowed = (aten.copy_.default, aten.set_.source_Tensor)
    return not any(
        (changed_arguments(node) and node.target not in allowed) or label(node) == "with_effects"
        for node in graph.nodes
    )


def changed_arguments(node: fx.Node) -> list[fx.Node]:
    """List the nodes whose tensors an operator changes in place."""
    if not is_mutable(node):
        return []
    assert isinstance(node.target, torch._ops.OpOverload)
    given, changed = arguments_of(node), []
    for argument in node.target._schema.arguments:
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = given[argument.name]
            changed += [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, fx.Node)]
    return changed


def _readers_of_changed(graph: fx.Graph) -> set[fx.Node]:
    """Return the nodes whose values depend on inputs that hold something else when the backward runs."""
    changed = {storage_key(input_) for node in graph.nodes for input_ in changed_arguments(node)}
    # Inputs that autograd watches are changed outside the graph: the new value is an output, marked so.
    outputs = graph.find_nodes(op="output")[0].meta.get("desc") or ()
    inputs = [described.mutated_input for described in outputs if hasattr(described, "mutated_input")]
    changed |= {storage_key(node) for node in graph.find_nodes(op="placeholder") if node.meta.get("desc") in inputs}
    readers = set()
    for node in graph.nodes:
        if all(storage_key(source) not in changed for source in node.all_input_nodes if is_tensor(source)):
            continue
        first_dependent = _first_dependent_result(node)
        if first_dependent is None:
            readers.add(node)
        else:
            readers |= {user for user in node.users if user.args[1] >= first_dependent}
    return readers


def _first_dependent_result(node: fx.Node) -> int | None:
    """Return from which index on a normalization's results depend on its running statistics; None for other nodes."""
    packet = getattr(node.target, "overloadpacket", node.target)
    if packet is aten._native_batch_norm_legit_functional and node.args[5] is not True:
        return None
    return _NORMALIZATIONS.get(packet)


def _is_elsewhere(node: fx.Node) -> bool:
    """Return whether a random node draws from another generator than the one whose state the partitioner saves."""
    if isinstance(node.kwargs.get("generator"), (torch.Generator, fx.Node)):
        return True
    device = device_of(node)
    return device is not None and device.type == "cuda" and device.index not in (None, torch.cuda.current_device())
