"""Random operators that a backward runs again: by calls to generators, and wrapped by torch where Inductor compiles."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

from autotune.records.configuration import Configuration
from autotune.records.plan import Quota, parse_plans
from autotune.worker.engines.plan_engine import AotEngine
from autotune.worker.plans import redrawing
from autotune.worker.plans.graph_pair import Pair
from autotune.worker.plans.joint import is_random
from autotune.worker.plans.partition import JointGraph
from autotune.worker.proving import deterministic
from tests.fakes.planned import Planned, clean_torch

pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning"),
]

aten = torch.ops.aten
WIDTH, LENGTH, BATCH = 32, 24, 8
# What torch's partitioner makes of random operators, in either half.
WRAPPERS = ("run_and_save_rng_state", "run_with_rng_state", "graphsafe_run_with_rng_state")


class Block(nn.Module):
    """Attention that drops nothing, two kinds of noise, and a dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.up, self.down = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).unsqueeze(1).chunk(3, dim=-1)
        x = x + F.scaled_dot_product_attention(q, k, v).squeeze(1)
        kept = torch.bernoulli(torch.rand(len(x), 1, 1))
        x = x + kept * F.gelu(self.up(x + 0.1 * torch.randn_like(x)))
        return x + F.dropout(self.down(F.gelu(x)), 0.2)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def rows() -> torch.Tensor:
    return torch.randn(BATCH, LENGTH, WIDTH)


@pytest.fixture(scope="module")
def planned() -> Iterator[Planned]:
    with clean_torch():
        yield Planned(Net, lambda: (rows(),))


def calls(pair: Pair, *names: str) -> list[str]:
    """The names of the functions that a pair calls, of these ones."""
    nodes = [node for half in (pair.forward, pair.backward) for node in half.graph.nodes if node.op == "call_function"]
    called = [getattr(node.target, "__name__", str(node.target)) for node in nodes]
    return [name for name in called if name in names]


def test_generators_are_called_themselves_however_the_graph_was_split(planned: Planned) -> None:
    expected = planned.plain()
    # The first set is split by torch's partitioner, the second one by our own.
    for plans in (["Block+:1:-1"], ["Block+:1:1"]):
        assert planned.step(*plans) == expected
        (graph,) = planned.engine.slots()
        assert any("attention" in name for name in graph.current.recomputed)
        # Four for each block: nothing is kept for its attention.
        draws_again = 4 if plans == ["Block+:1:1"] else 8
        assert calls(graph.current, *WRAPPERS) == []
        found = calls(graph.current, "rng_state", "run_from_rng_state")
        assert found == ["rng_state"] * draws_again + ["run_from_rng_state"] * draws_again
        assert planned.saved_bytes() == planned.measured_bytes(*plans)


def test_each_of_several_calls_in_a_step_draws_its_own_numbers_again() -> None:
    model, x = Net(), rows()

    def step(call: nn.Module) -> list[torch.Tensor]:
        torch.manual_seed(3)
        model.zero_grad()
        first, second = call(x), call(x + 1)
        # The script draws as well, between its forwards and their backwards.
        (first * torch.rand(()) + second * call(x + 2)).mean().backward()
        return [*(parameter.grad.clone() for parameter in model.parameters()), torch.get_rng_state()]

    with clean_torch():
        expected, engine = step(model), AotEngine()
        engine.use(Configuration("aot", parse_plans(["Block+:1:-1"])))
        assert all(map(torch.equal, step(engine.compile_root(model)), expected))
        assert engine.graphs[0].forward_calls == 3


def test_an_operator_that_fails_leaves_the_generator_as_it_was() -> None:
    save, draw_again = redrawing._calls(torch.device("cpu"))
    before = save()
    torch.rand(3)
    state = torch.get_rng_state()

    def draw_and_fail() -> None:
        torch.rand(3)
        raise torch.OutOfMemoryError("no memory")

    with pytest.raises(torch.OutOfMemoryError):
        draw_again(before, draw_and_fail)
    assert torch.equal(torch.get_rng_state(), state)


def test_of_several_devices_the_generator_of_the_nodes_own_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    generators = SimpleNamespace(default_generators=("first", "second"), current_device=lambda: 0)
    monkeypatch.setattr(torch, "get_device_module", lambda device: generators)
    assert redrawing._generator_of(torch.device("cuda", 1)) == "second"
    assert redrawing._generator_of(torch.device("cuda")) == "first"
    assert redrawing._generator_of(torch.device("cpu")) is torch.default_generator


# -- what draws nothing


def test_attention_is_random_only_where_it_drops_something() -> None:
    graph = fx.Graph()
    q, k, v = map(graph.placeholder, "qkv")
    flash, efficient = aten._scaled_dot_product_flash_attention, aten._scaled_dot_product_efficient_attention
    drawn = [
        graph.call_function(flash.default, (q, k, v, 0.1)),
        graph.call_function(efficient.default, (q, k, v, None, True), {"dropout_p": 0.1}),
        graph.call_function(flash.default, (q, k, v, q)),
        graph.call_function(aten.native_dropout.default, (q, 0.1, True)),
    ]
    quiet = [
        graph.call_function(flash.default, (q, k, v, 0.0, True)),
        graph.call_function(flash.default, (q, k, v)),
        graph.call_function(efficient.default, (q, k, v, None, True), {"dropout_p": 0.0}),
        graph.call_function(aten.mul.Tensor, (q, k)),
    ]
    assert [is_random(node) for node in (*drawn, *quiet)] == [True] * 4 + [False] * 4


# -- what Inductor compiles


def test_of_halves_that_are_compiled_torch_wraps_what_draws_and_nothing_else(planned: Planned) -> None:
    planned.step()
    of_engine = planned.engine.graphs[0].joint
    joint = JointGraph(of_engine._joint, of_engine.num_forward_outputs, None, is_compiled=True)
    pair = joint.partition(Quota(parse_plans(["Block+:1:-1"])))
    wrapped = [
        str(next(argument for argument in node.args if isinstance(argument, torch._ops.OpOverload)))
        for half in (pair.forward, pair.backward)
        for node in half.graph.nodes
        if getattr(node.target, "__name__", "") in WRAPPERS
    ]
    assert len(wrapped) == 16
    assert not any("attention" in name for name in wrapped)
    assert any("attention" in name for name in pair.recomputed)
    assert {"native_dropout", "bernoulli"} <= set(pair.recomputed)


@pytest.mark.parametrize(
    ("is_compiled", "in_cuda_graphs", "as_inputs"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_generators_are_inputs_only_of_what_cuda_graphs_run(
    *, is_compiled: bool, in_cuda_graphs: bool, as_inputs: bool
) -> None:
    """Guards `torch.compile(mode="reduce-overhead")`: what reads a state on the host cannot be captured."""
    functorch, inductor = torch._functorch.config, torch._inductor.config
    assert functorch.graphsafe_rng_functionalization
    with inductor.patch({"triton.cudagraphs": in_cuda_graphs}), redrawing.redrawing(is_compiled=is_compiled):
        assert functorch.graphsafe_rng_functionalization == as_inputs
    assert functorch.graphsafe_rng_functionalization


def test_runs_that_are_compared_draw_what_the_script_draws_in_cuda_graphs_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards proofs: as inputs generators have seeds of their own, with plans others than without."""
    monkeypatch.setattr(deterministic, "_libraries", [object()])
    with clean_torch(), torch._inductor.config.patch({"triton.cudagraphs": True}):
        try:
            deterministic.use_deterministic_algorithms()
            with redrawing.redrawing(is_compiled=True):
                assert not torch._functorch.config.graphsafe_rng_functionalization
        finally:
            torch.use_deterministic_algorithms(False)
