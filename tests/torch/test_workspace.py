"""Workspaces of operators run alone: those of a step at that batch, within bounds, and never an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import fx, nn
from torch.fx.experimental.proxy_tensor import make_fx

from autotune.records.graph import ActivationGraph
from autotune.worker.describing import calibration
from autotune.worker.describing.calibration import Calibrator
from autotune.worker.describing.dimensions import Dimensions
from autotune.worker.describing.workspace import as_traced, workspaces, zeros
from tests.fakes.planned import Planned, clean_torch

LENGTH = 65


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    with clean_torch():
        yield


class Products(nn.Module):
    """Sorting takes memory; and the scratch memory of products in bf16, on many processors, grows up to a bound."""

    def __init__(self) -> None:
        super().__init__()
        # Many, so that a step takes as much as one of them at four times the batch.
        self.layers = nn.Sequential(*(nn.Linear(64, 64) for _ in range(20)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.layers(x) @ x.transpose(1, 2)).flatten().sort().values


def calibrated(batch: int) -> ActivationGraph:
    def inputs() -> list[torch.Tensor]:
        x = torch.ones(batch, LENGTH, 64, dtype=torch.bfloat16)
        torch._dynamo.maybe_mark_dynamic(x, 0)
        return [x]

    torch._dynamo.reset()
    model = Planned(lambda: Products().bfloat16(), lambda: tuple(inputs()))
    model._begin = inputs  # type: ignore[method-assign]
    model.step()
    dimensions = Dimensions(model.engine.graphs, {(batch, 0): "batch"})
    model.engine.observer = calibrator = Calibrator(dimensions)
    model.step()
    calibrator.step_ended()
    assert not calibrator.reason
    (graph,) = calibrator.graphs.values()
    return graph


@pytest.mark.slow
def test_an_operator_alone_needs_what_it_needs_in_a_step() -> None:
    small, large = calibrated(4), calibrated(16)
    assert (small.batch_sizes, large.batch_sizes) == ((2, 4, 8, 16), (4, 8, 16, 32, 64))
    rows = [{graph.names[node]: row for node, *row in graph.workspace} for graph in (small, large)]
    assert rows[0]
    for name, row in rows[0].items():
        assert row[1:] == rows[1].get(name, [0] * 5)[:3], name


def node_of(operation: Callable[[torch.Tensor], torch.Tensor], given: torch.Tensor, target: object) -> fx.Node:
    (node,) = make_fx(operation, tracing_mode="fake")(given).graph.find_nodes(op="call_function", target=target)
    return node


def test_what_would_take_more_than_it_may_is_not_run() -> None:
    node = node_of(lambda x: torch.sort(x)[0], torch.ones(1000), torch.ops.aten.sort.default)
    assert workspaces({node: 17}, {node: 17}, {}, 16_000 + 16, as_traced) == {node: 17}
    assert workspaces({node: 17}, {node: 17}, {}, 16_000 + 17, as_traced)[node] != 17


def test_what_running_takes_may_be_less_than_what_is_expected_if_it_does_not_run() -> None:
    node = node_of(lambda x: torch.sort(x)[0], torch.ones(1000), torch.ops.aten.sort.default)
    assert workspaces({node: 10**6}, {node: 17}, {}, 16_000 + 17, as_traced)[node] < 10**6
    assert workspaces({node: 17}, {node: 10**6}, {}, 16_000 + 17, as_traced) == {node: 17}


@pytest.mark.parametrize(
    ("row", "larger", "expected"),
    [([0, 0, 136], 16, 272), ([0, 68, 136], 16, 272), ([136, 136, 136], 32, 136), ([0, 0, 0], 32, 0)],
    ids=["from some size on", "in proportion", "constant", "none"],
)
def test_a_workspace_grows_as_it_did_last_or_in_proportion_if_that_is_less(
    row: list[int], larger: int, expected: int
) -> None:
    assert calibration._expected([2, 4, 8], row, larger) == expected


def test_what_draws_is_not_run() -> None:
    node = node_of(lambda x: x.bernoulli(), torch.ones(8), torch.ops.aten.bernoulli.default)
    before = torch.get_rng_state()
    assert workspaces({node: 17}, {node: 17}, {}, 10**6, as_traced) == {node: 17}
    assert torch.equal(torch.get_rng_state(), before)


def test_what_there_is_no_memory_for_is_taken_as_expected() -> None:
    def no_memory(*_: object) -> object:
        raise MemoryError

    node = node_of(lambda x: torch.sort(x)[0], torch.ones(1000), torch.ops.aten.sort.default)
    assert workspaces({node: 17}, {node: 17}, {}, 10**6, no_memory) == {node: 17}


def test_what_cannot_be_run_on_zeros_is_taken_as_expected() -> None:
    inverse = torch.ops.aten.linalg_inv_ex.default
    node = node_of(lambda x: inverse(x, check_errors=True)[0], torch.eye(8), inverse)
    fine = node_of(lambda x: torch.sort(x)[0], torch.ones(1000), torch.ops.aten.sort.default)
    found = workspaces({node: 17, fine: 17}, {node: 17, fine: 17}, {}, 10**6, as_traced)
    assert found[node] == 17
    assert found[fine] != 17


def test_what_changes_its_input_is_not_run() -> None:
    node = node_of(lambda x: torch.ops.aten.copy_(x, x + 1), torch.ones(8), torch.ops.aten.copy_.default)
    assert workspaces({node: 17}, {node: 17}, {}, 10**6, as_traced) == {node: 17}


@pytest.mark.parametrize(
    "like", [torch.ones(3, 4).t(), torch.ones(1, 4).expand(5, 4), torch.ones(0, 4), torch.tensor(1)], ids=str
)
def test_zeros_have_the_form_of_what_they_stand_for(like: torch.Tensor) -> None:
    made = zeros(like, {})
    assert (made.shape, made.stride(), made.dtype) == (like.shape, like.stride(), like.dtype)
    assert not made.any()
