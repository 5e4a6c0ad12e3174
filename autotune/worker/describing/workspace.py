"""Measurement of the workspaces of operators at batches larger than the script's.

A workspace is what an operator allocates besides its results. One operator of each kind runs alone, on zeros. A
workspace may stop growing where the script's own batch does not reach: oneDNN cuts products of bf16 into blocks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import sympy
import torch
from torch import fx
from torch.utils._pytree import tree_leaves, tree_map

from ..plans.joint import is_mutable, is_random, value_of
from .allocations import Allocations

Sizes = Mapping[sympy.Symbol, int]
# A node and its arguments to these arguments as they lie in memory when it runs.
Layout = Callable[[fx.Node, Any], Any]

_CONVOLUTIONS = (torch.ops.aten.convolution.default, torch.ops.aten.convolution_backward.default)
_IMAGE_DIMENSIONS = 4


def workspaces(
    expected: Mapping[fx.Node, int], taken: Mapping[fx.Node, int], sizes: Sizes, most_bytes: int, layout: Layout
) -> dict[fx.Node, int]:
    """Measure the workspaces of nodes, in bytes.

    Args:
        expected: the nodes, with what is taken for the workspace of one that cannot be run by itself.
        taken: what running each is taken to need besides its inputs and results.
        sizes: the values of the graph's symbols.
        most_bytes: the most that running a node may take, inputs included.
        layout: how arguments lie in memory.

    Raises:
        RuntimeError: allocations cannot be counted.
    """
    kinds = {node: _kind(node) for node in expected}
    first: dict[str, fx.Node] = {}
    for node in expected:
        held = tree_leaves([*map(value_of, node.all_input_nodes), value_of(node)])
        forms = [(form_at(one, sizes), one.element_size()) for one in held if isinstance(one, torch.Tensor)]
        takes = sum(_span(*form) * element_bytes for form, element_bytes in forms) + taken[node]
        if _is_alone(node) and takes <= most_bytes:
            first.setdefault(kinds[node], node)
    with Allocations() as allocations:
        ran = [_run(node, sizes, layout, allocations) for node in first.values()]
    during = allocations.stretches[1::2]
    measured = {kind: own.peak - own.end for kind, own, has_run in zip(first, during, ran, strict=True) if has_run}
    return {node: measured.get(kinds[node], workspace) for node, workspace in expected.items()}


def as_traced(_node: fx.Node, arguments: Any) -> Any:
    """Keep the layout: graphs run as they are."""
    return arguments


def as_inductor_lays_out(node: fx.Node, arguments: Any) -> Any:
    """Lay out images as Inductor does for convolutions, with their channels last."""
    return tree_map(_channels_last, arguments) if node.target in _CONVOLUTIONS else arguments


def size_at(size: Any, sizes: Sizes) -> int:
    """Return the value of a traced size."""
    return int(size.node.expr.subs(sizes)) if isinstance(size, torch.SymInt) else int(size)


def form_at(traced: torch.Tensor, sizes: Sizes) -> tuple[list[int], list[int]]:
    """Return the shape and the strides of a traced tensor."""
    return [size_at(each, sizes) for each in traced.shape], [size_at(each, sizes) for each in traced.stride()]


def zeros(traced: torch.Tensor, sizes: Sizes) -> torch.Tensor:
    """Make zeros in the form of a traced tensor."""
    shape, strides = form_at(traced, sizes)
    return torch.zeros(_span(shape, strides), dtype=traced.dtype, device=traced.device).as_strided(shape, strides)


def stand_in(node: fx.Node, sizes: Sizes) -> Any:
    """Return what stands for a node's value: zeros in the place of a tensor, a size as it is."""
    value = value_of(node)
    return zeros(value, sizes) if isinstance(value, torch.Tensor) else size_at(value, sizes)


def _run(node: fx.Node, sizes: Sizes, layout: Layout, allocations: Allocations) -> bool:
    """Run a node between two marks; return whether it took zeros."""
    assert callable(node.target)
    taken = result = None
    # An operator may raise anything on zeros, and they may not be had; this runs inside the script's own step.
    with contextlib.suppress(Exception):
        arguments, keywords = fx.map_arg((node.args, node.kwargs), lambda source: stand_in(source, sizes))
        taken = layout(node, arguments), keywords
    allocations.mark()
    try:
        if taken is not None:
            result = node.target(*taken[0], **taken[1])
    except Exception:
        return False
    finally:
        # Its results are still there.
        allocations.mark()
        del result
    return taken is not None


def _is_alone(node: fx.Node) -> bool:
    """Return whether a node reads nothing but tensors and sizes, changes nothing and draws nothing."""
    # What draws by probabilities fails on zeros, on a GPU in a way that ends the script.
    known = all(isinstance(value_of(source), (torch.Tensor, torch.SymInt, int)) for source in node.all_input_nodes)
    is_operator = isinstance(node.target, torch._ops.OpOverload)
    return known and is_operator and not is_mutable(node) and not is_random(node)


def _kind(node: fx.Node) -> str:
    """Return what nodes that do the same on tensors of the same form have in common."""

    def form(source: fx.Node) -> Any:
        value = value_of(source)
        if not isinstance(value, torch.Tensor):
            return str(value)
        return str((value.dtype, tuple(value.shape), value.stride()))

    return str((node.target, *fx.map_arg((node.args, node.kwargs), form)))


def _span(shape: list[int], strides: list[int]) -> int:
    """Return how many elements lie from a tensor's first to its last."""
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) if all(shape) else 0


def _channels_last(value: Any) -> Any:
    is_image = isinstance(value, torch.Tensor) and value.dim() == _IMAGE_DIMENSIONS
    return value.contiguous(memory_format=torch.channels_last) if is_image else value
