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
    assert may_take_s(num_modules=1000, step_s=10.0, left_s=200.0, searches=searches) == pytest.approx(share * 200)


def test_without_a_budget_a_larger_model_and_slower_steps_may_take_longer():
    def allowed_s(num_modules: int = 10, step_s: float = 0.1) -> float:
        return may_take_s(num_modules=num_modules, step_s=step_s, left_s=None, searches=())

    assert 600.0 < allowed_s() < allowed_s(num_modules=500)
    assert allowed_s() < allowed_s(step_s=5.0)
