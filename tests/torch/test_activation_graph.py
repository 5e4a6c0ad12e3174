"""Activation graphs: which are refused, as the stock partitioner has ways of its own, and how sizes are written."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from autotune.worker.plans.activation_graph import _size_formulas, obstacle

aten = torch.ops.aten


def joint(change: str) -> Any:
    """A forward of one sine and a backward of one cosine, with one thing that stands in the way."""
    graph = fx.Graph()
    x = graph.placeholder("primals_1")
    forward = graph.call_function(aten.sin.default, (x,))
    forward.meta["partitioner_tag"] = "is_forward"
    tangent = graph.placeholder("tangents_1")
    backward = graph.call_function(aten.cos.default, (tangent,))
    if change == "seed":
        graph.placeholder("fwd_seed_0")
    elif change == "hook":
        forward.meta["has_backward_hook"] = True
    elif change == "backward update":
        graph.call_function(aten.copy_.default, (x, backward)).meta["partitioner_tag"] = "is_backward"
    elif change == "impure":
        with graph.inserting_after(forward):
            update = graph.call_function(aten.add_.Tensor, (x, forward))
        update.meta["partitioner_tag"] = "is_forward"
    elif change == "another device":
        forward.meta["val"] = torch.empty(1, device="meta")
    elif change == "module":
        graph.call_module("inner", (x,))
    graph.output(((forward,), (backward,)))
    nodes = {node.name: node for node in graph.nodes}
    return SimpleNamespace(
        nodes=nodes,
        is_functional=change != "not functional",
        has_stock_partitioner=change != "another device",
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("not functional", "side effects"),
        ("another device", "on a GPU yet"),
        ("seed", "seeds"),
        ("hook", "hooks on gradients"),
        ("backward update", "backward changes its inputs"),
        ("impure", "add_ has side effects"),
        ("module", "call_module"),
    ],
)
def test_what_cannot_be_simulated_is_named(change: str, reason: str) -> None:
    found = obstacle(joint(change))
    assert found is not None
    assert reason in found


def test_an_ordinary_graph_has_no_obstacle() -> None:
    assert obstacle(joint("")) is None


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch was built without distributed")
def test_collectives_are_an_obstacle() -> None:
    import torch.distributed._functional_collectives

    found = joint("")
    node = next(node for node in found.nodes.values() if node.op == "call_function")
    node.target = torch.ops._c10d_functional.wait_tensor.default
    reason = obstacle(found)
    assert reason is not None
    assert "collective" in reason


def test_a_size_that_only_the_data_decides_is_known_by_the_operator_that_returns_it_beside_a_tensor() -> None:
    shapes = ShapeEnv()
    size = shapes.create_unbacked_symint()
    with FakeTensorMode(shape_env=shapes):
        tensor = torch.empty(2 * size)
    node = fx.Graph().call_function(aten.sin.default, ())
    node.meta["val"] = (tensor, size)

    assert _size_formulas([tensor], [node], {}) == ["0"]
