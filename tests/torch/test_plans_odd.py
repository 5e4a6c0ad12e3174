"""Plans on models that are hard to trace or to recompute: right, or refused with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from autotune.records.configuration import Configuration
from autotune.records.measuring import Measuring
from autotune.records.outcome import Fallback, Measured, Outcome, ScriptError
from autotune.records.plan import parse_plans
from tests.fakes.hooked import restored_torch
from tests.fakes.odd_models import ODD_CASES, WIDTH, Averaging
from tests.fakes.planned import Planned, clean_torch
from tests.fakes.training_process import TrainingProcess

pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
]


@pytest.fixture(scope="module", params=sorted(ODD_CASES))
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def planned(name: str) -> Iterator[Planned]:
    with clean_torch():
        yield Planned(ODD_CASES[name].make, ODD_CASES[name].inputs)


def test_every_plan_changes_the_memory_and_nothing_else(name: str, planned: Planned) -> None:
    expected = planned.plain()
    assert planned.step() == expected
    saved, plans = planned.saved_bytes(), planned.plans()
    assert plans, "a model without a single cluster shows nothing"
    saved_under = []
    for plan in plans:
        assert planned.step(plan) == expected, plan
        saved_under.append(planned.saved_bytes())
        assert planned.refusal is None
        assert planned.engine.problem() is None
    assert planned.step(*plans) == expected
    # Not each saves at these sizes (what draws keeps a generator's state), and they do not add up.
    assert min(saved_under) < saved
    assert len(planned.engine.slots()) == ODD_CASES[name].num_graphs


def test_what_is_saved_is_what_autograd_keeps(name: str, planned: Planned) -> None:
    if ODD_CASES[name].num_graphs > 1:
        pytest.skip("what one graph hands to the next counts as an input of that one")
    planned.step()
    for plans in ([], planned.plans()):
        planned.step(*plans)
        assert planned.saved_bytes() == planned.measured_bytes(*plans)


def test_a_model_that_counts_its_calls_is_not_compiled_for_each_number() -> None:
    """Guards models with a step counter: Dynamo took it for a constant, and gave up on the model after eight steps."""
    with clean_torch():
        planned = Planned(Averaging, ODD_CASES["averages and counts"].inputs)
        before = planned.engine.frames_given_up()  # Dynamo counts for as long as the process lives
        for _ in range(12):
            planned.step()
        assert len(planned.engine.graphs) == 2
        assert planned.engine.frames_given_up() == before
        assert planned.step(*planned.plans()) == planned.plain()
        assert planned.refusal is None


# Training loops


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = F.gelu(torch.tanh(layer(x)))
        return self.dropout(x)


Loss = Callable[[nn.Module, int], torch.Tensor]
MEASURING = Measuring(max_warmup_steps=2, min_steps=12, max_steps=12, min_measure_s=0.0)


def losses_of(loss: Loss, into: list[float], steps: int = 40) -> Callable[[], None]:
    """A script that writes down the losses of a model."""

    def script() -> None:
        torch.manual_seed(0)
        model = Mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(steps):
            value = loss(model, number)
            into.append(float(value.detach()))
            optimizer.step()
            optimizer.zero_grad()

    return script


def trained(tmp_path: Path, loss: Loss, *plans: str) -> tuple[Outcome, list[float], list[float]]:
    """The outcome of a trial, its losses, and those of the script by itself."""
    plain: list[float] = []
    losses_of(loss, plain)()
    found: list[float] = []
    with clean_torch(), restored_torch():
        process = TrainingProcess(tmp_path, Configuration("aot", parse_plans(plans)), measuring=MEASURING)
        process.run(losses_of(loss, found))
        (outcome,) = process.outcomes()
    return outcome, found, plain


def lengths_that_vary(model: nn.Module, number: int) -> torch.Tensor:
    loss = model(torch.randn(4, 5 + number * 7 % 11, WIDTH)).pow(2).mean()
    loss.backward()
    return loss


def a_smaller_batch_now_and_then(model: nn.Module, number: int) -> torch.Tensor:
    loss = model(torch.randn(3 if number % 4 == 3 else 8, WIDTH)).pow(2).mean()
    loss.backward()
    return loss


def layers_that_are_frozen_and_thawed(model: nn.Module, number: int) -> torch.Tensor:
    model.layers[0].requires_grad_(number % 3 > 0)
    loss = model(torch.randn(8, WIDTH)).pow(2).mean()
    loss.backward()
    return loss


def two_backwards_through_one_forward(model: nn.Module, number: int) -> torch.Tensor:
    outputs = model(torch.randn(8, WIDTH))
    loss = outputs.pow(2).mean()
    loss.backward(retain_graph=True)
    outputs.mean().backward()
    return loss


def two_forwards_in_one_backward(model: nn.Module, number: int) -> torch.Tensor:
    loss = (model(torch.randn(8, WIDTH)) * model(torch.randn(8, WIDTH))).mean()
    loss.backward()
    return loss


def a_forward_without_a_backward(model: nn.Module, number: int) -> torch.Tensor:
    model(torch.randn(8, WIDTH))
    return two_forwards_in_one_backward(model, number)


def three_roots(model: nn.Module, number: int) -> torch.Tensor:
    first, second, third = model.layers
    hidden = model(torch.tanh(first(torch.randn(8, WIDTH))))
    loss = third(F.gelu(second(hidden))).pow(2).mean()
    loss.backward()
    return loss


def weights_changed_between(model: nn.Module, number: int) -> torch.Tensor:
    with torch.no_grad():
        model.layers[number % 3].weight.clamp_(-0.15, 0.15)
    return two_forwards_in_one_backward(model, number)


@pytest.mark.parametrize(
    "loss",
    [
        lengths_that_vary,
        a_smaller_batch_now_and_then,
        layers_that_are_frozen_and_thawed,
        two_backwards_through_one_forward,
        two_forwards_in_one_backward,
        a_forward_without_a_backward,
        three_roots,
        weights_changed_between,
    ],
)
def test_training_under_plans_is_training(tmp_path: Path, loss: Loss) -> None:
    outcome, found, plain = trained(tmp_path, loss, "gelu+:1:-1")
    assert isinstance(outcome, Measured), outcome
    assert outcome.measurement.saved_bytes
    assert len(found) >= 14
    assert found == plain[: len(found)]


def test_plans_for_a_part_that_no_longer_runs_are_not_measured_as_if_they_did_something(tmp_path: Path) -> None:
    """Guards scripts that train a part of the model at first only: the trial was the script without plans."""

    class Warmed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layers(x)

    def script() -> None:
        always, at_first = Mlp(), Warmed()
        optimizer = torch.optim.SGD([*always.parameters(), *at_first.parameters()], lr=0.1)
        for number in range(60):
            inputs = torch.randn(8, WIDTH)
            always(at_first(inputs) if number < 10 else inputs).pow(2).mean().backward()
            optimizer.step()

    configurations = [Configuration("aot", parse_plans(plans)) for plans in ([], ["gelu+:1:-1"], ["silu+:1:-1"])]
    with clean_torch(), restored_torch():
        process = TrainingProcess(tmp_path, *configurations, measuring=MEASURING)
        process.run(script)
    without, of_the_rest, of_what_is_over = process.outcomes()
    assert isinstance(without, Measured)
    assert isinstance(of_the_rest, Measured)
    assert isinstance(of_what_is_over, Fallback)
    assert "no step of the trial used" in of_what_is_over.cause


# What no graph can do


def a_gradient_of_a_gradient(model: nn.Module, number: int) -> torch.Tensor:
    inputs = torch.randn(8, WIDTH, requires_grad=True)
    (gradient,) = torch.autograd.grad(model(inputs).sum(), inputs, create_graph=True)
    loss = (gradient.norm(dim=1) - 1).pow(2).mean()
    loss.backward()
    return loss


def end_with(process: TrainingProcess, script: Callable[[], None]) -> None:
    """Run a script to its end as a run does, exceptions included."""
    try:
        process.run(script)
    except Exception as error:
        process.conductor.script_raised(error)


def test_a_script_that_differentiates_twice_is_refused_with_the_reason(tmp_path: Path) -> None:
    """Guards gradient penalties: the error was taken for the script's own."""
    with clean_torch(), restored_torch():
        process = TrainingProcess(tmp_path, Configuration("aot", parse_plans(["gelu+:1:-1"])))
        end_with(process, losses_of(a_gradient_of_a_gradient, []))
    (outcome,) = process.outcomes()
    assert isinstance(outcome, Fallback)
    assert "does not currently support double backward" in outcome.cause
    assert "eager" in outcome.advice


def test_a_script_that_cannot_run_under_the_engine_is_described_without_plans(tmp_path: Path) -> None:
    """Guards the search over batch sizes, which needs no engine: such a script could not be tuned at all."""
    with clean_torch(), restored_torch():
        process = TrainingProcess(tmp_path, mode="discover")
        end_with(process, losses_of(a_gradient_of_a_gradient, []))
    (outcome,), (described,) = process.outcomes(), process.described()
    assert isinstance(outcome, Measured)
    assert described.facts.clusters == ()
    assert isinstance(described.facts.undescribed, Fallback)
    assert "does not currently support double backward" in described.facts.undescribed.cause


def test_an_error_of_the_scripts_own_stays_its_own_under_the_engine(tmp_path: Path) -> None:
    def failing(model: nn.Module, number: int) -> torch.Tensor:
        if number == 4:
            model(torch.randn(8, WIDTH + 1))
        return two_forwards_in_one_backward(model, number)

    with clean_torch(), restored_torch():
        process = TrainingProcess(tmp_path, Configuration("aot", parse_plans(["gelu+:1:-1"])))
        end_with(process, losses_of(failing, []))
    (outcome,) = process.outcomes()
    assert isinstance(outcome, ScriptError)
    assert "shapes cannot be multiplied" in outcome.cause
