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
import torch.nn.functional as F
from torch import nn
from torch._dynamo.utils import counters

from autotune.records.configuration import Configuration
from autotune.records.plan import NONE, Plan, parse_plans
from autotune.worker.engines.inductor import InductorEngine, make_partitioner
from autotune.worker.engines.plan_engine import AotEngine, PlanEngine
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
GELU = "gelu+native_dropout+:1"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared by the tests of this file, as compiling takes long."""
    return tmp_path_factory.mktemp("inductor")


@pytest.fixture
def _nothing_generated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Discovery compiles what it runs node by node only to calibrate memory, which is most of its time."""

    def refuse(*_: Any, **__: Any) -> None:
        raise NotImplementedError

    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx_inner", refuse)


@pytest.fixture(autouse=True)
def _clean_torch(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(cache))
    # Whether a loop is vectorized depends on what it is fused with, and decides how it rounds.
    with clean_torch(), torch._inductor.config.patch({"cpp.simdlen": 1, "compile_threads": 1}):
        yield


class Block(nn.Module):
    """A normalization, a gelu, and dropouts within and on a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(32), nn.Linear(32, 64), nn.Linear(64, 32)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.dropout(self.down(self.dropout(F.gelu(self.up(self.norm(x))))))


def net() -> nn.Sequential:
    return nn.Sequential(Block(), Block(), nn.Linear(32, 32))


def planned_net(rows: int = ROWS) -> Planned:
    return Planned(net, lambda: (torch.randn(rows, 32),), InductorEngine)


def configuration(*plans: str) -> Configuration:
    return Configuration("inductor", parse_plans(plans))


# -- exact


@pytest.mark.slow
def test_plans_leave_the_gradients_as_they_are_with_dropout_on_and_save_what_is_predicted() -> None:
    planned = planned_net()
    expected, unplanned = planned.step(), planned.saved_bytes()
    assert planned.measured_bytes() == unplanned
    plans = [plan for plan in planned.plans() if plan.cluster_id != "Block+"]
    assert any(plan.cluster_id.startswith("native_dropout+") for plan in plans)
    assert planned.step(*plans) == expected
    assert planned.engine.problem() is None
    assert planned.measured_bytes(*plans) == planned.saved_bytes() < unplanned


@pytest.mark.slow
def test_layers_are_recomputed_exactly() -> None:
    planned = planned_net()
    expected, unplanned = planned.step(), planned.saved_bytes()
    assert planned.step("Block+:1:-1") == expected
    assert planned.engine.problem() is None
    assert planned.measured_bytes("Block+:1:-1") == planned.saved_bytes() < unplanned / 2


@pytest.mark.slow
def test_operators_of_torch_draw_the_same_numbers_again_where_the_script_wants_those_of_eager() -> None:
    with torch._inductor.config.patch(fallback_random=True):
        planned = planned_net(rows=512)  # a mask is larger than the generator's state then
        expected = planned.step()
        plans = [plan for plan in planned.plans() if "native_dropout+" in plan.cluster_id]
        assert plans
        assert planned.step(*plans) == expected
        assert planned.measured_bytes(*plans) == planned.saved_bytes()


@pytest.mark.slow
def test_seeds_are_never_drawn_again() -> None:
    planned = planned_net()
    planned.step()
    planned.step(*planned.plans())
    (graph,) = planned.engine.graphs
    assert any("inductor_random" in name for name in graph.current.recomputed)
    assert not any("inductor_seeds" in name for name in graph.current.recomputed)


# -- Inductor's own decision


@pytest.mark.usefixtures("_nothing_generated")
@pytest.mark.parametrize(
    "case",
    [
        "shared blocks",
        *(pytest.param(case, marks=pytest.mark.slow) for case in ("bert", "conv net", "own checkpoints")),
    ],
)
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


class Described(InductorEngine):
    """Runs Inductor's graphs node by node, as discovery does."""

    def __init__(self) -> None:
        super().__init__()
        self.describe()


@pytest.mark.slow
@pytest.mark.usefixtures("_nothing_generated")
def test_what_inductor_replaces_shares_its_storage_with_what_is_made_of_it() -> None:
    """Guards the bytes of a constant range and a view of it: each pass of Inductor traces what it puts in anew."""
    planned = Planned(CASES["gpt"].make, CASES["gpt"].inputs, Described)
    assert planned.measured_bytes("GptBlock+:1:-1") == planned.saved_bytes()
    (graph,) = planned.engine.graphs
    kept = {node.name for node in graph.current.forward.graph.find_nodes(op="output")[0].args[0]}
    assert "iota" in kept, "nothing is guarded without it"


@pytest.mark.slow
def test_without_plans_it_is_what_torch_compile_does_by_itself() -> None:
    planned = planned_net()
    ours = planned.step()
    assert planned.engine.graphs[0].compiled is planned.engine.graphs[0].joint.unplanned
    torch._dynamo.reset()
    assert planned.traced(torch.compile(planned.model)) == ours


def test_kernels_are_searched_where_the_script_has_it_so_but_for_a_run_that_leaves_that_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched: list[bool] = []

    def compile_fx(module: Any, inputs: Any, *, config_patches: dict[str, Any], **_: Any) -> Any:
        with torch._inductor.config.patch(config_patches):
            searched.append(torch._inductor.config.max_autotune)
        return module.forward

    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", compile_fx)
    left_out: list[str] = []
    for leave_out, setting in ((None, True), (lambda: left_out.append("left out"), True), (left_out.clear, False)):
        planned = planned_net()
        planned.engine.leave_out_search = leave_out
        torch._dynamo.reset()
        with torch._inductor.config.patch(max_autotune=setting):
            planned.engine.use(configuration())
            planned.engine.compile_root(planned.model)(*planned.inputs)
    assert searched == [True, False, False]
    assert left_out == ["left out"], "nothing is said where nobody asked"


# -- the plans of this run, and no others


@pytest.mark.slow
def test_a_graph_of_other_plans_is_never_taken_from_a_cache_and_one_of_the_same_plans_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))

    def graphs_from_cache(*plans: str) -> int:
        counters.clear()
        planned = planned_net()
        planned.step(*plans)
        assert planned.engine.problem() is None
        assert planned.measured_bytes(*plans) == planned.saved_bytes()
        return counters["inductor"]["fxgraph_cache_hit"]

    with torch._inductor.config.patch(fx_graph_cache=True):
        assert graphs_from_cache() == 0
        assert graphs_from_cache(f"{GELU}:-1") == 0
        assert graphs_from_cache(f"{GELU}:-1") == 2


def test_inductors_copy_of_the_partitioner_is_the_partitioner_and_its_identity_the_plans() -> None:
    engine, other = InductorEngine(), InductorEngine()
    engine.use(configuration(f"{GELU}:-1"))
    other.use(configuration(f"{GELU}:1"))
    partitioner, second = make_partitioner(engine, "compiled"), make_partitioner(other, "compiled")
    assert copy.deepcopy(partitioner) is partitioner
    assert partitioner.uuid() == make_partitioner(engine, "compiled").uuid() != second.uuid()
    assert pickle.dumps(partitioner) != pickle.dumps(second)


@pytest.mark.slow
def test_other_plans_need_a_fresh_process() -> None:
    planned = planned_net()
    planned.step(f"{GELU}:1")
    refusal = planned.engine.use(configuration(f"{GELU}:-1"))
    assert refusal is not None
    assert "Inductor" in refusal
    assert planned.engine.use(configuration(f"{GELU}:1")) is None


# -- saying what could not be applied


def test_what_inductor_cannot_compile_is_a_fallback_with_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("no compiler on this machine")

    monkeypatch.setattr("torch._inductor.graph.GraphLowering.run", fail)
    planned = planned_net()
    with torch._inductor.config.patch(force_disable_caches=True):
        assert planned.step(f"{GELU}:-1") == planned.plain()
    problem = planned.engine.problem()
    assert problem is not None
    assert problem.kind == "fallback"
    assert "no compiler on this machine" in problem.cause


def test_an_unknown_cluster_is_an_invalid_plan_that_names_the_known_ones() -> None:
    planned = planned_net()
    planned.engine.describe()
    planned.step("relu+:1:-1")
    problem = planned.engine.problem()
    assert problem is not None
    assert problem.kind == "invalid_plan"
    assert "no cluster relu+:1; it has" in problem.cause


def test_a_graph_that_has_not_run_is_not_taken_to_have() -> None:
    planned = planned_net()
    planned.step()
    assert planned.engine.problem() is None
    assert planned.engine.use(configuration()) is None
    assert planned.engine.forward_calls() == {planned.engine.graphs[0].slot: 0}
    assert planned.engine.problem() is not None


# -- a script that compiles itself


@pytest.mark.slow
@pytest.mark.parametrize("engine", [AotEngine, InductorEngine])
def test_a_script_that_compiles_itself_keeps_its_options_and_gets_the_plans(
    engine: type[PlanEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    def compiled(model: nn.Module) -> Any:
        return torch.compile(model, fullgraph=True, dynamic=False, options={"epilogue_fusion": False})

    planned = Planned(net, lambda: (torch.randn(ROWS, 32),), engine)
    with torch._functorch.config.patch(enable_autograd_cache=False):
        expected = planned.traced(compiled(planned.model))
    torch._dynamo.reset()

    monkeypatch.setattr(torch, "compile", torch.compile)  # put back afterwards
    notes: list[str] = []
    options: list[bool] = []
    add_graph = planned.engine.add_graph

    def see(*arguments: Any, **keywords: Any) -> Any:
        options.append(torch._inductor.config.epilogue_fusion)
        return add_graph(*arguments, **keywords)

    monkeypatch.setattr(planned.engine, "add_graph", see)
    watch_compile(planned.engine, lambda: None, notes.append)
    planned.engine.use(Configuration(planned.engine.name, parse_plans([f"{GELU}:-1"])))
    call = compiled(planned.model)
    assert notes == []
    assert planned.traced(call) == expected
    assert options == [False]
    assert planned.engine.problem() is None
    assert planned.engine.graphs[0].current.recomputed
    assert planned.engine.forward_calls() is None
    (x,) = planned.inputs
    lasting = [*planned.model.parameters(), x]
    assert kept_bytes(lambda: call(x), lasting) == planned.saved_bytes()
    assert "Inductor" in str(planned.engine.use(Configuration(planned.engine.name)))
    assert notes == [
        "the script compiles with 'inductor': its graphs get the plans, each set of plans in a run of its own"
    ]
