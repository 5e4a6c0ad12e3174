"""Engine ``aot``: roots, recompiles, graph breaks, switching, and saying what could not be applied."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import nn

from autotune.records.configuration import Configuration, SizedPlans
from autotune.records.outcome import InvalidPlan
from autotune.records.plan import Quota, parse_plans
from autotune.worker.engines import plan_engine
from autotune.worker.engines.plan_engine import AotEngine
from autotune.worker.hooks.samples import shapes_of
from autotune.worker.plans.partition import JointGraph
from tests.fakes.models import CASES, Broken, Gpt
from tests.fakes.planned import Planned, clean_torch

# A warning made an error stops Dynamo's tracing.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")

ROWS = 64


@pytest.fixture(autouse=True)
def _clean_torch() -> Iterator[None]:
    with clean_torch():
        yield


def configuration(*plans: str, level: int = 0) -> Configuration:
    return Configuration("aot", parse_plans(plans), level)


def net() -> nn.Sequential:
    """Two gelus and a dropout; a torch.nn class as the root, which Dynamo would skip by itself."""
    widths = [nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64), nn.Dropout(0.3)]
    return nn.Sequential(*widths, nn.Linear(64, 32))


def gradients(loss: Callable[[], torch.Tensor], *modules: nn.Module) -> list[torch.Tensor]:
    for module in modules:
        module.zero_grad(set_to_none=True)
    torch.manual_seed(3)
    loss().backward()
    return [parameter.grad.clone() for module in modules for parameter in module.parameters()]


def equal(left: Sequence[torch.Tensor], right: Sequence[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def recomputed(engine: AotEngine, root_graph: int, label: str) -> int:
    """How many nodes of that name a graph's current backward runs again."""
    return sum(name.startswith(label) for name in engine.graphs[root_graph].current.recomputed)


# -- saying what could not be applied


def test_an_unknown_cluster_is_an_invalid_plan_that_names_the_known_ones() -> None:
    planned = Planned(net, lambda: (torch.randn(ROWS, 32),))
    expected = planned.plain()
    assert planned.step("relu+:1:-1", "gelu+:1:-1") == expected
    problem = planned.engine.problem()
    assert problem is not None
    assert problem.kind == "invalid_plan"
    assert "no cluster relu+:1" in problem.cause
    assert "gelu+:1" in problem.cause
    assert planned.step("gelu+:1:-1") == expected
    assert planned.engine.problem() is None


def test_a_strategy_that_does_not_apply_is_an_invalid_plan() -> None:
    planned = Planned(net, lambda: (torch.randn(ROWS, 32),))
    planned.step("gelu+:2:-1")
    problem = planned.engine.problem()
    assert problem is not None
    assert problem.kind == "invalid_plan"
    assert "no cluster gelu+:2; it has" in problem.cause


@pytest.mark.parametrize("plan", ["relu+:0:-1", "relu+:1:0"])
def test_a_plan_that_asks_for_nothing_is_never_invalid(plan: str) -> None:
    planned = Planned(net, lambda: (torch.randn(ROWS, 32),))
    planned.step(plan)
    assert planned.engine.problem() is None


def test_nothing_is_asked_of_the_engine_where_the_configuration_is_another() -> None:
    engine = AotEngine()
    engine.use(Configuration("eager"))
    assert not engine.active
    assert engine.problem() is None
    assert engine.saved_bytes() is None


def test_a_model_that_dynamo_leaves_alone_is_a_fallback() -> None:
    class Untraceable(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(32, 32)

        @torch._dynamo.disable
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)

    planned = Planned(Untraceable, lambda: (torch.randn(4, 32),))
    assert planned.step() == planned.plain()
    problem = planned.engine.problem()
    assert problem is not None
    assert problem.kind == "fallback"
    assert "no graph of the model was captured" in problem.cause


class Unrolled(nn.Module):
    """Loops over its rows in Python, so that torch traces their number as a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([torch.tanh(self.cell(row)) for row in x])


@pytest.mark.parametrize("model", [Unrolled, net])
def test_a_size_that_varies_must_not_be_a_constant(model: Callable[[], nn.Module]) -> None:
    planned = Planned(model, tuple)
    rows = iter(range(3, 8))
    planned._begin = lambda: [torch.randn(next(rows), 32)]  # type: ignore[method-assign]
    problems = []
    for _ in range(4):
        planned.step()
        problems.append(planned.engine.problem())
    assert problems[:3] == [None] * 3
    assert (problems[3] is None) == (model is net)
    if problems[3] is not None:
        assert "an input's size varies" in problems[3].cause


class Stages(nn.Module):
    """Runs one block a call, behind a break in its graph; each is of another width."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.GELU()) for width in (8, 16, 24, 40, 48))
        self.first = nn.Linear(8, 8)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        block = self.blocks[self.calls % len(self.blocks)]
        self.calls += 1
        torch._dynamo.graph_break()
        width = block[0].in_features
        return block(self.first(x).repeat(1, width // 8)).sum() + width


def test_blocks_of_several_widths_are_no_size_that_varies() -> None:
    """Guards models that leave layers out at random: each width is compiled in a call of its own."""
    planned = Planned(Stages, lambda: (torch.randn(ROWS, 8),))
    for _ in range(5):
        planned.step()
    assert len(planned.engine.graphs) >= 5
    assert planned.engine.problem() is None


def test_a_graph_that_cannot_be_partitioned_runs_without_plans_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("an operator nobody has seen")

    planned = Planned(net, lambda: (torch.randn(ROWS, 32),))
    monkeypatch.setattr(plan_engine, "JointGraph", fail)
    assert planned.step("gelu+:1:-1") == planned.plain()
    problem = planned.engine.problem()
    assert problem is not None
    assert problem.kind == "fallback"
    assert "an operator nobody has seen" in problem.cause


def test_a_switch_that_fails_is_refused_and_the_old_plans_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = Planned(net, lambda: (torch.randn(ROWS, 32),))
    expected = planned.step("gelu+:1:1")

    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("an operator nobody has seen")

    with monkeypatch.context() as patch:
        patch.setattr(JointGraph, "partition", fail)
        assert planned.step("gelu+:1:-1") == expected
        assert planned.refusal is not None
        assert "an operator nobody has seen" in planned.refusal
    assert recomputed(planned.engine, 0, "gelu") == 1


def test_graphs_that_inductor_compiled_are_not_switched() -> None:
    planned = Planned(net, lambda: (torch.randn(ROWS, 32),))
    planned.step()
    planned.engine.graphs[0].is_fixed = True
    refusal = planned.engine.use(configuration("gelu+:1:-1"))
    assert refusal is not None
    assert "Inductor" in refusal
    assert planned.engine.use(configuration()) is None


# -- what is a graph of the script


def test_evaluation_compiles_no_graph_that_plans_apply_to() -> None:
    model, engine, x = net(), AotEngine(), torch.randn(ROWS, 32)
    engine.use(configuration("gelu+:1:-1"))
    call = engine.compile_root(model)
    with torch.no_grad():
        assert torch.equal(call(x), call(x)) is False  # dropout is on
    assert engine.graphs == []


def test_counts_run_over_the_roots_in_the_order_of_their_first_calls() -> None:
    first, second, x, engine = net(), net(), torch.randn(ROWS, 32), AotEngine()
    expected = gradients(lambda: second(first(x)).mean(), first, second)
    calls = [engine.compile_root(first), engine.compile_root(second)]

    def step(*plans: str) -> list[int]:
        assert engine.use(configuration(*plans)) is None
        engine.begin_call()
        assert equal(gradients(lambda: calls[1](calls[0](x)).mean(), first, second), expected)
        assert engine.problem() is None
        return [recomputed(engine, index, "gelu") for index in range(2)]

    assert step("gelu+:1:3") == [2, 1]
    assert step("gelu+:1:1") == [1, 0]
    assert step("gelu+:1:-1") == [2, 2]
    assert step() == [0, 0]


def test_a_frozen_and_a_trained_root_share_no_graph() -> None:
    first, second, x, engine = net(), net(), torch.randn(ROWS, 32), AotEngine()
    engine.use(configuration())
    for root in (first, second):
        engine.begin_call()
        engine.compile_root(root)(x).mean().backward()
    assert len({graph.slot for graph in engine.graphs}) == 2


def test_a_smaller_last_batch_is_a_variant_of_the_same_graph() -> None:
    model, engine = net(), AotEngine()
    batches = [torch.randn(rows, 32) for rows in (ROWS, ROWS, 48, ROWS, 40)]
    engine.use(configuration("gelu+:1:1"))
    call = engine.compile_root(model)
    for batch in batches:
        engine.begin_call()
        expected = gradients(lambda batch=batch: model(batch).mean(), model)
        assert equal(gradients(lambda batch=batch: call(batch).mean(), model), expected)
        assert engine.problem() is None
    assert len(engine.graphs) == 2
    assert len(engine.slots()) == 1
    assert [recomputed(engine, index, "gelu") for index in range(2)] == [1, 1]
    assert engine.use(configuration("gelu+:1:-1")) is None
    assert equal(
        gradients(lambda: call(batches[-1]).mean(), model), gradients(lambda: model(batches[-1]).mean(), model)
    )
    assert [recomputed(engine, index, "gelu") for index in range(2)] == [2, 2]


def test_plans_are_not_switched_where_the_runtime_keeps_something_else_of_sizes() -> None:
    """Guards a torch to come: a place among the saved tensors that no longer fits would be an error in the script."""
    model, engine = net(), AotEngine()
    engine.use(configuration())
    call = engine.compile_root(model)
    for rows in (ROWS, 48):
        gradients(lambda rows=rows: call(torch.randn(rows, 32)).mean(), model)
    engine.graphs[1].is_understood = False
    refusal = engine.use(configuration("gelu+:1:-1"))
    assert refusal is not None
    assert "dynamic shapes" in refusal
    assert engine.use(configuration()) is None


def test_a_graph_break_in_a_block_gives_graphs_that_share_one_count() -> None:
    planned = Planned(CASES["graph break"].make, CASES["graph break"].inputs)
    expected = planned.plain()
    planned.step()
    assert len(planned.engine.slots()) > 2
    plans = [plan for plan in planned.plans() if plan.cluster_id.startswith("gelu")]
    assert plans
    assert planned.step(*plans) == expected
    total = sum(recomputed(planned.engine, index, "gelu") for index in range(len(planned.engine.graphs)))
    one = f"{plans[0].cluster_id}:{plans[0].strategy}:1"
    assert planned.step(one) == expected
    assert sum(recomputed(planned.engine, index, "gelu") for index in range(len(planned.engine.graphs))) == 1 < total


@pytest.mark.slow
def test_a_graph_that_runs_twice_in_a_training_call_saves_twice() -> None:
    def blocks(count: int) -> Planned:
        planned = Planned(lambda: Broken(count), CASES["graph break"].inputs)
        for _ in range(3):
            planned.step()
        return planned

    three = blocks(3)
    assert any(graph.slot.call for graph in three.engine.slots())
    assert three.saved_bytes() - blocks(2).saved_bytes() == blocks(2).saved_bytes() - blocks(1).saved_bytes() > 0


@pytest.mark.filterwarnings("ignore:invoke_subgraph traced multiple backward graphs:UserWarning")
def test_a_region_that_the_script_compiles_apart_takes_no_plans_and_keeps_its_gradients() -> None:
    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(32, 32), nn.Linear(32, 32)

        @torch.compiler.nested_compile_region
        def region(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sin(torch.cos(x)) * 2

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.region(self.region(self.first(x)))
            return torch.nn.functional.gelu(torch.tanh(self.second(x))) @ x.T

    planned = Planned(Nested, lambda: (torch.randn(ROWS, 32),))
    expected = planned.plain()
    assert planned.step() == expected
    assert len(planned.engine.graphs) == 1
    assert planned.plans()
    for plan in planned.plans():
        assert planned.step(plan) == expected
        assert planned.refusal is None


# -- switching


def test_a_switch_between_forward_and_backward_keeps_both_passes_of_one_kind() -> None:
    generator, critic, x, engine = net(), net(), torch.randn(ROWS, 32), AotEngine()

    def step(first: Callable[..., Any], second: Callable[..., Any], *plans: str) -> list[torch.Tensor]:
        """The critic's step comes after the generator's forward, and there a trial may end."""

        def losses() -> torch.Tensor:
            fake = first(x)
            second(fake.detach()).mean().backward()
            if engine.active:
                assert engine.use(configuration(*plans)) is None
            return second(fake).pow(2).mean()

        return gradients(losses, generator, critic)

    expected = step(generator, critic)
    engine.use(configuration())
    calls = engine.compile_root(generator), engine.compile_root(critic)
    for plans in ([], ["gelu+:1:-1"], ["native_dropout+:1:-1", "gelu+:1:3"], ["gelu+:1:1"], []):
        assert equal(step(*calls, *plans), expected), plans
        assert not any(graph.is_under_way for graph in engine.graphs)


def test_forwards_that_never_get_a_backward_are_not_remembered_for_ever() -> None:
    model, engine, x = net(), AotEngine(), torch.randn(2, 32)
    engine.use(configuration())
    call = engine.compile_root(model)
    kept = [call(x) for _ in range(300)]
    assert len(engine.graphs[0].forwards.under_way()) == 300
    kept.clear()
    assert not engine.graphs[0].is_under_way
    kept.append(call(x))
    assert len(engine.graphs[0].forwards.under_way()) == 1


def test_the_runtime_is_told_which_saved_tensors_are_inputs() -> None:
    """torch 2.15 keeps a flag for each saved tensor and reads it at each call; older versions have no such list."""
    planned = Planned(Gpt, CASES["gpt"].inputs)
    planned.step()
    (graph,) = planned.engine.graphs
    flags = graph.runtime_saved_inputs
    if flags is None:
        flags = graph.runtime_saved_inputs = []
        graph.forwards.told = None
    lengths = set()
    for plans in ([], ["gelu+:1:-1"], ["native_dropout+:1:-1"], ["GptBlock+:1:-1"]):
        planned.step(*plans)
        outputs = graph.current.forward.graph.find_nodes(op="output")[0].args[0][graph.current.num_forward_outputs :]
        assert flags == [False, *(node.op == "placeholder" for node in outputs)], "the mark comes first"
        lengths.add(len(flags))
    assert len(lengths) > 1


def test_every_node_is_timed_while_profiling_and_none_after() -> None:
    planned = Planned(net, lambda: (torch.randn(ROWS, 32),))
    expected = planned.step("gelu+:1:-1")
    planned.engine.profile(on=True)
    assert planned.step("gelu+:1:-1") == expected
    (graph,) = planned.engine.graphs
    operators = {
        node.name
        for node in graph.current.forward.graph.find_nodes(op="call_function", target=torch.ops.aten.gelu.default)
    }
    assert operators <= set(graph.node_times_s)
    assert all(seconds >= 0 for seconds in graph.node_times_s.values())
    planned.engine.profile(on=False)
    graph.node_times_s.clear()
    assert planned.step("gelu+:1:-1") == expected
    assert graph.node_times_s == {}


@pytest.mark.parametrize("case", CASES)
def test_plans_are_switched_where_sizes_are_symbols(case: str) -> None:
    """Guards batches of many sizes: the runtime marks sizes of saved tensors by their place among them."""
    model = Planned(CASES[case].make, CASES[case].inputs)
    whole = model.inputs
    model.mark_dynamic(0)
    model.step()
    for plans in ((), *((plan,) for plan in model.plans()), ()):
        for rows in (len(whole[0]), len(whole[0]) // 2):
            model.inputs = tuple(tensor[:rows] for tensor in whole)
            traced = model.step(*plans)
            assert (plans, model.refusal) == (plans, None)
            assert traced == model.plain(), plans


@pytest.mark.parametrize("case", CASES)
def test_each_call_has_the_plans_of_its_size(case: str) -> None:
    model = Planned(CASES[case].make, CASES[case].inputs)
    whole = model.inputs
    half = tuple(tensor[: len(tensor) // 2] for tensor in whole)
    model.mark_dynamic(0)
    model.step()
    everything = model.plans()
    sized = [SizedPlans(shapes_of(half))]
    for inputs in (half, whole, half, whole):
        model.inputs = inputs
        assert model.step(*everything, sized=sized) == model.plain()
        assert model.refusal is None
    for inputs, plans in ((half, ()), (whole, everything)):
        model.engine.begin_call(shapes_of(inputs))
        quota = Quota(plans)
        for graph in model.engine.slots():
            assert graph.current is graph.joint.partition(quota)


def sized_net() -> tuple[nn.Sequential, AotEngine, Callable[[torch.Tensor], torch.Tensor]]:
    """A model that recomputes each gelu in large batches, one in those of 48 rows, and none in those of 40."""
    model, engine = net(), AotEngine()
    sized = (SizedPlans(((40, 32),)), SizedPlans(((48, 32),), parse_plans(["gelu+:1:1"])))
    engine.use(Configuration("aot", parse_plans(["gelu+:1:-1"]), sized=sized))
    compiled = engine.compile_root(model)

    def call(batch: torch.Tensor) -> torch.Tensor:
        engine.begin_call(shapes_of(batch))
        return compiled(batch)

    return model, engine, call


def gradients_in_order(
    run: Callable[[torch.Tensor], torch.Tensor], model: nn.Module, batches: Sequence[torch.Tensor], order: Sequence[int]
) -> list[torch.Tensor]:
    """The gradients of a step with all forwards first, and then the backwards in this order."""
    model.zero_grad(set_to_none=True)
    torch.manual_seed(3)
    losses = [run(batch).mean() for batch in batches]
    for place in order:
        losses[place].backward(retain_graph=len({*order}) < len(order))
    return [parameter.grad.clone() for parameter in model.parameters()]


def test_backwards_are_those_of_their_forwards_in_any_order() -> None:
    """Guards accumulation of losses: a step holds forwards under several plans at once."""
    model, engine, call = sized_net()
    batches = [torch.randn(rows, 32) for rows in (ROWS, 40, 48, ROWS, 40)]
    for batch in batches:  # compiles
        call(batch).mean().backward()
    for order in ([0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 4, 0, 1, 3]):
        assert equal(*(gradients_in_order(run, model, batches, order) for run in (model, call)))
    assert engine.problem() is None
    assert not engine.ran_unchanged()


def test_the_plans_of_a_smaller_batch_hold_for_what_is_in_no_dimension_larger() -> None:
    _model, engine, call = sized_net()
    for batch, gelus in ((torch.randn(ROWS, 32), 2), (torch.randn(40, 32), 0), (torch.randn(48, 32), 1)):
        for _ in range(2):  # a graph's first call is under the plans of the largest
            call(batch).mean().backward()
        assert recomputed(engine, -1, "gelu") == gelus
    for shapes, gelus in {((40, 32),): 0, ((1, 1),): 0, ((2, 33),): 2, ((40,),): 2, ((40, 32), ()): 2, (): 2}.items():
        engine.begin_call(shapes)
        assert recomputed(engine, -1, "gelu") == gelus, shapes
    assert shapes_of([torch.randn(20, 32), {"x": torch.tensor(1.0)}, "text"]) == ((20, 32), ())


def test_a_backward_may_be_asked_for_again_when_other_plans_are_current() -> None:
    """Guards several losses of one call: their backwards are all of its forward's plans."""
    model, _, call = sized_net()
    batches = [torch.randn(rows, 32) for rows in (ROWS, 40)]
    for batch in batches * 2:
        call(batch).mean().backward()
    for order in ([0, 0, 1, 1], [1, 0, 1, 0], [0, 1, 0, 1]):
        assert equal(*(gradients_in_order(run, model, batches, order) for run in (model, call)))


def test_a_forward_that_gets_no_backward_misleads_no_other() -> None:
    """Guards addresses that are used again: a metric's forward is dropped, and others are under way."""
    model, engine, call = sized_net()
    sizes = (ROWS, 40, 48)
    for rows in sizes * 2:
        call(torch.randn(rows, 32)).mean().backward()
    draw = random.Random(0)
    for _ in range(60):
        dropped = [torch.randn(draw.choice(sizes), 32) for _ in range(draw.randrange(3))]
        batches = [torch.randn(draw.choice(sizes), 32) for _ in range(3)]
        found = []
        for run in (model, call):
            model.zero_grad(set_to_none=True)
            torch.manual_seed(3)
            for batch in dropped:
                run(batch)
            losses = [run(batch).mean() for batch in batches]
            sum(losses).backward()
            found.append([parameter.grad.clone() for parameter in model.parameters()])
        assert equal(*found)
    del losses
    assert not any(graph.is_under_way for graph in engine.graphs)


def test_plans_for_smaller_batches_are_shares_of_the_configuration_s() -> None:
    _model, engine, call = sized_net()
    call(torch.randn(ROWS, 32)).mean().backward()
    assert engine.plans_of_share(1.0) == parse_plans(["gelu+:1:2"])
    assert engine.plans_of_share(0.4) == parse_plans(["gelu+:1:1"])
    assert engine.plans_of_share(0.0) == ()


def test_a_cluster_of_the_smaller_batches_that_the_script_does_not_have_is_named() -> None:
    model, engine = net(), AotEngine()
    engine.use(Configuration("aot", sized=(SizedPlans(((40, 32),), parse_plans(["other+:1:1"])),)))
    engine.begin_call()
    engine.compile_root(model)(torch.randn(ROWS, 32)).mean().backward()
    problem = engine.problem()
    assert isinstance(problem, InvalidPlan)
    assert "no cluster other+:1" in problem.cause
