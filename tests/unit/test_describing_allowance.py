"""How long a description may take."""

from __future__ import annotations

import pytest

from autotune.worker.describing.allowance import may_take_s


@pytest.mark.parametrize(
    ("searches", "share"),
    [
        ((), 0.95),
        (("plans",), 0.75),
        (("plans", "batch_sizes"), 0.5),
        (("batch_sizes",), 0.5),
        (("plans", "choices"), 0.5),
    ],
)
def test_of_the_time_that_is_left_it_may_take_more_where_less_can_be_searched(searches, share):
    allowed_s = may_take_s(num_modules=1000, step_s=10.0, trial_s=50.0, left_s=200.0, searches=searches)
    assert allowed_s == pytest.approx(share * 200)


@pytest.mark.parametrize(("searches", "trial_s"), [(("plans",), 50.1), (("plans", "batch_sizes"), 100.1)])
def test_it_may_take_the_time_that_would_be_too_short_for_a_trial(searches, trial_s):
    allowed_s = may_take_s(num_modules=1000, step_s=10.0, trial_s=trial_s, left_s=200.0, searches=searches)
    assert allowed_s == pytest.approx(0.95 * 200)


def test_without_a_budget_a_larger_model_and_slower_steps_may_take_longer():
    def allowed_s(num_modules: int = 10, step_s: float = 0.1) -> float:
        return may_take_s(num_modules=num_modules, step_s=step_s, trial_s=9.0, left_s=None, searches=())

    assert 600.0 < allowed_s() < allowed_s(num_modules=500)
    assert allowed_s() < allowed_s(step_s=5.0)
