"""Plans for smaller batches: which batches are tried, what their calls need, and where all have the same plans."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from autotune.records.configuration import Configuration
from autotune.records.look_ahead import SeenBatch
from autotune.worker.engines.plan_engine import AotEngine
from autotune.worker.hooks.samples import shapes_of
from autotune.worker.measuring.sized_plans import Call, SimulatedCalls, SmallerBatches, _highest
from autotune.worker.plans.joint import sizes_of
from tests.fakes.planned import clean_torch

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")


@pytest.fixture(autouse=True)
def _clean_torch() -> Iterator[None]:
    with clean_torch():
        yield


@pytest.mark.parametrize(
    ("points", "most", "elements"),
    [
        ([(10, 5.0), (20, 9.0), (40, 29.0)], 19.0, 30.0),
        ([(10, 5.0), (20, 9.0), (40, 29.0)], 9.0, 20.0),
        ([(10, 5.0), (20, 9.0)], 4.0, 0.0),
        ([(10, 5.0), (20, 9.0)], 99.0, 20.0),
        ([(10, 5.0), (20, 9.0), (30, 7.0), (40, 11.0)], 8.0, 17.5),
        ([(10, math.nan), (20, 9.0)], 99.0, 0.0),
        ([(10, 5.0), (20, math.nan)], 99.0, 10.0),
        ([(10, 5.0)], math.nan, 0.0),
    ],
)
def test_lines_between_calls_tell_up_to_which_size_the_need_is_no_higher(
    points: list[tuple[int, float]], most: float, elements: float
) -> None:
    assert _highest(points, most) == pytest.approx(elements, nan_ok=False)


class Blocks(nn.Module):
    """Blocks, and a head that makes a result of so many columns."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16), nn.GELU()) for _ in range(4)
        )
        self.head = nn.Linear(16, columns)

    def forward(self, x: torch.Tensor, hidden: Any = None) -> torch.Tensor:
        x = x if hidden is None else hidden.value
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


ROWS = (8, 16, 24, 40, 64, 120)


def found_with(
    call: Callable[[Callable[..., Any], torch.Tensor], Any],
) -> tuple[AotEngine, list[int], list[list[int]]]:
    """Train with batches of ``ROWS``; return the engine, those tried with plans of their own, and those before."""
    torch.manual_seed(0)
    model, engine, handed = Blocks(16), AotEngine(), []
    assert engine.use(Configuration("aot", level=1)) is None
    compiled = engine.compile_root(model)
    batches = {number: torch.randn(rows, 16) for number, rows in enumerate(ROWS, 1)}
    seen = {number: SeenBatch(number, one.numel(), {"x": tuple(one.shape)}) for number, one in batches.items()}
    tried: list[int] = []
    loaders = SimpleNamespace(
        sample=SimpleNamespace(
            largest=seen[6],
            weights={1: 1.0, 5: 1.0},
            largest_up_to=lambda most: max(
                (one for one in seen.values() if one.elements <= most), key=lambda one: one.elements, default=None
            ),
        ),
        hand_next=handed.append,
        begin_sample=lambda *, then: tried.extend(then),
    )
    smaller = SmallerBatches(engine, loaders)

    def begins(*inputs: Any) -> Any:
        engine.begin_call(shapes_of(inputs))
        smaller.call_begins(inputs)
        return compiled(*inputs)

    smaller.begin_trial()
    for number in (6, 1, 5):
        call(begins, batches[number])
        assert smaller.step_done([seen[number]]) is (number == 5 and bool(tried))
    for number in handed[0] if handed else ():
        call(begins, batches[number])
        smaller.step_done([seen[number]])
    assert engine.observer is None
    return engine, tried, handed


def train(call: Callable[..., Any], batch: torch.Tensor) -> None:
    call(batch).square().mean().backward()


def test_the_batches_at_the_bounds_run_before_and_are_told() -> None:
    engine, tried, handed = found_with(train)
    assert len(handed) == 1
    assert handed[0]
    assert {*handed[0]} <= {2, 3, 4}
    assert tried
    bounds = [one.shapes for one in engine.configuration.sized]
    assert bounds == [((ROWS[number - 1], 16),) for number in tried]
    assert engine.configuration.sized[0].plans == ()
    assert bounds == sorted(bounds)


def test_the_loss_takes_memory_too() -> None:
    """Guards models with large results: a smaller batch has its loss on top of all activations."""
    columns = 4096
    model, engine, batch = Blocks(columns), AotEngine(), torch.randn(64, 16)
    assert engine.use(Configuration("aot", level=1)) is None
    call = Call(shapes_of(batch))
    engine.observer = SimpleNamespace(
        forward_begins=lambda graph, arguments: call.runs.append((graph, sizes_of(graph.current.forward, arguments))),
        **dict.fromkeys(("forward_ended", "backward_begins", "backward_ended"), lambda *_: None),
    )
    train(engine.compile_root(model), batch)
    ((graph, _),) = call.runs
    saved = graph.joint.unplanned.saved.value
    assert SimulatedCalls().need(call, ()) >= saved + 3 * 64 * columns * 4


def of_two(call: Callable[..., Any], batch: torch.Tensor) -> None:
    (call(batch).square().mean() + call(batch[: len(batch) // 2]).square().mean()).backward()


def hidden(call: Callable[..., Any], batch: torch.Tensor) -> None:
    call(batch[:1], SimpleNamespace(value=batch)).square().mean().backward()


@pytest.mark.parametrize("call", [of_two, hidden], ids=["two calls in a step", "inputs that are not seen"])
def test_where_calls_do_not_tell_what_a_step_needs_all_batches_have_the_same_plans(
    call: Callable[[Callable[..., Any], torch.Tensor], Any],
) -> None:
    engine, tried, _ = found_with(call)
    assert (tried, engine.configuration.sized) == ([], ())
