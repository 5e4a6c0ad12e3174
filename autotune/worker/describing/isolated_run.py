"""The two halves of a graph, run apart from the script's step: on its inputs, or on their beginnings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import sympy
import torch
from torch import fx
from torch.utils._pytree import tree_map_only

from ..plans.activation_graph import holds_tangents
from ..plans.graph_pair import Pair
from ..plans.joint import is_tensor, sizes_of, storage_key, value_of
from ..plans.repeatable import changed_arguments
from .allocations import Allocations
from .workspace import Layout, form_at, size_at, stand_in, zeros

# What operators take as indices.
_INDICES = (torch.int64, torch.int32)


class IsolatedRun:
    """One forward and backward of a pair apart from the script's step, on its inputs cut to given sizes."""

    def __init__(self, pair: Pair, arguments: Sequence[Any], sizes: Mapping[sympy.Symbol, int]) -> None:
        self._pair = pair
        self._sizes = sizes
        self._shares = _shares(pair.forward, sizes_of(pair.forward, arguments), sizes)
        inputs = pair.forward.graph.find_nodes(op="placeholder")
        changed = {storage_key(one) for node in pair.forward.graph.nodes for one in changed_arguments(node)}
        # What the forward updates in place is updated in a copy.
        self._arguments = [
            self._cut(node, value, copy=storage_key(node) in changed)
            for node, value in zip(inputs, arguments, strict=True)
        ]

    def peak(self, forward: Callable[[list[Any]], Any], backward: Callable[[list[Any]], Any]) -> int:
        """Return the most bytes allocated at a time, on top of the inputs, by what runs the two halves."""
        with Allocations() as allocations:
            allocations.mark()
            self._run(forward, backward)
            allocations.mark()
        return allocations.stretches[-1].peak

    def node_peaks(self, layout: Layout) -> dict[str, int]:
        """Return for each node the most bytes allocated at a time while it runs, on top of those before it."""
        with Allocations() as allocations:
            forward = _MarkedNodes(self._pair.forward, allocations, layout)
            backward = _MarkedNodes(self._pair.backward, allocations, layout)
            self._run(forward.boxed_run, backward.boxed_run)
        names = [*forward.ran, *backward.ran]
        before, after = allocations.stretches[::2], allocations.stretches[1::2]
        return {name: own.peak - start.end for name, start, own in zip(names, before, after, strict=True)}

    def _run(self, forward: Callable[[list[Any]], Any], backward: Callable[[list[Any]], Any]) -> None:
        results = list(forward(list(self._arguments)))
        own, saved = results[: self._pair.num_forward_outputs], results[self._pair.num_forward_outputs :]
        # The backward takes symbols first, then saved tensors and gradients of the results.
        first_symbol = len(saved) - self._pair.signature[0]
        given = [*saved[first_symbol:], *saved[:first_symbol]]
        rest = self._pair.backward.graph.find_nodes(op="placeholder")[len(given) :]
        tangents = [stand_in(node, self._sizes) for node in rest]
        given += tangents
        # The results outlive the backward, and in older versions of torch the gradients do.
        if holds_tangents():
            own += tangents
        del results, saved, tangents
        backward(given)

    def _cut(self, node: fx.Node, value: Any, *, copy: bool) -> Any:
        """Take the beginning of the script's own input, at the sizes of this run."""
        traced = value_of(node)
        if not isinstance(value, torch.Tensor):
            return size_at(traced, self._sizes) if isinstance(traced, torch.SymInt) else value
        shape, strides = form_at(traced, self._sizes)
        part = value[tuple(slice(size) for size in shape)] if shape != list(value.shape) else value
        part = self._pointing_inside(part)
        # Operators were traced for these strides: a batch that is not the first dimension leaves gaps.
        fits = list(part.stride()) == strides or shape == list(value.shape)
        return (part.clone() if copy else part) if fits else zeros(traced, self._sizes).copy_(part)

    def _pointing_inside(self, value: torch.Tensor) -> torch.Tensor:
        """Bring down, in the same proportion, what may be indices into what was cut.

        An index that points past the end is an error, on a GPU one that ends the process. What is below a size may be
        an index into it; what is no index does not matter here, since how much operators allocate hangs on sizes.
        """
        if not self._shares or value.dtype not in _INDICES or not value.numel():
            return value
        largest = int(value.max())
        share = min((share for size, share in self._shares if largest <= size), default=Fraction(1))
        if share == 1:
            return value
        brought_down = value.long() * share.numerator // share.denominator
        return torch.where(value > 0, brought_down.to(value.dtype), value)


class _MarkedNodes(fx.Interpreter):
    """Runs a graph node by node, with a mark before and after each."""

    def __init__(self, module: fx.GraphModule, allocations: Allocations, layout: Layout) -> None:
        super().__init__(module)
        self._allocations = allocations
        self._layout = layout
        self.ran: list[str] = []

    def run_node(self, n: fx.Node) -> Any:
        if n.op != "call_function":
            return super().run_node(n)
        traced, keywords = self.fetch_args_kwargs_from_env(n)
        arguments = self._layout(n, traced)
        self._allocations.mark()
        result = self.call_function(n.target, arguments, keywords)
        self._allocations.mark()
        self.ran.append(n.name)
        # The nodes behind it were traced for its usual layout.
        return result if arguments is traced else tree_map_only(torch.Tensor, torch.Tensor.contiguous, result)


def _shares(
    forward: fx.GraphModule, whole: Mapping[sympy.Symbol, int], cut: Mapping[sympy.Symbol, int]
) -> list[tuple[int, Fraction]]:
    """List the sizes that are cut, each with the share that is left of it."""
    if all(cut.get(symbol, size) == size for symbol, size in whole.items()):
        return []
    expressions = {
        size.node.expr
        for node in forward.graph.nodes
        if is_tensor(node)
        for size in value_of(node).shape
        if isinstance(size, torch.SymInt)
    }
    sizes = [(int(each.subs(whole)), int(each.subs(cut))) for each in expressions if each.free_symbols <= whole.keys()]
    return [(before, Fraction(after, before)) for before, after in sizes if after < before]
