"""Python code that runs a graph: what ``fx`` writes, without what makes that readable and takes most of its time."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from torch import fx

_LITERALS = (bool, int, str, type(None))


def compiled(module: fx.GraphModule) -> Callable[[list[Any]], Any]:
    """A function of a graph's inputs, in a list that it empties; each value is let go after its last use.

    Args:
        module: functions and constants only, as AOTAutograd's graphs are.
    """
    code = _Code(module)
    binary = compile(code.source(), "<a graph under plans>", "exec")
    scope: dict[str, Any] = dict(code.names)
    exec(binary, scope)  # noqa: S102
    function: Callable[[list[Any]], Any] = scope["run"]
    return function


class _Code:
    """The code of one graph. ``names`` are the functions and constants that it names."""

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
        arguments = [
            *map(self._written, node.args),
            *(f"{key}={self._written(node.kwargs[key])}" for key in node.kwargs),
        ]
        function = self._functions.get(node.target)
        if function is None:
            function = self._functions[node.target] = self._constant(node.target)
        return f"{function}({', '.join(arguments)})"

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
