"""Graphs that serve several blocks: each call has its own plans, whatever the script does around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from autotune.records.configuration import Configuration
from autotune.records.outcome import Fallback
from autotune.records.plan import parse_plans
from autotune.worker.describing.dimensions import Dimensions
from autotune.worker.engines.plan_engine import AotEngine
from autotune.worker.plans.partition import JointGraph
from tests.fakes.broken_blocks import WIDTH, Block, Checkpointing, Mixed, Net, Pyramid
from tests.fakes.hooked import restored_torch
from tests.fakes.planned import clean_torch, kept_bytes
from tests.torch.test_hooks_roots import Watched

# Dynamo asks for it of what a graph hands on, and would give the rest up.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")


@pytest.fixture(autouse=True)
def _clean_torch() -> Iterator[None]:
    with clean_torch(), restored_torch():
        yield


def gradients(model: nn.Module, call: Callable[..., torch.Tensor], rows: int = 48) -> list[torch.Tensor]:
    model.zero_grad()
    torch.manual_seed(3)
    call(torch.randn(rows, WIDTH)).square().mean().backward()
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


def engine_of(watched: Watched) -> AotEngine:
    assert watched.engine is not None
    assert watched.notes == []
    return watched.engine


def use(engine: AotEngine, *plans: str) -> None:
    assert engine.use(Configuration("aot", parse_plans(plans))) is None


def kept(model: nn.Module, rows: int = 48) -> int:
    x = torch.randn(rows, WIDTH)
    return kept_bytes(lambda: model(x), [*model.parameters(), x])


@pytest.mark.parametrize("make", [Net, Pyramid])
def test_counts_hold_after_batches_of_other_sizes(make: type[Net]) -> None:
    model = make(*(Block() for _ in range(4)))
    expected = gradients(model, model)
    engine = engine_of(Watched())
    for rows in (48, 32, 48, 16, 48):
        gradients(model, model, rows)
    assert engine.occurrences()["Block+", 1] == 4
    found = []
    for count in (0, 1, 2, 3, 4, -1):
        use(engine, f"Block+:1:{count}")
        assert all(map(torch.equal, gradients(model, model), expected))
        found.append(kept(model))
    assert found[4] == found[5]
    assert found[:5] == sorted(set(found), reverse=True)


@pytest.mark.parametrize("make", [Net, Pyramid])
def test_each_call_saves_by_its_own_sizes(make: type[Net]) -> None:
    model = make(*(Block() for _ in range(4)))
    engine = engine_of(Watched())
    gradients(model, model)
    found = []
    for count in range(5):
        use(engine, f"Block+:1:{count}")
        gradients(model, model)
        told = engine.saved_bytes()
        assert told is not None
        found.append((kept(model), told))
    spared = [(found[0][0] - really, found[0][1] - told) for really, told in found]
    assert [really for really, _ in spared] == [told for _, told in spared]


def test_a_block_with_blocks_inside_is_one_occurrence() -> None:
    model = Net(Mixed(), Mixed(), Mixed())
    expected = gradients(model, model)
    engine = engine_of(Watched())
    gradients(model, model)
    assert (engine.occurrences()["Mixed+", 1], engine.occurrences()["Block+", 1]) == (3, 6)
    use(engine, "Mixed+:1:2", "Block+:1:3")
    assert all(map(torch.equal, gradients(model, model), expected))


def test_a_block_that_is_called_three_times_is_three_occurrences() -> None:
    block = Block()
    model = Net(block, block, block)
    engine = engine_of(Watched())
    gradients(model, model)
    assert engine.occurrences()["Block+", 1] == 3


@pytest.mark.parametrize("first", ["the block", "the model"])
def test_what_is_checkpointed_inside_may_be_called_by_itself_too(first: str) -> None:
    model = Checkpointing(Block(), Block(), Block(), Block())
    calls = [model.blocks[1], model] if first == "the block" else [model, model.blocks[1]]
    expected = [gradients(model, call) for call in calls]
    engine = engine_of(Watched("Block+:1:-1"))
    for call, wanted in zip(2 * calls, 2 * expected, strict=True):
        assert all(map(torch.equal, gradients(model, call), wanted))
    assert engine.failures == []


def test_checkpoints_inside_of_one_around_the_model_leave_nothing_to_plans() -> None:
    model = Checkpointing(Block(), Block(), Block(), Block())

    def call(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = checkpoint(model, x, use_reentrant=False)
        return result

    expected = gradients(model, call)
    engine = engine_of(Watched("Block+:1:-1"))
    for _ in range(2):
        assert all(map(torch.equal, gradients(model, call), expected))
    assert engine.occurrences()["Block+", 1] == 2


@pytest.mark.parametrize(
    ("pack", "unpack"),
    [
        (lambda tensor: (tensor, tensor.double().min()), lambda packed: packed[0]),
        (lambda tensor: tensor.numpy(force=True).tobytes() and tensor.clone(), lambda copy: copy),
    ],
    ids=["asks for the least", "copies"],
)
def test_hooks_of_the_script_on_saved_tensors_meet_nothing_odd(pack: Any, unpack: Any) -> None:
    model = Net(Block(), Block(), Block())

    def call(x: torch.Tensor) -> torch.Tensor:
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            result: torch.Tensor = model(x)
        return result

    expected = gradients(model, model)
    engine = engine_of(Watched("Block+:1:2"))
    for _ in range(2):
        assert all(map(torch.equal, gradients(model, call), expected))
    assert engine.problem() is None


def test_a_call_that_cannot_be_partitioned_is_told_and_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Net(Block(), Block(), Block())
    expected = gradients(model, model)
    engine = engine_of(Watched("Block+:1:1"))
    partition, asked = JointGraph.partition, []

    def fails(joint: JointGraph, *arguments: Any, **keywords: Any) -> Any:
        asked.append(joint)
        if len(asked) > 4:
            raise LookupError("no such node")
        return partition(joint, *arguments, **keywords)

    monkeypatch.setattr(JointGraph, "partition", fails)
    assert all(map(torch.equal, gradients(model, model), expected))
    problem = engine.problem()
    assert isinstance(problem, Fallback)
    assert "no such node" in problem.cause


def test_nothing_of_a_call_is_held_after_it() -> None:
    model = Net(Block(), Block())
    engine = engine_of(Watched())
    model(torch.randn(8, WIDTH))
    assert len(engine.graphs) == 4
    assert engine._block_calls == []


def test_sizes_of_each_call_are_dimensions() -> None:
    model = Pyramid(*(Block() for _ in range(4)))
    engine = engine_of(Watched())
    gradients(model, model)
    assert {24, 12, 6} <= set(Dimensions(engine.slots(), {}).values.values())
