"""What Inductor makes of a joint graph's nodes: loops, reductions, operators that run by themselves, or nothing.

Written down as letters and numbers of formulas (see ``records/graph.py``), for the simulation of what it fuses.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import sympy
import torch
from torch import fx

from .joint import is_tensor, is_view, value_of

__all__ = ["lowered"]

aten = torch.ops.aten

# They write into a buffer that Inductor allocates; other operators without a loop of their own allocate themselves.
_INTO_BUFFERS = ("mm", "bmm", "addmm", "baddbmm")
_REDUCTIONS = ("sum", "mean", "amax", "amin", "max", "min", "any", "all", "prod", "var", "var_mean", "argmax", "argmin")
# Their lowerings realize the result.
_REALIZED = ("inductor_random", "inductor_randint", "cumsum", "cumprod")
_WRITES_TO_PLACES = ("index_put", "scatter_add", "scatter_reduce", "_unsafe_masked_index_put")
# Those that StorageBox.should_realize_on_reuse takes for costly on CPU.
_COSTLY = ("exp", "log", "log10", "log1p", "log2", "sigmoid", "tanh")


def lowered(nodes: Sequence[fx.Node], formula: Callable[[Any], int]) -> tuple[str, tuple[tuple[int, ...], ...]]:
    """The letters of ``ActivationGraph.lowering`` and the rows of ``loops``.

    Args:
        nodes: the joint graph's, in order.
        formula: gives the number of a size's formula.
    """
    letters = {node: _letter(node) for node in nodes}
    for node in nodes:
        if _is_joined(node):
            letters[node], letters[next(iter(node.users))] = "j", "x"
    loops = tuple(_loop(node, letters[node], formula) if letters[node] in "lhmkrc" else () for node in nodes)
    return "".join(letters.values()), loops


def _letter(node: fx.Node) -> str:
    from torch._inductor import lowering

    if node.target is operator.getitem:
        return "v"
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return "-"
    if is_view(node):
        return "v"
    name = node.target._overloadpacket.__name__
    if name == "cat":
        return "k"
    if node.target._schema.is_mutable or name in _REALIZED or name.startswith(_WRITES_TO_PLACES):
        return "m"
    if name in _INTO_BUFFERS:
        return "x"
    known = node.target in lowering.lowerings and node.target not in lowering.fallbacks
    if not known or node.target in lowering.needs_realized_inputs or not _values(node):
        return "f"
    if name in _REDUCTIONS:
        return "r" if _reduces_last(_shape(_inputs(node)[0]), _shape(_values(node)[0])) else "c"
    return "h" if name in _COSTLY else "l"


def _is_joined(node: fx.Node) -> bool:
    """Whether Inductor makes one product of a matrix product and the addition that reads it."""
    if node.target is not aten.mm.default or len(node.users) != 1:
        return False
    (user,) = node.users
    others = [other for other in user.all_input_nodes if other is not node]
    return (
        user.target is aten.add.Tensor
        and len(others) == 1
        and others[0].target is not aten.mm.default
        and is_tensor(others[0])
        and value_of(others[0]).shape == value_of(node).shape
    )


def _loop(node: fx.Node, letter: str, formula: Callable[[Any], int]) -> tuple[int, ...]:
    """The row of ``ActivationGraph.loops``."""
    results = _shape(_values(node)[0])
    inputs = _inputs(node)
    ranges = _shape(inputs[0]) if letter in "rc" else results
    splits = {split for each in inputs for split in _splits(ranges, each)}
    sizes = [sympy.prod(ranges), sympy.prod(results), *sorted(splits, key=str)]
    return tuple(formula(size) for size in sizes)


def _splits(ranges: Sequence[Any], value: torch.Tensor) -> Iterable[Any]:
    """Where loops over ``ranges`` that read a value cannot run over two neighbouring dimensions as over one.

    Given as the number of inner steps that make one step of the outer dimension.
    """
    missing = len(ranges) - value.dim()
    if missing < 0:
        return
    shape = [sympy.Integer(1)] * missing + _shape(value)
    if any(own not in (1, size) for own, size in zip(shape, ranges, strict=True)):
        return
    strides = [sympy.Integer(0)] * missing + [_expression(stride) for stride in value.stride()]
    dimensions = [
        (size, stride if own == size else sympy.Integer(0))
        for own, size, stride in zip(shape, ranges, strides, strict=True)
        if size != 1
    ]
    steps = sympy.Integer(1)
    for (_, outer), (size, inner) in zip(dimensions[-2::-1], dimensions[:0:-1], strict=True):
        steps *= size
        if outer != inner * size:
            yield steps


def _reduces_last(ranges: Sequence[Any], results: Sequence[Any]) -> bool:
    """Whether a reduction of ``ranges`` to ``results`` runs over the last dimensions and no others."""
    if len(ranges) == len(results):
        gone = [place for place, (size, left) in enumerate(zip(ranges, results, strict=True)) if size != left]
        return not gone or all(place in gone or ranges[place] == 1 for place in range(gone[0], len(ranges)))
    return list(ranges[: len(results)]) == list(results)


def _inputs(node: fx.Node) -> list[torch.Tensor]:
    return [value_of(source) for source in node.all_input_nodes if is_tensor(source)]


def _values(node: fx.Node) -> list[torch.Tensor]:
    value = value_of(node)
    parts = value if isinstance(value, (tuple, list)) else [value]
    return [part for part in parts if isinstance(part, torch.Tensor)]


def _shape(value: torch.Tensor) -> list[Any]:
    return [_expression(size) for size in value.shape]


def _expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)
