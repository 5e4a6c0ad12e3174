"""Calibrating under Inductor: its graphs are simulated operator by operator, and held against the code it generates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch._inductor.config
from torch import nn

from autotune.predict.partition import GraphSplitter
from autotune.predict.simulation import Simulation
from autotune.records.codec import dumps, loads
from autotune.records.configuration import Configuration
from autotune.records.graph import ActivationGraph
from autotune.records.plan import ALL, Plan, Quota
from autotune.worker.describing.calibration import Calibrator
from autotune.worker.describing.dimensions import Dimensions
from autotune.worker.engines.inductor import InductorEngine
from tests.fakes.planned import Planned, clean_torch
from tests.fakes.splits import operators, simulated_operators

# Inductor's own imports warn; a warning made an error stops Dynamo's tracing.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
]


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    with clean_torch(), torch._inductor.config.patch({"compile_threads": 1}):
        yield


class Block(nn.Module):
    """A normalization, a gelu, a softmax and a dropout on a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(32), nn.Linear(32, 64), nn.Linear(64, 32)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = torch.softmax(x @ x.mT, -1)
        return x + self.dropout(self.down(nn.functional.gelu(self.up(weights @ self.norm(x)))))


def described(make: Callable[[], nn.Module], *shape: int) -> tuple[Planned, Calibrator]:
    """A model described as discovery does it, its batch the first dimension of its input."""
    model = Planned(make, lambda: (torch.randn(*shape),), InductorEngine)
    model.engine.use(Configuration("inductor"))
    model.engine.describe()
    model.step()
    dimensions = Dimensions(model.engine.graphs, {(shape[0], 0): "batch"})
    model.engine.observer = calibrator = Calibrator(dimensions)
    model.step()
    calibrator.step_ended()
    return model, calibrator


class Residual(nn.Module):
    """A product that is added to its input: Inductor makes one operator of both."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(32, 32, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + self.linear(x)).sin()


@pytest.mark.slow
def test_what_is_run_node_by_node_is_not_what_inductor_rewrites() -> None:
    model, calibrator = described(Residual, 8, 32)
    assert not calibrator.reason
    (graph,) = model.engine.graphs
    assert len(graph.generated) == 2
    names = operators(graph.joint.unplanned.forward)
    assert "mm" in names
    assert set(names) <= graph.joint.nodes.keys()


@pytest.mark.slow
def test_code_that_is_not_generated_is_a_reason_that_tells_why() -> None:
    model, _ = described(Residual, 8, 32)
    (graph,) = model.engine.graphs
    graph.generated.clear()
    graph.not_generated = "CppCompileError: no compiler on this machine"
    model.engine.observer = calibrator = Calibrator(Dimensions([], {}))
    model.step()
    assert "no compiler on this machine" in calibrator.reason


@pytest.mark.slow
def test_what_generated_code_takes_less_than_single_operators_is_told() -> None:
    model, calibrator = described(lambda: nn.Sequential(Block(), Block()), 8, 16, 32)
    assert not calibrator.reason
    (graph,) = (loads(ActivationGraph, dumps(each)) for each in calibrator.graphs.values())
    assert graph.always
    simulation = Simulation([graph])
    simulated = simulation.run(dimensions=calibrator.dimensions)
    assert simulated.saved_bytes == model.saved_bytes()
    # Fused, softmax and gelu leave nothing on the way: that is seen, and no reason to predict nothing.
    assert 0.7 < calibrator.generated_share < 0.99
    assert calibrator.error == pytest.approx(1 / calibrator.generated_share - 1)


@pytest.mark.slow
def test_what_the_script_holds_is_told_from_copies_that_only_generated_code_makes() -> None:
    images = torch.randn(8, 3, 16, 16)
    model = Planned(lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3)), lambda: (images,), InductorEngine)
    model.engine.use(Configuration("inductor"))
    model.engine.describe()
    call = model._planned((), 0)

    def step() -> None:
        loss = call(images).square().mean()
        if isinstance(model.engine.observer, Calibrator):
            model.engine.observer.script_backward_begins()
        loss.backward()

    step()
    model.engine.observer = calibrator = Calibrator(Dimensions([], {}))
    step()
    calibrator.record(calibrator.graphs)
    step()
    calibrator.step_ended()
    (trace,) = calibrator.traces
    # The result, and on top its squares and what their backward makes; when the graph's begins, only what it is given.
    result_bytes = 8 * 4 * 12 * 12 * 4
    assert trace.stretches[0].begin == pytest.approx(result_bytes, rel=0.01)
    assert trace.stretches[0].rise == pytest.approx(4 * result_bytes, rel=0.01)
    assert trace.stretches[0].end == pytest.approx(0, abs=0.01 * result_bytes)


@pytest.mark.slow
def test_halves_hold_what_inductor_gets_and_save_as_much() -> None:
    model, calibrator = described(lambda: nn.Sequential(Block(), Block()), 8, 16, 32)
    (joint,) = (graph.joint for graph in model.engine.graphs)
    (graph,) = calibrator.graphs.values()
    splitter = GraphSplitter(graph)
    for plans in ((), (Plan("Block+", 1, 1),), (Plan("Block+", 1, ALL),)):
        split = splitter.split(splitter.tags(Quota(plans)))
        pair = joint.partition(Quota(plans))
        assert simulated_operators(graph, split.forward) == operators(pair.forward)
        # Inductor puts them in an order of its own.
        backward = simulated_operators(graph, split.backward)
        assert sorted(backward) == sorted(operators(pair.backward))
