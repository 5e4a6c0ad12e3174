"""Steps of several graphs, several roots and several calls: what runs in them, and the peak of the whole step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from autotune.predict.simulation import Simulation
from autotune.records.codec import dumps, loads
from autotune.records.configuration import Configuration
from autotune.records.graph import ActivationGraph, StepTrace
from autotune.records.plan import ALL, Plan
from autotune.worker.describing.allocations import Allocations
from autotune.worker.describing.calibration import Calibrator
from autotune.worker.describing.dimensions import Dimensions
from autotune.worker.engines.plan_engine import AotEngine
from autotune.worker.hooks.roots import RootHooks
from autotune.worker.hooks.samples import tensors_of
from autotune.worker.hooks.watch import Watch
from tests.fakes.hooked import restored_torch
from tests.fakes.planned import clean_torch

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
BATCH, WIDTH, LENGTH = 8, 32, 12


@pytest.fixture(autouse=True)
def _clean_torch() -> Iterator[None]:
    with clean_torch(), restored_torch():
        yield


class Masked(nn.Module):
    """torch's own encoder looks whether its mask is causal, which breaks the graph; Dynamo skips its files then."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 4 * WIDTH, activation="gelu", batch_first=True)
        self.inward, self.encoder = nn.Linear(WIDTH, WIDTH), nn.TransformerEncoder(layer, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        return self.encoder(self.inward(x), mask=mask).square().mean(dim=(1, 2))


class Tower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 8 * WIDTH), nn.Linear(8 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.gelu(torch.tanh(self.up(x)))).sin()


class Broken(nn.Module):
    """Breaks its graph in the middle: what comes next is decided in Python."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Tower(), Tower()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x)
        if hidden.abs().max().item() > 1e6:
            hidden = hidden / 1e6
        return self.second(hidden)


@torch._dynamo.disable
def opaque(x: torch.Tensor) -> torch.Tensor:
    return (x.exp() + x.cos()).sin()


class Hidden(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return opaque(x)


class Interrupted(nn.Module):
    """A part of it runs outside of any graph."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.between, self.second = Tower(), Hidden(), Tower()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.between(self.first(x)))


@dataclass(frozen=True)
class Case:
    modules: tuple[type[nn.Module], ...]
    loss: Callable[..., torch.Tensor]
    events: tuple[int, ...]
    calls: tuple[int, ...]


CASES = {
    "masked encoder": Case((Masked,), lambda x, m: m(x).mean(), (0, 1, 2, 3, 4, -5, -4, -3, -2, -1), (0, 1, 2, 3, 4)),
    # One graph for both, as they are of one class.
    "two roots": Case((Tower, Tower), lambda x, a, b: b(a(x)).square().mean(), (0, 1, -2, -1), (0, 0)),
    "called twice": Case(
        (Tower,), lambda x, m: m(x).square().mean() + m(x.flip(0)).exp().mean(), (0, 1, -2, -1), (0, 0)
    ),
    "broken": Case((Broken,), lambda x, m: m(x).square().mean(), (0, 1, -2, -1), (0, 1)),
    "interrupted": Case((Interrupted,), lambda x, m: m(x).square().mean(), (0, 1, -2, -1), (0, 1)),
}


def rows(batch: int) -> torch.Tensor:
    return torch.randn(batch, LENGTH, WIDTH, generator=torch.Generator().manual_seed(2))


class Script:
    """A training step of a case under the engine, as the hooks see it."""

    def __init__(self, case: Case, *, traces_sizes: bool = False) -> None:
        torch.manual_seed(0)
        self.modules = [make().train() for make in case.modules]
        self._loss = case.loss
        self.engine = AotEngine()
        self.engine.use(Configuration("aot"))
        self.engine.traces_sizes = traces_sizes
        self.hooks = RootHooks(
            engine=self.engine,
            training_call=lambda *_: self.engine.begin_call(),
            evaluation_call=lambda: None,
            call_done=lambda: None,
            inner_call=lambda _, inputs: self.engine.mark_sizes(tensors_of(inputs)) if traces_sizes else None,
            around=lambda root, call: call,
            is_optimized=lambda module: False,
            note=pytest.fail,
        )
        self.hooks.install()

    def parameters(self) -> list[nn.Parameter]:
        return [parameter for module in self.modules for parameter in module.parameters()]

    def gradient_bytes(self) -> int:
        return sum(parameter.grad.nbytes for parameter in self.parameters() if parameter.grad is not None)

    def step(self, batch: int = BATCH) -> list[torch.Tensor]:
        """The gradients that a step leaves."""
        self.run(rows(batch))
        return [parameter.grad.clone() for parameter in self.parameters() if parameter.grad is not None]

    def run(self, x: torch.Tensor) -> None:
        for module in self.modules:
            module.zero_grad(set_to_none=True)
        torch.manual_seed(1)
        if self.engine.traces_sizes:
            torch._dynamo.maybe_mark_dynamic(x, 0)
        observer = self.engine.observer
        loss = self._loss(x, *self.modules)
        if isinstance(observer, Calibrator):
            observer.script_backward_begins()
        loss.backward()
        if isinstance(observer, Calibrator):
            observer.script_backward_ended()

    def calibrated(self) -> tuple[list[ActivationGraph], list[StepTrace], float]:
        """As it arrives in the controller."""
        with torch.fx.experimental._config.patch(use_duck_shape=False):
            self.step()
        dimensions = Dimensions(self.engine.graphs, {(BATCH, 0): "batch"})
        self.engine.observer = calibrator = Calibrator(dimensions, self.gradient_bytes, self.parameters())
        self.step()
        calibrator.record(graph.slot for graph in self.engine.slots())
        self.step()
        calibrator.step_ended()
        self.engine.observer = None
        assert not calibrator.reason
        assert calibrator.error is not None
        graphs = [loads(ActivationGraph, dumps(graph)) for graph in calibrator.graphs.values()]
        return graphs, [loads(StepTrace, dumps(trace)) for trace in calibrator.traces], calibrator.error

    def peak(self, batch: int) -> int:
        x = rows(batch)
        self.run(x)  # what is allocated once
        for module in self.modules:
            module.zero_grad(set_to_none=True)
        with Allocations() as allocations:
            allocations.mark()
            self.run(x)
            allocations.mark()
        return allocations.stretches[-1].peak


def all_plans(graphs: list[ActivationGraph]) -> list[tuple[Plan, ...]]:
    layers = {layer.cluster_id: 1 for graph in graphs for layer in graph.layers}
    operators = {each.cluster_id: each.strategy for graph in graphs for each in graph.occurrences}
    sets = [tuple(Plan(name, strategy, ALL) for name, strategy in kind.items()) for kind in (layers, operators)]
    return [(), *filter(None, sets), (Plan(next(iter(operators)), 1, 1),)]


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.slow] if kind == "masked encoder" else []) for kind in sorted(CASES)],
)
def test_the_peak_of_the_whole_step_is_predicted_from_one_trace(kind: str) -> None:
    script = Script(CASES[kind], traces_sizes=True)
    graphs, traces, error = script.calibrated()
    assert error < 0.01
    (trace,) = traces
    assert (trace.calls, trace.events) == (CASES[kind].calls, CASES[kind].events)
    grow = all(any("batch" in text for text in graph.formulas) for graph in graphs)
    # What a part outside of graphs has made is traced with the sizes that it had.
    assert grow == (kind != "interrupted")
    simulation = Simulation(graphs, traces)
    for batch in (BATCH, 20) if grow else (BATCH,):
        torch._dynamo.reset()
        with restored_torch(), torch._dynamo.config.patch(automatic_dynamic_shapes=False):
            other = Script(CASES[kind])
            plain = other.step(batch)
            for plans in all_plans(graphs):
                assert other.engine.use(Configuration("aot", plans)) is None
                peak = other.peak(batch)
                assert other.engine.problem() is None
                assert all(torch.equal(one, two) for one, two in zip(other.step(batch), plain, strict=True))
                simulated = simulation.run(plans, dimensions={"batch": batch})
                assert simulated.peak_bytes == pytest.approx(peak, rel=0.02), plans


def test_blocks_that_torch_skips_are_planned_as_the_blocks_of_one_graph_are() -> None:
    script = Script(CASES["masked encoder"])
    script.step()
    layers = [[layer.cluster_id for layer in graph.joint.layers] for graph in script.engine.slots()]
    assert layers == [[], *[["TransformerEncoderLayer+"]] * 3, []]
    saved = []
    for count in (0, 1, 2, ALL):
        assert script.engine.use(Configuration("aot", (Plan("TransformerEncoderLayer+", 1, count),))) is None
        script.step()
        saved.append(script.engine.saved_bytes())
    assert saved == sorted(saved, reverse=True)
    assert len(set(saved)) == 4


def test_what_is_kept_outside_of_graphs_is_counted_by_module() -> None:
    script = Script(CASES["interrupted"])
    script.step()
    script.engine.observer = script.hooks.watch = watch = Watch(script.parameters())
    script.step()
    script.engine.observer = script.hooks.watch = None
    # The exponential's result, its sum with the cosine; the cosine reads what the graph before has made.
    size = BATCH * LENGTH * WIDTH * 4
    assert watch.calls == 1
    assert watch.saved_bytes == {"Hidden": 2 * size}
    assert watch.num_modules == {"Hidden": 1}


def test_nothing_is_kept_outside_where_a_single_graph_runs() -> None:
    script = Script(CASES["two roots"])
    script.step()
    script.engine.observer = script.hooks.watch = watch = Watch(script.parameters())
    gradients: list[Any] = [script.step()]
    script.engine.observer = script.hooks.watch = None
    gradients.append(script.step())
    assert (watch.calls, dict(watch.saved_bytes)) == (2, {})
    assert all(torch.equal(one, two) for one, two in zip(*gradients, strict=True))
