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
    "Repeatable",
    "copy_joint",
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
    aten._flash_attention_forward,
    aten._efficient_attention_forward,
    aten._scaled_mm,
}

# Recomputing these would draw a second seed, and the backward would see another dropout mask than the forward.
_SEED_OPERATORS = ("prims.inductor_seeds", "prims.inductor_lookup_seed")

# In training these read the running statistics only for the results from this index on, the updated statistics.
_NORMALIZATIONS = {
    aten._native_batch_norm_legit_functional: 3,
    aten._batch_norm_with_update_functional: 4,
}

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
    """What keeping a node's tensor keeps: its whole storage, however little of it the tensor looks at."""
    value = value_of(node)
    symbols = {
        size.node.expr: traced_size(size)
        for size in value.shape
        if isinstance(size, torch.SymInt) and isinstance(size.node.expr, sympy.Symbol)
    }
    total = value.untyped_storage().nbytes()
    if isinstance(total, torch.SymInt):
        return Bytes(traced_size(total), total.node.expr, symbols)
    return Bytes(int(total), int(total))


def rng_state_bytes(node: fx.Node) -> Bytes:
    """What recomputing a random node keeps of its generator; nothing for other nodes.

    The partitioner saves the state of the device's generator, in host memory: 16 bytes for CUDA's (seed and offset).
    """
    if not is_random(node):
        return Bytes()
    device = _device(node)
    size = torch.get_rng_state().nbytes if device is None or device.type == "cpu" else 16
    return Bytes(size, size)


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


def is_random(node: fx.Node) -> bool:
    """Whether a node draws from a generator."""
    return isinstance(node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags


class Repeatable:
    """Which nodes of a joint graph the backward can run again, with the same values and no other effect.

    Not those that change something, draw seeds, or read what the forward changes afterwards (a buffer updated in
    place). Random ones only where the partitioner makes them redraw what they drew: it saves and restores the state
    of the current device's own generator, for operators that the forward runs in any case.
    """

    def __init__(self, joint: fx.GraphModule, num_forward_outputs: int) -> None:
        self._barred = _readers_of_changed(joint.graph)
        in_forward = _ancestors_of_outputs(joint.graph, num_forward_outputs)
        self._barred |= {
            node for node in joint.graph.nodes if is_random(node) and (node not in in_forward or _is_elsewhere(node))
        }

    def __call__(self, node: fx.Node, *, heavy: bool) -> bool:
        """Whether a node can be run again; ``heavy`` lets matrix products, convolutions and attention be."""
        if node.op != "call_function" or node in self._barred:
            return False
        if node.target is operator.getitem:
            source = node.args[0]
            return isinstance(source, fx.Node) and self(source, heavy=heavy)
        if not isinstance(node.target, torch._ops.OpOverload) or node.target._schema.is_mutable:
            return False
        if node.target.namespace not in ("aten", "prims", "inductor"):
            return False
        packet = node.target.overloadpacket
        if str(packet) in _SEED_OPERATORS:
            return False
        return heavy or packet not in _HEAVY


def is_functional(graph: fx.Graph) -> bool:
    """Whether a graph changes nothing but its inputs; only then does the stock partitioner do as it is told."""
    return all(
        node.target in (aten.copy_.default, aten.set_.source_Tensor) or not _changed_arguments(node)
        for node in graph.nodes
    )


def _changed_arguments(node: fx.Node) -> list[fx.Node]:
    """The nodes whose tensors an operator changes in place."""
    if not isinstance(node.target, torch._ops.OpOverload) or not node.target._schema.is_mutable:
        return []
    changed = []
    for position, argument in enumerate(node.target._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
            changed += [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, fx.Node)]
    return changed


def _readers_of_changed(graph: fx.Graph) -> set[fx.Node]:
    """The nodes whose values depend on inputs that hold something else when the backward runs."""
    changed = {storage_key(input_) for node in graph.nodes for input_ in _changed_arguments(node)}
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
    """The index from which on a normalization's results depend on its running statistics; None for other nodes."""
    packet = getattr(node.target, "overloadpacket", None)
    if packet is aten._native_batch_norm_legit_functional and node.args[5] is not True:
        return None
    return _NORMALIZATIONS.get(packet)


def _ancestors_of_outputs(graph: fx.Graph, num_forward_outputs: int) -> set[fx.Node]:
    """What the forward runs for its own outputs, whatever the backward needs."""
    outputs = graph.find_nodes(op="output")[0].args[0]
    pending = [node for node in outputs[:num_forward_outputs] if isinstance(node, fx.Node)]
    found: set[fx.Node] = set()
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending += node.all_input_nodes
    return found


def _is_elsewhere(node: fx.Node) -> bool:
    """Whether a random node draws from another generator than the one whose state the partitioner saves."""
    if any(isinstance(value, (torch.Generator, fx.Node)) for value in [node.kwargs.get("generator")]):
        return True
    device = _device(node)
    return device is not None and device.type == "cuda" and device.index not in (None, torch.cuda.current_device())


def _device(node: fx.Node) -> torch.device | None:
    value = value_of(node)
    values = value if isinstance(value, (tuple, list)) else [value]
    return next((each.device for each in values if isinstance(each, torch.Tensor)), None)


def copy_joint(joint: fx.GraphModule) -> fx.GraphModule:
    """Copy a joint graph, its metadata and its constants; the partitioner consumes what it is given."""
    # GraphModule(root, graph) copies from root only what the graph mentions at that moment, so constants
    # (get_attr nodes) must be carried over by hand.
    copied = fx.GraphModule(joint, fx.Graph())
    mapping: dict[fx.Node, fx.Node] = {}
    output = copied.graph.graph_copy(joint.graph, mapping)
    new_output = copied.graph.output(output)
    new_output.meta = dict(joint.graph.find_nodes(op="output")[0].meta)
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
