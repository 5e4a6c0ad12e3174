"""Engine ``inductor``: its own decision as the baseline, plans on top of it, and never a graph of other plans."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config
from torch import nn
from torch._dynamo.utils import counters

from autotune.records import NONE, Configuration, Plan, parse_plans
from autotune.worker.engines.inductor import InductorEngine, make_partitioner
from autotune.worker.hooks.compilation import watch_compile
from autotune.worker.plans.partition import Quota
from tests.fakes.models import CASES
from tests.fakes.planned import Planned, clean_torch, kept_bytes

# Inductor's own imports warn; a warning made an error stops Dynamo's tracing.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
]

ROWS = 64


@pytest.fixture(autouse=True)
def _clean_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    # Whether a loop is vectorized depends on what it is fused with, and decides how it rounds.
    with clean_torch(), torch._inductor.config.patch({"cpp.simdlen": 1, "compile_threads": 1}):
        yield


def net() -> nn.Sequential:
    """Gelus, a normalization and dropouts."""
    return nn.Sequential(
        *(nn.Linear(32, 64), nn.GELU(), nn.Dropout(0.3)),
        *(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU(), nn.Dropout(0.3)),
        nn.Linear(64, 32),
    )


def planned_net() -> Planned:
    return Planned(net, lambda: (torch.randn(ROWS, 32),), InductorEngine)


def configuration(*plans: str) -> Configuration:
    return Configuration("inductor", parse_plans(plans))


# -- exact


def test_plans_leave_the_gradients_as_they_are_with_dropout_on_and_save_what_is_predicted() -> None:
    planned = planned_net()
    expected, unplanned = planned.step(), planned.saved_bytes()
    assert planned.measured_bytes() == unplanned
    plans = planned.plans()
    assert any(plan.cluster_id.startswith("native_dropout+") for plan in plans)
    assert planned.step(*plans) == expected
    assert planned.engine.problem() is None
    assert planned.measured_bytes(*plans) == planned.saved_bytes() < unplanned


def test_layers_with_attention_and_dropout_are_recomputed_exactly() -> None:
    planned = Planned(CASES["gpt"].make, CASES["gpt"].inputs, InductorEngine)
    expected, unplanned = planned.step(), planned.saved_bytes()
    assert planned.step("GptBlock+:1:-1") == expected
    assert planned.engine.problem() is None
    assert planned.measured_bytes("GptBlock+:1:-1") == planned.saved_bytes() < unplanned / 2


def test_operators_of_torch_draw_the_same_numbers_again_where_the_script_wants_those_of_eager() -> None:
    with torch._inductor.config.patch(fallback_random=True):
        planned = planned_net()
        expected = planned.step()
        plans = [plan for plan in planned.plans() if plan.cluster_id.startswith("native_dropout+")]
        assert plans
        assert planned.step(*plans) == expected
        assert planned.measured_bytes(*plans) == planned.saved_bytes()


def test_seeds_are_never_drawn_again() -> None:
    planned = planned_net()
    planned.step()
    planned.step(*planned.plans())
    (graph,) = planned.engine.graphs
    assert any("inductor_random" in name for name in graph.current.recomputed)
    assert not any("inductor_seeds" in name for name in graph.current.recomputed)


# -- Inductor's own decision


@pytest.mark.parametrize("case", [*CASES])
def test_a_plan_saves_what_its_row_says_on_top_of_what_inductor_decides_by_itself(case: str) -> None:
    planned = Planned(CASES[case].make, CASES[case].inputs, InductorEngine)
    planned.engine.describe()
    planned.step()
    checked = 0
    for graph in planned.engine.graphs:
        first = {occurrence.cluster_id: occurrence for occurrence in reversed(graph.joint.occurrences)}
        for cluster_id, occurrence in first.items():
            if occurrence.strategy != NONE:
                pair = graph.joint.partition(Quota([Plan(cluster_id, occurrence.strategy, 1)]))
                saved = graph.joint.unplanned.saved - pair.saved
                assert saved.value == occurrence.saving.value, cluster_id
                checked += 1
    assert checked
