"""The code that runs a graph computes what the graph says, and keeps nothing for longer than it must."""

from __future__ import annotations

import operator
import weakref
from typing import Any

import torch
from torch import fx

from autotune.worker.plans.graph_pair import compiled


def module(graph: fx.Graph, **constants: Any) -> fx.GraphModule:
    return fx.GraphModule(constants, graph)


def test_arguments_of_every_kind_arrive() -> None:
    seen: list[Any] = []

    def note(*arguments: Any, **keywords: Any) -> int:
        seen.append((arguments, keywords))
        return 7

    graph = fx.Graph()
    one, two = graph.placeholder("one"), graph.placeholder("two")
    called = graph.call_function(
        note,
        (one, [two, (one,), ()], {"key": [two]}, slice(None, two, 2), "text", float("inf"), None, True),
        {"dtype": torch.float64, "device": torch.device("cpu"), "layout": torch.strided},
    )
    constant = graph.get_attr("kept")
    graph.output((called, None, constant, 3))
    kept = torch.ones(2)

    assert compiled(module(graph, kept=kept))([1, 2]) == (7, None, kept, 3)

    keywords = {"dtype": torch.float64, "device": torch.device("cpu"), "layout": torch.strided}
    assert seen == [((1, [2, (1,), ()], {"key": [2]}, slice(None, 2, 2), "text", float("inf"), None, True), keywords)]


def test_results_are_those_of_the_graph() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    parts = graph.call_function(torch.ops.aten.max.dim, (x, -1), {"keepdim": True})
    values = graph.call_function(operator.getitem, (parts, 0))
    graph.output((graph.call_function(torch.ops.aten.mul.Tensor, (x, values)),))
    x_value = torch.randn(3, 4)

    (result,) = compiled(module(graph))([x_value])

    assert torch.equal(result, x_value * x_value.amax(-1, keepdim=True))


def test_inputs_and_values_are_let_go_after_their_last_use() -> None:
    alive: list[list[bool]] = []
    references: list[weakref.ref[torch.Tensor]] = []

    def double(x: torch.Tensor) -> torch.Tensor:
        alive.append([reference() is not None for reference in references])
        result = x * 2
        references.append(weakref.ref(result))
        return result

    graph = fx.Graph()
    node = graph.placeholder("x")
    for _ in range(3):
        node = graph.call_function(double, (node,))
    graph.call_function(double, (node,))
    graph.output((graph.call_function(double, (node,)),))
    inputs = [torch.ones(2)]
    references.append(weakref.ref(inputs[0]))

    (result,) = compiled(module(graph))(inputs)

    assert not inputs
    assert torch.equal(result, torch.full((2,), 16.0))
    # Each is made while what it is made of is still there; the fourth is read by nobody.
    assert alive == [
        [True],
        [False, True],
        [False, False, True],
        [False, False, False, True],
        [False, False, False, True, False],
    ]
