"""Calibrating graphs in a training step: what it finds is true, and the step does not notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn

from autotune.predict.simulation import Simulation
from autotune.records.codec import dumps, loads
from autotune.records.graph import ActivationGraph
from autotune.records.plan import Plan
from autotune.worker.describing.allocations import Allocations
from autotune.worker.describing.calibration import Calibrator
from autotune.worker.describing.dimensions import Dimensions
from autotune.worker.plans.activation_graph import activation_graph
from tests.fakes.models import CASES
from tests.fakes.planned import Planned, Trace, clean_torch

pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
]
BATCH = 8
ALL_LAYERS = {"gpt": "GptBlock+:1:-1", "bert": "BertLayer+:1:-1", "conv net": "ConvBlock+:1:-1"}


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    with clean_torch():
        yield


def planned(case: str, batch_size: int, *, dynamic: bool = False) -> Planned:
    """A model of the unit tests with inputs of a batch size."""

    def inputs() -> tuple[torch.Tensor, ...]:
        drawn = tuple(torch.cat([tensor] * 4)[:batch_size].clone() for tensor in CASES[case].inputs())
        assert all(len(tensor) == batch_size for tensor in drawn)
        return drawn

    model = Planned(CASES[case].make, inputs)
    if dynamic:
        model.mark_dynamic(0)
    return model


def calibrated(model: Planned) -> tuple[Calibrator, Trace]:
    """Calibrate in one step; gives what the step left too."""
    model.step()
    dimensions = Dimensions(model.engine.graphs, {(BATCH, 0): "batch"})
    model.engine.observer = calibrator = Calibrator(dimensions)
    trace = model.step()
    calibrator.record(calibrator.graphs)
    assert model.step() == trace
    calibrator.step_ended()
    model.engine.observer = None
    return calibrator, trace


def only_graph(calibrator: Calibrator) -> ActivationGraph:
    """As it arrives in the controller."""
    assert not calibrator.reason
    (graph,) = calibrator.graphs.values()
    return loads(ActivationGraph, dumps(graph))


def measured_peak(step: Callable[[], Any], *, before: Callable[[], Any] = lambda: None) -> int:
    """The most bytes that a step allocates at a time; the end of what ``before`` leaves is seen as well."""
    with Allocations() as allocations:
        before()
        allocations.mark()
        step()
        allocations.mark()
    return allocations.stretches[-1].peak


@pytest.mark.parametrize(
    "case", [case if case == "bert" else pytest.param(case, marks=pytest.mark.slow) for case in sorted(ALL_LAYERS)]
)
def test_peaks_at_other_batch_sizes_are_predicted_from_one_calibration(case: str) -> None:
    calibrator, _ = calibrated(planned(case, BATCH, dynamic=True))
    assert calibrator.dimensions == {"batch": BATCH}
    assert calibrator.error is not None
    assert calibrator.error < 0.001
    graph = only_graph(calibrator)
    assert graph.batch_sizes == (2, 4, 8, 16, 32)
    assert len(graph.formulas) < len(graph.sizes) / 4
    simulation = Simulation([graph])
    for batch_size in (5, 20):
        torch._dynamo.reset()
        other = planned(case, batch_size)
        for plans in ((), (ALL_LAYERS[case],)):
            other.step(*plans)
            call = other._planned(plans, 0)
            inputs = other._begin()
            peak = measured_peak(lambda: call(*inputs).mean().backward())  # noqa: B023
            simulated = simulation.run(
                [Plan(*plan.rsplit(":", 2)[:1], 1, -1) for plan in plans], dimensions={"batch": batch_size}
            )
            assert simulated.saved_bytes == other.saved_bytes()
            assert simulated.peak_bytes == pytest.approx(peak, rel=0.01)


class EndsInDropout(nn.Module):
    """The result of the operator that is recomputed is what the graph returns, as where a graph breaks behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.dropout = nn.LayerNorm(128), nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dropout(self.norm(x))  # type: ignore[no-any-return]


def test_what_is_recomputed_takes_memory_also_where_the_forward_has_returned_it() -> None:
    calibrator, _ = calibrated(Planned(EndsInDropout, lambda: (torch.randn(BATCH, 64, 128),)))

    assert any(set(each.nodes) & set(only_graph(calibrator).random) for each in only_graph(calibrator).occurrences)
    assert calibrator.error == 0.0


@pytest.mark.parametrize("case", ["changes its inputs", "conv net", "gpt", "own checkpoints", "spectral norm"])
def test_the_step_that_calibrates_computes_what_it_would_have(case: str) -> None:
    model = planned(case, BATCH) if case in ALL_LAYERS else Planned(CASES[case].make, CASES[case].inputs)
    expected = model.step()
    calibrator, trace = calibrated(model)
    assert not calibrator.reason
    assert calibrator.graphs
    assert trace == expected
    assert model.step() == expected


def test_the_random_state_is_what_it_was_before_every_forward() -> None:
    model = planned("gpt", BATCH)
    model.step()
    states = []

    class Watched(Calibrator):
        def forward_begins(self, *given: Any) -> None:
            states.append(torch.get_rng_state())
            super().forward_begins(*given)
            states.append(torch.get_rng_state())

    model.engine.observer = observer = Watched(Dimensions([], {}))
    model.step()
    assert observer.graphs
    before, after = states
    assert torch.equal(before, after)


def test_calibrating_takes_no_more_memory_than_the_step() -> None:
    model = planned("gpt", BATCH)
    model.step()
    call = model._planned((), 0)
    inputs = model._begin()
    alone = measured_peak(lambda: call(*inputs).backward())
    peaks = []

    class Watched(Calibrator):
        def _calibrate(self, *given: Any) -> None:
            import autotune.worker.describing.calibration as module

            counted = module.IsolatedRun

            class Counting(counted):  # type: ignore[misc, valid-type]
                def peak(self, *isolated: Any) -> int:
                    peaks.append(super().peak(*isolated))
                    return peaks[-1]

            module.IsolatedRun = Counting  # type: ignore[misc]
            try:
                super()._calibrate(*given)
            finally:
                module.IsolatedRun = counted  # type: ignore[misc]

    model.engine.observer = Watched(Dimensions([], {}))
    model.step()
    assert len(peaks) == 2
    assert max(peaks) <= alone


@pytest.mark.filterwarnings("ignore:.*Profiler clears events:UserWarning")
def test_a_profiler_of_the_scripts_own_is_left_alone() -> None:
    model = planned("gpt", BATCH)
    expected = model.step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        calibrator, trace = calibrated(model)
    assert "profiler" in calibrator.reason
    assert trace == expected
    assert len(profile.events()) > 100


def test_an_operator_that_fails_apart_from_the_step_is_a_reason_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    model = planned("gpt", BATCH)
    expected = model.step()
    monkeypatch.setattr("autotune.worker.describing.calibration.IsolatedRun.node_peaks", lambda *_, **__: 1 / 0)
    calibrator, trace = calibrated(model)
    assert "ZeroDivisionError" in calibrator.reason
    assert not calibrator.graphs
    assert trace == expected


@pytest.mark.slow
def test_a_batch_as_large_as_its_sequences_are_long_is_told_from_them() -> None:
    def ids(batch_size: int) -> tuple[torch.Tensor, ...]:
        drawn = torch.randint(0, 50, (batch_size, 24))
        for dimension in (0, 1):
            torch._dynamo.maybe_mark_dynamic(drawn, dimension)
        return (drawn,)

    with torch.fx.experimental._config.patch(use_duck_shape=False):
        model = Planned(CASES["gpt"].make, lambda: ids(24))
        model._begin = lambda: list(ids(24))  # type: ignore[method-assign]
        model.step()
    dimensions = Dimensions(model.engine.graphs, {(24, 0): "batch", (24, 1): "seq_len"})
    assert dimensions.values == {"batch": 24, "seq_len": 24}
    (traced,) = model.engine.graphs
    graph = activation_graph(traced.joint, dimensions.of(traced), node_times_s={}, calls=1.0)
    torch._dynamo.reset()
    other = Planned(CASES["gpt"].make, lambda: ids(10))
    other.step()
    simulated = Simulation([graph]).run(dimensions={"batch": 10, "seq_len": 24})
    assert simulated.saved_bytes == other.saved_bytes()


def test_another_thread_than_the_main_one_is_left_alone() -> None:
    model = planned("gpt", BATCH)
    expected = model.step()
    with ThreadPoolExecutor(1) as pool:
        calibrator, trace = pool.submit(calibrated, model).result()
    assert "another thread" in calibrator.reason
    assert not calibrator.graphs
    assert trace == expected


class BatchSecond(nn.Module):
    """Takes sequences first, and a mask that is one row seen by the whole batch."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.up(x)).view(-1, 8).sum() * torch.exp(mask * x.mean(-1).T).sum()


def test_inputs_are_cut_with_the_strides_that_they_were_traced_with() -> None:
    def inputs() -> list[torch.Tensor]:
        x, mask = torch.ones(5, BATCH, 8), torch.ones(1, 5).expand(BATCH, 5)
        torch._dynamo.maybe_mark_dynamic(x, 1)
        torch._dynamo.maybe_mark_dynamic(mask, 0)
        return [x, mask]

    model = Planned(BatchSecond, lambda: tuple(inputs()))
    model._begin = inputs  # type: ignore[method-assign]
    model.step()
    dimensions = Dimensions(model.engine.graphs, {(BATCH, 1): "batch"})
    model.engine.observer = calibrator = Calibrator(dimensions)
    model.step()
    calibrator.step_ended()
    assert only_graph(calibrator).batch_sizes == (2, 4, 8, 16, 32)
    assert calibrator.error == pytest.approx(0, abs=0.01)


class LossOutside(nn.Module):
    """Returns scores; what is made of them, and when gradients are emptied, is the script's affair."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 64), nn.Linear(64, 4096)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.tanh(self.up(x)))


def test_what_the_script_does_around_the_model_is_part_of_the_peak() -> None:
    model = planned_rows()

    def step(rows: int) -> None:
        x = torch.ones(rows, 8)
        torch._dynamo.maybe_mark_dynamic(x, 0)
        model.engine.begin_call()
        scores = call(x)
        loss = torch.log_softmax(scores.float().exp(), -1).square().mean()
        model.model.zero_grad(set_to_none=True)
        observer = model.engine.observer
        if isinstance(observer, Calibrator):
            observer.script_backward_begins()
        loss.backward()

    call = model._planned((), 0)
    step(BATCH)
    dimensions = Dimensions(model.engine.graphs, {(BATCH, 0): "batch"})
    gradients = lambda: sum(p.grad.nbytes for p in model.model.parameters() if p.grad is not None)  # noqa: E731
    model.engine.observer = calibrator = Calibrator(dimensions, gradients)
    step(BATCH)
    calibrator.record(calibrator.graphs)
    step(BATCH)
    calibrator.step_ended()
    model.engine.observer = None
    graph, (trace,) = only_graph(calibrator), calibrator.traces
    assert trace.gradients == gradients()
    assert [stretch.gradients_end for stretch in trace.stretches] == [-gradients(), 0]
    simulation = Simulation([graph], [trace])
    for rows in (BATCH, 64):
        peak = measured_peak(lambda: step(rows), before=lambda: step(rows))  # noqa: B023
        assert simulation.run(dimensions={"batch": rows}).peak_bytes == pytest.approx(peak, rel=0.01)


def planned_rows() -> Planned:
    return Planned(LossOutside, lambda: (torch.ones(BATCH, 8),))
