"""Reading AOTAutograd's joint graphs: what a node is, which storage it fills, how many bytes, as a formula too."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import sympy
import torch
from torch import fx
from torch._functorch import partitioners

__all__ = [
    "Bytes",
    "copy_joint",
    "is_recomputable",
    "is_tensor",
    "is_view",
    "label",
    "parameter_storages",
    "saved_nodes",
    "storage_key",
    "unique_bytes",
]

aten = torch.ops.aten

# Operators whose time is worth more than the memory they stash; op clusters stop at them, layers recompute them.
_HEAVY = {
    aten.mm,
    aten.bmm,
    aten.addmm,
    aten.baddbmm,
    aten.convolution,
    aten._scaled_dot_product_flash_attention,
    aten._scaled_dot_product_efficient_attention,
    aten._scaled_dot_product_flash_attention_for_cpu,
    aten._scaled_dot_product_cudnn_attention,
}

# Recomputing these would draw a second seed, and the backward would see another dropout mask than the forward.
_SEED_OPERATORS = ("prims.inductor_seeds", "prims.inductor_lookup_seed")

_operator_kinds = partitioners.get_default_op_list()


class Bytes:
    """An amount of memory: its value for the traced sizes, its formula in the graph's symbols, and their values."""

    def __init__(
        self, value: int = 0, formula: sympy.Expr | int = 0, symbols: dict[sympy.Symbol, int] | None = None
    ) -> None:
        self.value = value
        self.formula = sympy.sympify(formula)
        self.symbols = symbols or {}

    def __add__(self, other: Bytes) -> Bytes:
        return Bytes(self.value + other.value, self.formula + other.formula, self.symbols | other.symbols)

    def __sub__(self, other: Bytes) -> Bytes:
        return Bytes(self.value - other.value, self.formula - other.formula, self.symbols | other.symbols)

    def formula_in(self, names: dict[sympy.Symbol, sympy.Symbol]) -> sympy.Expr:
        """The formula with the symbols renamed; symbols without a name are replaced by their value."""
        return sympy.factor(self.formula.subs(self.symbols | names))

    def value_at(self, names: dict[sympy.Symbol, sympy.Symbol], values: dict[str, int]) -> int:
        """The value for other sizes of the named symbols."""
        at = self.formula_in(names).subs(values)
        return int(at) if at.is_number else self.value


def value_of(node: fx.Node) -> Any:
    """The fake value that tracing recorded for a node."""
    return node.meta.get("val")


def is_tensor(node: fx.Node) -> bool:
    """Whether a node holds one tensor (and not a tuple, a number or a symbol)."""
    return isinstance(value_of(node), torch.Tensor)


def storage_key(node: fx.Node) -> int | None:
    """Identity of the storage behind a node's tensor: views share it with their base."""
    value = value_of(node)
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None


def node_bytes(node: fx.Node) -> Bytes:
    """Size of a node's tensor."""
    value = value_of(node)
    width = value.dtype.itemsize
    elements, formula = 1, sympy.Integer(1)
    symbols: dict[sympy.Symbol, int] = {}
    for size in value.shape:
        if not isinstance(size, torch.SymInt):
            elements, formula = elements * int(size), formula * int(size)
            continue
        elements, formula = elements * traced_size(size), formula * size.node.expr
        if isinstance(size.node.expr, sympy.Symbol):
            symbols[size.node.expr] = traced_size(size)
    return Bytes(elements * width, formula * width, symbols)


def traced_size(size: torch.SymInt) -> int:
    """The value that a symbolic size had while tracing; 0 for sizes that only the data decides."""
    hint = size.node.hint
    return 0 if hint is None else int(hint)


def label(node: fx.Node) -> str:
    """The operator's name as in a cluster id: of the ATen operator that the script's call was traced to."""
    target = node.meta.get("original_aten") or node.target
    packet = getattr(target, "_overloadpacket", target)
    return str(getattr(packet, "__name__", packet)).replace(":", "_").replace(",", "_")


def is_view(node: fx.Node) -> bool:
    """Whether a node only looks at another node's storage."""
    return _operator_kinds.is_view(node) or node.target in (aten.view.default, aten.detach.default, aten.alias.default)


def is_recomputable(node: fx.Node, *, heavy: bool) -> bool:
    """Whether running a node a second time in the backward gives the same values and changes nothing else.

    ``heavy`` lets matrix products, convolutions and attention be recomputed too. Random operators are recomputable:
    the partitioner saves and restores their generator's state.
    """
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        source = node.args[0]
        return isinstance(source, fx.Node) and is_recomputable(source, heavy=heavy)
    if not isinstance(node.target, torch._ops.OpOverload) or node.target._schema.is_mutable:
        return False
    if node.target.namespace not in ("aten", "prims", "inductor"):
        return False
    packet = node.target.overloadpacket
    if str(packet) in _SEED_OPERATORS:
        return False
    return heavy or packet not in _HEAVY


def copy_joint(joint: fx.GraphModule) -> fx.GraphModule:
    """Copy a joint graph, its metadata and its constants; the partitioner consumes what it is given."""
    # GraphModule(root, graph) copies from root only what the graph mentions at that moment, so constants
    # (get_attr nodes) must be carried over by hand.
    copied = fx.GraphModule(joint, fx.Graph())
    mapping: dict[fx.Node, fx.Node] = {}
    output, output_node = copied.graph.graph_copy(joint.graph, mapping, return_output_node=True)  # type: ignore[misc]
    new_output = copied.graph.output(output)
    new_output.meta = dict(output_node.meta)
    for old, new in mapping.items():
        new.meta = dict(old.meta)
        if old.op == "get_attr":
            setattr(copied, str(old.target), getattr(joint, str(old.target)))
    copied.recompile()
    return copied


def saved_nodes(forward: fx.GraphModule, num_forward_outputs: int) -> list[fx.Node]:
    """What a partitioned forward graph hands to the backward, behind its own outputs."""
    outputs = forward.graph.find_nodes(op="output")[0].args[0]
    return [node for node in outputs[num_forward_outputs:] if isinstance(node, fx.Node)]


def parameter_storages(graph: fx.Graph) -> set[int | None]:
    """Storages that live longer than the step anyway: parameters, buffers and inputs."""
    return {storage_key(node) for node in graph.find_nodes(op="placeholder") if is_tensor(node)}


def unique_bytes(nodes: Iterable[fx.Node], excluded: set[int | None]) -> Bytes:
    """Total size of the nodes, each storage once, without the ``excluded`` storages."""
    seen, total = set(excluded), Bytes()
    for node in nodes:
        key = storage_key(node)
        if key is None or key in seen:
            continue
        seen.add(key)
        total += node_bytes(node)
    return total
