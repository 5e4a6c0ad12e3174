"""Where Inductor's code copies a tensor because an operator, a view or the other half needs it laid out as traced.

Source: ``torch/_inductor/graph.py: call_function, run_node`` and ``lowering.py: sdpa_constraint,
constrain_to_fx_strides``. Operators like attention ask for the layouts of their inputs. They do not where they draw
from a saved state of the generator (``make_fallback(run_with_rng_state)``): what loops make is given to them without
gaps then, in the order of its dimensions, and whoever needs it as traced gets a copy. So does who gets a half's results
where these are views of what a loop has made: a loop makes what is viewed without gaps, as long as it is no result
itself. Of inputs that lead to a convolution the backward gets a copy whose channels come last, as the convolution does
(``graph.py: decide_layout_opt, find_nodes_prefer_channels_last``).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import sympy
import torch
from torch import fx

from ...records import ALWAYS, IF_KEPT, IF_OTHERWISE
from .joint import is_random, is_tensor, is_view, traced_size, value_of
from .lowering import IMAGE_DIMENSIONS, has_channels_last, layout_splits, shape_of

__all__ = ["layouts"]

_LOOPS = "ldhmskrcw"

Rows = tuple[tuple[int, ...], ...]


def layouts(
    nodes: Sequence[fx.Node],
    letters: str,
    formula: Callable[[Any], int],
    storage: Callable[[torch.Tensor], int],
) -> tuple[Rows, Rows]:
    """The rows of ``ActivationGraph.copies`` and of ``loose``.

    Args:
        nodes: the joint graph's, in order.
        letters: their ``lowering``.
        formula: gives the number of a size's formula.
        storage: gives the number of a new storage for a tensor without gaps.
    """
    from torch._inductor import lowering

    number = {node: place for place, node in enumerate(nodes)}
    copies: list[tuple[int, ...]] = []
    loose: list[tuple[int, ...]] = []
    # What may lie otherwise than traced.
    movable: set[fx.Node] = set()

    def add_copy(reader: fx.Node, source: fx.Node, when: int) -> None:
        value = value_of(source)
        ranges = shape_of(value)
        sizes = [sympy.prod(ranges), *sorted(set(layout_splits(ranges, value)), key=str)]
        copies.append((number[reader], number[source], storage(value), when, *map(formula, sizes)))

    for node in _images(nodes):
        add_copy(node, node, IF_KEPT)
    for node in nodes:
        if letters[number[node]] in _LOOPS and is_tensor(node) and not value_of(node).is_contiguous():
            for view, base, value in _views(node, _without_gaps(node)):
                if value is not None and _order(value.stride(), value.shape) != _order(_strides(view), value.shape):
                    add_copy(view, base, IF_KEPT)
        if letters[number[node]] != "f" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        constraint = lowering.maybe_layout_constraints(node.target)
        if constraint is None:
            continue
        for place, source in enumerate(node.all_input_nodes):
            if not is_tensor(source) or value_of(source).is_contiguous():
                continue
            is_loop = letters[number[source]] in _LOOPS
            if is_loop and is_random(node):
                alike = [] if place else [each for each in _results(node) if _strides(each) == _strides(source)]
                loose.append((number[node], number[source], *map(number.__getitem__, alike)))
                for lying in (source, *alike):
                    movable.add(lying)
                    for view, base, value in _views(lying, _without_gaps(lying)):
                        movable.add(view)
                        if value is None:
                            add_copy(view, base, IF_OTHERWISE)
            # Attention takes another order than the plain one only where the last dimension is the innermost.
            is_plain = constraint is lowering.sdpa_constraint and _strides(source)[-1] != 1
            if source in movable or (is_plain and not is_loop):
                add_copy(node, source, ALWAYS if is_plain and not is_loop else IF_OTHERWISE)
    return tuple(copies), tuple(loose)


def _images(nodes: Sequence[fx.Node]) -> list[fx.Node]:
    """The inputs that lead to a convolution, and whose channels do not come last."""
    if not has_channels_last():
        return []
    leading: set[fx.Node] = set()
    for node in reversed(nodes):
        is_convolution = node.target is torch.ops.aten.convolution.default
        if is_convolution or (node.target is not torch.ops.aten.bmm.default and not leading.isdisjoint(node.users)):
            leading.add(node)
    return [
        node
        for node in nodes
        if node in leading
        and node.op == "placeholder"
        and is_tensor(node)
        and value_of(node).dim() == IMAGE_DIMENSIONS
        and not _without_gaps(node).is_contiguous(memory_format=torch.channels_last)
        and value_of(node).is_contiguous()
    ]


def _results(node: fx.Node) -> list[fx.Node]:
    return [user for user in node.users if user.target is operator.getitem and is_tensor(user)]


def _views(node: fx.Node, tensor: torch.Tensor) -> Iterator[tuple[fx.Node, fx.Node, torch.Tensor | None]]:
    """The views of a node, what each is of, and how it lies where the node's value lies as ``tensor``, if it can."""
    for user in node.users:
        if not is_view(user) or user.args[0] is not node or not is_tensor(user):
            continue
        arguments = fx.node.map_aggregate(user.args[1:], _size)
        try:
            value = user.target(tensor, *arguments)  # type: ignore[operator]
        except (RuntimeError, ValueError):
            yield user, node, None
        else:
            yield user, node, value
            yield from _views(user, value)


def _without_gaps(node: fx.Node) -> torch.Tensor:
    return torch.empty([_size(size) for size in value_of(node).shape], dtype=value_of(node).dtype, device="meta")


def _order(strides: Sequence[int], shape: Sequence[int]) -> list[int]:
    """The dimensions from the outermost to the innermost, those of size 1 aside."""
    return sorted((place for place, size in enumerate(shape) if size != 1), key=lambda place: -strides[place])


def _strides(node: fx.Node) -> list[int]:
    return [_size(stride) for stride in value_of(node).stride()]


def _size(size: Any) -> Any:
    """A size as it was traced, whether it is one, a node that gives it, or something else."""
    if isinstance(size, fx.Node):
        size = value_of(size)
    return traced_size(size) if isinstance(size, torch.SymInt) else size
