"""Reading AOTAutograd's joint graphs: what a node is, which storage it fills, how many bytes, as a formula too."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeGuard

import sympy
import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

aten = torch.ops.aten

# Flash, efficient, cuDNN's, that for CPU, and that of devices beside torch.
_ATTENTION = re.compile(r"_scaled_dot_product_[a-z]+_attention(_for_cpu|_overrideable)?")

# Torch's partitioner passes over these.
_CHECKS_AND_MARKS = ("_assert_scalar", "_assert_async", "_record_function_enter", "_record_function_exit")


@functools.cache
def _operator_kinds() -> Any:
    # Not at the top: it imports Dynamo, which a process that the script starts may never need.
    from torch._functorch.partitioners import get_default_op_list

    return get_default_op_list()


class Bytes:
    """An amount of memory: its value for the traced sizes, its formula in the graph's symbols, and their values."""

    def __init__(
        self, value: int = 0, formula: sympy.Expr | int = 0, symbols: dict[sympy.Symbol, int] | None = None
    ) -> None:
        self.value = value
        self.formula = sympy.sympify(formula)
        self.symbols = symbols or {}

    @classmethod
    def total(cls, parts: Sequence[Bytes]) -> Bytes:
        """Add up many formulas in one go, as sympy sorts the terms each time."""
        symbols = {symbol: value for part in parts for symbol, value in part.symbols.items()}
        return cls(sum(part.value for part in parts), sympy.Add(*(part.formula for part in parts)), symbols)

    def __add__(self, other: Bytes) -> Bytes:
        return Bytes(self.value + other.value, self.formula + other.formula, self.symbols | other.symbols)

    def __sub__(self, other: Bytes) -> Bytes:
        return Bytes(self.value - other.value, self.formula - other.formula, self.symbols | other.symbols)

    def named(self, names: Mapping[sympy.Symbol, sympy.Expr]) -> Bytes:
        """Write it in dimensions instead of one graph's symbols; a symbol without a name is replaced by its value."""
        return Bytes(self.value, self.formula.subs({**self.symbols, **names}))

    def at(self, sizes: Mapping[sympy.Symbol, int]) -> int:
        """Return the value where the graph's symbols have these sizes; those that are missing, as traced."""
        own = {symbol: sizes.get(symbol, value) for symbol, value in self.symbols.items()}
        return self.value if own == self.symbols else int(self.formula.subs(own))

    def value_at(self, dimensions: Mapping[str, int]) -> int:
        """Return the value for other sizes of the dimensions, once they are ``named``."""
        # By the symbols themselves: sympy takes a name for another symbol, of which it assumes nothing.
        symbols = {symbol for symbol in self.formula.free_symbols if str(symbol) in dimensions}
        at = self.formula.subs({symbol: dimensions[str(symbol)] for symbol in symbols})
        return int(at) if at.is_number else self.value


def value_of(node: fx.Node) -> Any:
    """Return the fake value that tracing recorded for a node."""
    return node.meta.get("val")


def parts_of(node: fx.Node) -> list[Any]:
    """List the parts of a node's value: several for a tuple, else the value itself."""
    value = value_of(node)
    return list(value) if isinstance(value, (tuple, list)) else [value]


def has_storage(value: Any) -> TypeGuard[torch.Tensor]:
    """Return whether a value is a tensor with a storage: the gradient of a sparse embedding has none of its own."""
    return isinstance(value, torch.Tensor) and value.layout == torch.strided


def tensors_of(node: fx.Node) -> list[torch.Tensor]:
    """List the fake tensors of a node's value: several for a tuple, none for a symbol or a sparse tensor."""
    return [part for part in parts_of(node) if has_storage(part)]


def symbols_of(tensor: torch.Tensor) -> Iterator[tuple[int, torch.SymInt]]:
    """Yield the sizes of a fake tensor that are single symbols, each with its dimension.

    An input may be a view of a tensor that no graph has, such as ``x[:, None]``. The size of its storage may then have
    a symbol of its own: that comes last, as of dimension 0.
    """
    yield from ((dimension, size) for dimension, size in enumerate(tensor.shape) if is_single_symbol(size))
    total = tensor.untyped_storage().nbytes()
    if isinstance(total, torch.SymInt):
        node = total.node
        of_sizes = {symbol for size in tensor.shape if isinstance(size, torch.SymInt) for symbol in _free(size)}
        for symbol in sorted(_free(total) - of_sizes, key=str):
            yield 0, torch.SymInt(type(node)(symbol, node.shape_env, int, None))


def is_single_symbol(size: Any) -> TypeGuard[torch.SymInt]:
    """Return whether a size is a symbol, and no number or formula."""
    return isinstance(size, torch.SymInt) and isinstance(size.node.expr, sympy.Symbol)


def _free(size: torch.SymInt) -> set[sympy.Basic]:
    return set(size.node.expr.free_symbols)


def sizes_of(forward: fx.GraphModule, arguments: Sequence[Any]) -> dict[sympy.Symbol, int]:
    """Return the value of each symbol in the arguments of a forward."""
    found: dict[sympy.Symbol, int] = {}
    for node, value in zip(forward.graph.find_nodes(op="placeholder"), arguments, strict=True):
        traced = value_of(node)
        pairs = zip(traced.shape, value.shape, strict=True) if is_tensor(node) else [(traced, value)]
        for size, actual in pairs:
            if is_single_symbol(size):
                found[size.node.expr] = int(actual)
    return found


def is_tensor(node: fx.Node) -> bool:
    """Return whether a node holds one tensor with a storage (and not a tuple, a number or a symbol)."""
    return has_storage(value_of(node))


def is_symbol(node: fx.Node) -> bool:
    """Return whether a node holds a number or a symbol."""
    return isinstance(value_of(node), (torch.SymInt, torch.SymFloat, torch.SymBool, int))


def base_of(node: fx.Node) -> fx.Node:
    """Return what a node is a view of, or the node itself."""
    # Inductor's passes replace nodes and trace each by itself: what is a view of one keeps the storage of before. A
    # view of a constant has no node as its input.
    while is_view(node) and node.all_input_nodes and is_tensor(node.all_input_nodes[0]):
        node = node.all_input_nodes[0]
    return node


def storage_key(node: fx.Node) -> int | None:
    """Return the identity of the storage behind a node's tensor: views share it with their base."""
    value = value_of(base_of(node))
    return value.untyped_storage()._cdata if has_storage(value) else None


def storages_of(node: fx.Node) -> tuple[int, ...]:
    """Return the identities of the storages that a node's value lies in."""
    return tuple(tensor.untyped_storage()._cdata for tensor in tensors_of(node))


def node_bytes(node: fx.Node) -> Bytes:
    """Return what keeping a node's tensor keeps: its whole storage, however little of it the tensor looks at."""
    value = value_of(node)
    symbols = {size.node.expr: traced_size(size) for _, size in symbols_of(value)}
    total = value.untyped_storage().nbytes()
    if isinstance(total, torch.SymInt):
        return Bytes(traced_size(total), total.node.expr, symbols)
    return Bytes(int(total), int(total))


def rng_state_bytes(node: fx.Node) -> Bytes:
    """Return what recomputing a random node keeps of its generator; nothing for other nodes.

    The state of the device's generator is saved, in host memory: 16 bytes for CUDA's (seed and offset).
    """
    if not is_random(node):
        return Bytes()
    device = device_of(node)
    size = torch.get_rng_state().nbytes if device is None or device.type == "cpu" else 16
    return Bytes(size, size)


def traced_size(size: torch.SymInt) -> int:
    """Return the value that a symbolic size had while tracing; 0 for sizes that only the data decides."""
    hint = size.node.hint
    return 0 if hint is None else int(hint)


def label(node: fx.Node) -> str:
    """Return the operator's name as in a cluster id: of the ATen operator that the script's call was traced to.

    Attention goes by one name, whichever of its kernels torch has chosen.
    """
    target = node.meta.get("original_aten") or node.target
    packet = getattr(target, "_overloadpacket", target)
    name = str(getattr(packet, "__name__", packet))
    if _ATTENTION.fullmatch(name):
        return "scaled_dot_product_attention"
    return name.replace(":", "_").replace(",", "_")


def is_view(node: fx.Node) -> bool:
    """Return whether a node only looks at another node's storage."""
    if _operator_kinds().is_view(node) or node.target is aten._unsafe_view.default:
        return True
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:
        return False
    return any(result.alias_info is not None for result in target._schema.returns)


def is_mutable(node: fx.Node) -> bool:
    """Return whether a node's operator changes something in place."""
    return isinstance(node.target, torch._ops.OpOverload) and bool(node.target._schema.is_mutable)


def operator_name(node: fx.Node) -> str:
    """Return the name of a node's operator, without its namespace and overload; empty where it has none."""
    return str(getattr(getattr(node.target, "overloadpacket", node.target), "__name__", ""))


def is_check_or_mark(node: fx.Node) -> bool:
    """Return whether a node only checks a value, as ``one_hot`` does, or marks a stretch for the profiler."""
    return node.op == "call_function" and operator_name(node).startswith(_CHECKS_AND_MARKS)


def arguments_of(node: fx.Node) -> dict[str, Any]:
    """Return the arguments of an operator's call by name, defaults included."""
    assert isinstance(node.target, torch._ops.OpOverload)
    given = {argument.name: argument.default_value for argument in node.target._schema.arguments}
    return given | dict(zip(given, node.args, strict=False)) | node.kwargs


def is_whole_slice(node: fx.Node) -> bool:
    """Return whether a node writes into a slice that leaves nothing away.

    ``x[:, 0] = 1`` has one of the first dimension. Python's indexing passes over it, but not where that dimension is
    traced as a symbol, as discovery has it.
    """
    if node.target is not aten.slice_scatter.default:
        return False
    given = arguments_of(node)
    return bool(not given["start"] and given["end"] in (None, sys.maxsize) and given["step"] == 1)


def is_checkpointed(node: fx.Node) -> bool:
    """Return whether the script recomputes a node itself, by ``torch.utils.checkpoint``."""
    return node.meta.get("recompute") in (CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE)


def is_random(node: fx.Node) -> bool:
    """Tell whether a node draws from a generator.

    Attention draws nothing without dropout, whatever its operator's tag.
    """
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    if torch.Tag.nondeterministic_seeded not in node.target.tags:
        return False
    return bool(arguments_of(node).get("dropout_p", 1) != 0)


def ancestors(outputs: Iterable[Any]) -> set[fx.Node]:
    """Return the nodes among a graph's outputs, and all that those need."""
    pending = [node for node in outputs if isinstance(node, fx.Node)]
    found: set[fx.Node] = set()
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending += node.all_input_nodes
    return found


def device_of(node: fx.Node) -> torch.device | None:
    """Return the device of a node's tensor, or of the first of several; None for nodes without."""
    return next((tensor.device for tensor in tensors_of(node)), None)


def copy_joint(joint: fx.GraphModule) -> fx.GraphModule:
    """Copy a joint graph, its metadata and its constants; the partitioner consumes what it is given."""
    # Code for the copy, which nobody runs, would take twice as long as the copy.
    from torch.fx._lazy_graph_module import _LazyGraphModule

    graph = fx.Graph()
    output = graph.output(graph.graph_copy(joint.graph, {}))
    output.meta = dict(joint.graph.find_nodes(op="output")[0].meta)
    return _LazyGraphModule(joint, graph)


def correct_fake_values(joint: fx.GraphModule) -> None:
    """Give what tracing recorded wrongly the type that the operator really returns.

    On CPU a batch normalization of half precision keeps its statistics in the type of its weight; torch (2.11 to 2.15)
    traces them in the type of its input.
    """
    for node in joint.graph.find_nodes(op="call_function", target=aten._native_batch_norm_legit_functional.default):
        weight = node.args[1]
        if not isinstance(weight, fx.Node) or value_of(weight).device.type != "cpu":
            continue
        parts = list(value_of(node))
        for result in node.users:
            place = result.args[1]
            if place in (1, 2):
                parts[place] = result.meta["val"] = value_of(result).to(value_of(weight).dtype)
        node.meta["val"] = tuple(parts)


def saved_nodes(forward: fx.GraphModule, num_forward_outputs: int) -> list[fx.Node]:
    """Return what a partitioned forward graph hands to the backward, behind its own outputs."""
    outputs = forward.graph.find_nodes(op="output")[0].args[0]
    return [node for node in outputs[num_forward_outputs:] if isinstance(node, fx.Node)]


def outputs_of(forward: fx.GraphModule, num_forward_outputs: int) -> list[fx.Node]:
    """Return what a partitioned forward graph returns to its caller."""
    outputs = forward.graph.find_nodes(op="output")[0].args[0]
    return [node for node in outputs[:num_forward_outputs] if isinstance(node, fx.Node)]


def parameter_storages(graph: fx.Graph) -> set[int | None]:
    """Return the storages that live longer than the step anyway: parameters, buffers and inputs."""
    return {storage_key(node) for node in graph.find_nodes(op="placeholder") if is_tensor(node)}


def lasting_storages(forward: fx.Graph) -> set[int | None]:
    """Return the storages that live longer than the step: of a forward's inputs and constants."""
    return parameter_storages(forward) | {storage_key(node) for node in forward.find_nodes(op="get_attr")}


def unique_bytes(nodes: Iterable[fx.Node], excluded: set[int | None]) -> Bytes:
    """Return the total size of the nodes, each storage once, without the ``excluded`` storages."""
    firsts: dict[int | None, fx.Node] = {}
    for node in nodes:
        firsts.setdefault(storage_key(node), node)
    return Bytes.total([node_bytes(node) for key, node in firsts.items() if key is not None and key not in excluded])
