"""How long a description may take."""

from __future__ import annotations

import pytest

from autotune.records.run import DescriptionPace
from autotune.worker.describing.allowance import Allowance


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("autotune.worker.describing.allowance.time.monotonic", lambda: now[0])
    return now


def allowance(num_modules: int = 10, step_s: float = 0.1, left_s: float | None = None) -> Allowance:
    return Allowance(num_modules=num_modules, step_s=step_s, left_s=left_s, steps=6)


def test_a_larger_model_and_slower_steps_may_take_longer() -> None:
    small, large, slow = allowance(), allowance(num_modules=500), allowance(step_s=5.0)
    assert small.may_take_s < large.may_take_s
    assert small.may_take_s < slow.may_take_s


def test_what_all_of_it_may_take_follows_the_first_step(clock: list[float]) -> None:
    quick, usual, long = allowance(), allowance(), allowance()
    clock[0] += 1
    quick.step_done()
    clock[0] += 9
    usual.step_done()
    clock[0] += 20
    long.step_done()
    assert quick.may_take_s == 30.0, "one second tells little on a busy machine"
    assert usual.may_take_s == pytest.approx(10 + 4 * 10 + 40 * 0.1)
    assert long.may_take_s == pytest.approx(30 + 4 * 30 + 40 * 0.1)
    usual.step_done()
    assert usual.may_take_s == pytest.approx(10 + 4 * 10 + 40 * 0.1), "the others change nothing"


def test_the_budget_is_never_passed_and_all_of_its_share_is_named(clock: list[float]) -> None:
    given = allowance(num_modules=1000, step_s=10.0, left_s=120.0)
    assert given.may_take_s == 40.0
    clock[0] += 30
    given.step_done()
    assert given.may_take_s == 40.0, "10 of them are left"


def test_the_steps_after_the_first_tell_what_all_of_them_take(clock: list[float]) -> None:
    given = allowance()
    assert given.pace is None
    clock[0] += 7
    given.step_done()
    assert given.pace is None, "tracing tells nothing of them"
    for seconds, rest_s in ((1, 5.0), (3, 10.0)):
        clock[0] += seconds
        given.step_done()
        assert given.pace == DescriptionPace(7.0, rest_s)
