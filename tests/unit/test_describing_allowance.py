"""How long a description may take."""

from __future__ import annotations

import pytest

from autotune.worker.describing.allowance import Allowance


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("autotune.worker.describing.allowance.time.monotonic", lambda: now[0])
    return now


def test_a_larger_model_and_slower_steps_may_take_longer() -> None:
    small, large, slow = (
        Allowance(num_modules=modules, step_s=step_s, left_s=None).first_s
        for modules, step_s in ((10, 0.1), (500, 0.1), (10, 5.0))
    )
    assert small < large
    assert small < slow


def test_what_is_left_follows_the_first_step(clock: list[float]) -> None:
    quick, long = (Allowance(num_modules=10, step_s=0.1, left_s=None) for _ in range(2))
    clock[0] += 2
    after_short = quick.first_step_done()
    clock[0] += 30
    assert long.first_step_done() > after_short
    assert quick.rest_s == after_short


def test_the_budget_is_never_passed(clock: list[float]) -> None:
    allowance = Allowance(num_modules=1000, step_s=10.0, left_s=120.0)
    assert allowance.first_s == 40.0
    clock[0] += 30
    assert allowance.first_step_done() == 10.0
