"""A step under plans computes what the step without them computes, bit by bit, dropout on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotune.records.plan import ALL, Plan
from tests.fakes.models import CASES, Gpt
from tests.fakes.planned import Planned, clean_torch

# Dynamo meets these where it looks at tensors and functions of a model; a warning made an error stops its tracing.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
]


@pytest.fixture(scope="module", params=sorted(CASES))
def case(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def planned(case: str) -> Iterator[Planned]:
    with clean_torch():
        yield Planned(CASES[case].make, CASES[case].inputs)


def test_the_engine_alone_computes_what_plain_torch_computes(planned: Planned) -> None:
    assert planned.step() == planned.plain()
    assert planned.engine.problem() is None


def test_no_plan_changes_gradients_buffers_inputs_or_random_state(planned: Planned) -> None:
    expected = planned.plain()
    planned.step()
    for plan in planned.plans():
        assert planned.step(plan) == expected, plan
        assert planned.refusal is None, planned.refusal
        assert planned.engine.problem() is None


def test_all_plans_together_change_nothing(planned: Planned) -> None:
    planned.step()
    assert planned.plans(), "a model without a single cluster shows nothing"
    assert planned.step(*planned.plans()) == planned.plain()


def test_switching_to_plans_and_back_changes_nothing(planned: Planned) -> None:
    expected = planned.step()
    saved = planned.saved_bytes()
    plans = planned.plans()
    assert planned.step(*plans) == expected
    assert planned.step(*plans[::2]) == expected
    assert planned.step() == expected
    assert planned.saved_bytes() == saved


def test_a_model_compiled_under_its_plans_computes_the_same_and_can_be_switched(case: str, planned: Planned) -> None:
    expected = planned.step()
    plans = planned.plans()
    planned.step(*plans)
    saved = planned.saved_bytes()
    with clean_torch():
        other = Planned(CASES[case].make, CASES[case].inputs)
        assert other.step(*plans) == expected
        assert other.saved_bytes() == saved
        assert other.step() == expected
        assert other.refusal is None
        assert other.step(*plans[:1]) == expected


@pytest.fixture(scope="module")
def gpt() -> Iterator[Planned]:
    with clean_torch():
        yield Planned(Gpt, CASES["gpt"].inputs)


_CLUSTERS = [
    ("GptBlock+", 1), ("embedding+embedding+add+native_dropout+", 1), ("gelu+", 1), ("native_dropout+", 1),
    ("native_dropout+[1]", 1), ("native_layer_norm+", 1), ("native_layer_norm+[1]", 1),
    ("div+masked_fill+_softmax+", 2),
]  # fmt: skip


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(st.sampled_from(_CLUSTERS), st.integers(ALL, 4)),
    st.integers(0, 1),
)
def test_no_set_of_plans_changes_anything(gpt: Planned, counts: dict[tuple[str, int], int], level: int) -> None:
    expected = gpt.plain()
    plans = [Plan(cluster_id, strategy, count) for (cluster_id, strategy), count in counts.items()]
    assert gpt.step(*plans, level=level) == expected
    assert gpt.saved_bytes() == gpt.measured_bytes(*plans, level=level)
