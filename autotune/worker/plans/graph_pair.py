"""A joint graph split in two: what its halves run, and what one hands to the other."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cached_property
from typing import Any

from torch import fx

from .joint import (
    is_symbol,
    is_tensor,
    parameter_storages,
    saved_nodes,
    unique_bytes,
    value_of,
)

_LITERALS = (bool, int, str, type(None))


def compiled(module: fx.GraphModule) -> Callable[[list[Any]], Any]:
    """Make a function of a list of a graph's inputs, which it empties; each value is let go after its last use."""
    code = _Code(module)
    binary = compile(code.source(), "<a graph under plans>", "exec")
    scope = dict(code.names)
    exec(binary, scope)  # noqa: S102
    function: Callable[[list[Any]], Any] = scope["run"]
    return function


class _Code:
    """The code of one graph of functions and constants; ``names`` are those that it names."""

    def __init__(self, module: fx.GraphModule) -> None:
        self.names: dict[str, Any] = {}
        self._module = module
        self._variables = {node: f"v{place}" for place, node in enumerate(module.graph.nodes)}
        self._functions: dict[Any, str] = {}

    def source(self) -> str:
        """Define the function ``run``."""
        nodes = list(self._variables)
        inputs = [self._variables[node] for node in nodes if node.op == "placeholder"]
        lines = [f"[{', '.join(inputs)}] = inputs", "inputs.clear()"]
        ending = _last_uses(nodes)
        for node in nodes:
            if node.op == "output":
                lines.append(f"return {self._written(node.args[0])}")
            elif node.op != "placeholder":
                lines.append(f"{self._variables[node]} = {self._call(node)}")
                if node in ending:
                    lines.append(f"del {', '.join(self._variables[each] for each in ending[node])}")
        return "def run(inputs):\n " + "\n ".join(lines)

    def _call(self, node: fx.Node) -> str:
        if node.op == "get_attr":
            return self._constant(operator.attrgetter(str(node.target))(self._module))
        assert node.op == "call_function", node.op
        if node.target is operator.getitem:
            return f"{self._written(node.args[0])}[{self._written(node.args[1])}]"
        keywords = (f"{key}={self._written(value)}" for key, value in node.kwargs.items())
        if node.target not in self._functions:
            self._functions[node.target] = self._constant(node.target)
        return f"{self._functions[node.target]}({', '.join([*map(self._written, node.args), *keywords])})"

    def _written(self, value: Any) -> str:
        if isinstance(value, fx.Node):
            return self._variables[value]
        # Not what is derived from them: enumerations, say.
        if type(value) in _LITERALS:
            return repr(value)
        if isinstance(value, list):
            return f"[{', '.join(map(self._written, value))}]"
        if type(value) is tuple:
            return f"({''.join(f'{self._written(each)}, ' for each in value)})"
        if isinstance(value, dict):
            return f"{{{', '.join(f'{key!r}: {self._written(each)}' for key, each in value.items())}}}"
        if isinstance(value, slice):
            return f"slice({self._written(value.start)}, {self._written(value.stop)}, {self._written(value.step)})"
        return self._constant(value)

    def _constant(self, value: Any) -> str:
        name = f"c{len(self.names)}"
        self.names[name] = value
        return name


def _last_uses(nodes: list[fx.Node]) -> dict[fx.Node, list[fx.Node]]:
    """Return what to let go behind each node: what nobody reads later, itself included where nobody does."""
    found: dict[fx.Node, list[fx.Node]] = {}
    read: set[fx.Node] = set()
    for node in reversed(nodes):
        last = [source for source in node.all_input_nodes if source not in read]
        read.update(last)
        if node.op not in ("placeholder", "output") and not node.users:
            last.append(node)
        if last:
            found[node] = last
    return found


class Pair:
    """A joint graph split into forward and backward.

    Attributes:
        saved: What is handed from one to the other.
        signature: The numbers of saved symbols and of saved tensors without version check, which AOTAutograd's runtime
            fixed when it compiled the first pair of this graph.
        saved_inputs: For each saved tensor whether it is an input of the forward.
        symbolic_dimensions: For the place of each saved tensor with symbols as sizes, which dimensions have them.
        recomputed: The names of what both run.
    """

    def __init__(
        self,
        forward: fx.GraphModule,
        backward: fx.GraphModule,
        *,
        num_forward_outputs: int,
        recomputed: tuple[str, ...],
    ) -> None:
        saved = saved_nodes(forward, num_forward_outputs)
        unchecked = [node for node in saved if node.meta.get("saved_tensor_with_no_vc_check", False)]
        self.forward = forward
        self.backward = backward
        self.num_forward_outputs = num_forward_outputs
        self.recomputed = recomputed
        self.saved = unique_bytes(saved, parameter_storages(forward.graph))
        self.signature = (sum(map(is_symbol, saved)), len(unchecked))
        self.saved_inputs = tuple(node.op == "placeholder" for node in saved if is_tensor(node))
        self.symbolic_dimensions = {place: found for place, node in enumerate(saved) if (found := _symbolic(node))}

    @cached_property
    def run_forward(self) -> Callable[[list[Any]], Any]:
        """Run the forward on a list of inputs, emptied on the way so that each is freed after its last use."""
        return compiled(self.forward)

    @cached_property
    def run_backward(self) -> Callable[[list[Any]], Any]:
        """Run the backward on a list of saved values and gradients, emptied on the way."""
        return compiled(self.backward)


def _symbolic(node: fx.Node) -> set[int]:
    shape = value_of(node).shape if is_tensor(node) else ()
    return {dimension for dimension, size in enumerate(shape) if not isinstance(size, int)}
