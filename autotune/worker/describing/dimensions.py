"""Names of the sizes in traced graphs, and formulas for the sizes that follow from others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import sympy

from ..engines.graphs import Graph
from ..plans.joint import has_storage, is_single_symbol, symbols_of, traced_size
from .root_inputs import BATCH, NUMBER

Names = Mapping[sympy.Symbol, sympy.Expr]
"""For the symbols of one graph: the dimension that each is, or its size as a formula of dimensions."""

_Sizes = tuple[tuple[int, Any], ...]


class Dimensions:
    """The dimensions of the script's own tensors, found again in the symbols of graphs' sizes.

    Symbols of several graphs may have one name. A size that no tensor of the script has may follow from others: after a
    graph break the labels of a language model have ``batch*(seq_len - 1)`` rows. What is neither keeps torch's name. So
    does a number that no tensor's size depends on. Sizes of a storage alone are constants if they follow from nothing.
    ``known`` are names by what the script's own tensors had: (size, which dimension).

    Attributes:
        values: the sizes that the dimensions had while tracing.
    """

    def __init__(self, graphs: Iterable[Graph], known: Mapping[tuple[int, int], str]) -> None:
        self.values: dict[str, int] = {}
        self._known = known
        # The graphs too, so that no other is taken for one that is gone.
        self._names: dict[int, tuple[Graph, dict[sympy.Symbol, sympy.Expr]]] = {
            id(graph): (graph, {}) for graph in graphs
        }
        for graph, names in self._names.values():
            self._name_what_is_known(graph, names)
        of_script = dict(self.values)
        for graph, names in self._names.values():
            self._name_the_rest(graph, names, of_script)

    def of(self, graph: Graph) -> Names:
        """Return the names in a graph; none for one that was traced later."""
        return self._names[id(graph)][1] if id(graph) in self._names else {}

    def _name_what_is_known(self, graph: Graph, names: dict[sympy.Symbol, sympy.Expr]) -> None:
        for sizes in _sizes_of_inputs(graph):
            for place, size in sizes:
                symbol, value = size.node.expr, graph.size(size)
                # By the size alone only where it tells: a batch may be as large as its sequences are long, and what
                # another call of the graph has with another size is not the batch.
                of_size = {name for (known, _), name in self._known.items() if known == value == traced_size(size)}
                name = self._known.get((value, place), of_size.pop() if len(of_size) == 1 else None)
                if name is not None and symbol not in names:
                    names[symbol] = self._dimension(name, value)

    def _name_the_rest(self, graph: Graph, names: dict[sympy.Symbol, sympy.Expr], of_script: Mapping[str, int]) -> None:
        of_storage: dict[sympy.Symbol, int] = {}
        for sizes in _sizes_of_inputs(graph):
            has_batch = any(names.get(size.node.expr) == _symbol(BATCH) for _, size in sizes)
            for place, size in sizes:
                symbol, value = size.node.expr, graph.size(size)
                if symbol not in names and symbol in graph.symbols_of_storage_alone:
                    of_storage[symbol] = value
                elif symbol not in names:
                    # A pointer into a queue, say, that happens to be a multiple of the batch while tracing.
                    follows = place != NUMBER or symbol in graph.storage_symbols
                    following = _following(value, of_script, may_grow=not has_batch) if follows else None
                    names[symbol] = self._dimension(str(symbol), value) if following is None else following
        # No argument tells these sizes: they belong to a tensor that an input is a view of, as an expanded mask is.
        known = set(names.values())
        for symbol, value in of_storage.items():
            equal = [one for one in known if size_of(one, self.values) == value]
            following = equal[0] if len(equal) == 1 else _following(value, of_script, may_grow=True)
            names[symbol] = sympy.Integer(value) if following is None else following

    def _dimension(self, name: str, value: int) -> sympy.Symbol:
        while self.values.get(name, value) != value:
            name += "_"
        self.values[name] = value
        return _symbol(name)


def size_of(formula: sympy.Expr, dimensions: Mapping[str, int]) -> int:
    """Return what a formula comes to where its dimensions have these sizes."""
    # By the symbols themselves: sympy takes a name for another symbol, of which it assumes nothing.
    return int(formula.subs({symbol: dimensions[str(symbol)] for symbol in formula.free_symbols}))


def _sizes_of_inputs(graph: Graph) -> Iterator[_Sizes]:
    """Give for each input of a graph the sizes that are symbols, each with its place; those of tensors first."""
    # A number that is passed by itself has no dimensions: it is named by the tensors that have its size, if any.
    given = [node.meta.get("val") for node in graph.joint.nodes.values() if node.op == "placeholder"]
    tensors = (tuple(symbols_of(one)) for one in given if has_storage(one))
    numbers = (((NUMBER, one),) for one in given if is_single_symbol(one))
    yield from (*tensors, *numbers)


def _following(value: int, dimensions: Mapping[str, int], *, may_grow: bool) -> sympy.Expr | None:
    """Write a size as a formula of dimensions: of one that is a single entry longer or shorter, or of the batch.

    ``may_grow`` says whether it may have so many entries for each sample.
    """
    others = {name: size for name, size in dimensions.items() if name != BATCH}
    for name, size in others.items():
        if abs(value - size) == 1:
            return _symbol(name) + (value - size)
    batch = dimensions.get(BATCH, 0)
    if not may_grow or batch <= 1 or value <= batch or value % batch:
        return None
    each = value // batch
    same = next((_symbol(name) for name, size in others.items() if size == each), None)
    return _symbol(BATCH) * (same or _following(each, others, may_grow=False) or each)


def _symbol(name: str) -> sympy.Symbol:
    return sympy.Symbol(name, positive=True, integer=True)
