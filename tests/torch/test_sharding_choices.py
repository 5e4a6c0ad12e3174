"""Choices of how ``fully_shard`` shards, in one process: what they change, and what they leave to the script."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.fsdp as fsdp
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.distributed.tensor import DTensor

from autotune.records.choices import choices_of
from autotune.records.configuration import Configuration
from autotune.records.facts import PrecisionFacts, ShardingFacts
from autotune.worker.choices.made import MadeChoices
from autotune.worker.sharded_modules import gathers_twice, sharding_facts
from tests.fakes.study_record import FACTS

pytestmark = pytest.mark.filterwarnings("ignore:FSDP2-wrapped module:UserWarning")
BF16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16)


@pytest.fixture(autouse=True)
def _one_process() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.up(x).relu())


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.head = nn.ModuleList(Block() for _ in range(2)), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def sharded(*, root: bool = True, blocks: bool = True, **keywords: Any) -> Net:
    torch.manual_seed(0)
    net = Net()
    for block in net.blocks if blocks else ():
        fsdp.fully_shard(block, **keywords)
    if root:
        fsdp.fully_shard(net, **keywords)
    return net


class Script:
    """A step of a net that ``make`` makes, once the choices are made."""

    def __init__(self, *choices: str, make: Callable[[], Net] = sharded) -> None:
        self.notes: list[str] = []
        self.choices = MadeChoices(Configuration("eager", choices=choices), self.notes.append)
        self.choices.install()
        self.net = make()

    def step(self) -> torch.Tensor:
        """Return the outputs of a training call, whose loss has gone backward."""
        torch.manual_seed(1)
        self.net.zero_grad()
        outputs: torch.Tensor = self.choices.around(self.net, self.net)(torch.randn(4, 8))
        self.gathered = self.now_gathered()
        self.types = {block.up.weight.dtype for block in self.net.blocks if not isinstance(block.up.weight, DTensor)}
        outputs.square().mean().backward()
        return outputs

    def now_gathered(self) -> list[bool]:
        return [not isinstance(block.up.weight, DTensor) for block in self.net.blocks]

    def evaluate(self) -> torch.Tensor:
        self.net.eval()
        with torch.no_grad():
            outputs: torch.Tensor = self.net(torch.ones(2, 8))
        self.net.train()
        return outputs

    def problem(self) -> str:
        """Return why choices changed nothing; empty where they did."""
        found = self.choices.problem()
        self.choices.undo()
        return "" if found is None else found.cause

    def gradients(self) -> list[torch.Tensor]:
        return [one.grad.to_local() for one in self.net.parameters() if isinstance(one.grad, DTensor)]


def test_parameters_that_stay_gathered_change_no_bit() -> None:
    plain, kept = Script(), Script("keep-gathered=1")

    assert torch.equal(plain.step(), kept.step())
    assert (plain.gathered, kept.gathered) == ([False, False], [True, True])
    assert all(map(torch.equal, plain.gradients(), kept.gradients()))
    assert len(kept.gradients()) == 10
    assert kept.problem() == ""
    kept.net(torch.randn(4, 8))
    assert kept.now_gathered() == [False, False], "undone"


def trained(script: Script, between: Callable[[Script], object]) -> list[float]:
    """Return the losses of steps with something between backward and step."""
    optimizer = torch.optim.SGD(script.net.parameters(), lr=0.1)
    losses = []
    for _ in range(4):
        losses.append(float(script.step().detach().square().mean()))
        between(script)
        script.choices.before_step(optimizer)
        optimizer.step()
        losses.append(float(script.evaluate().sum()))
    return losses


BETWEEN: dict[str, Callable[[Script], object]] = {
    "nothing": lambda script: None,
    "an evaluation": lambda script: script.evaluate(),
    "a training call without a backward": lambda script: script.choices.around(script.net, script.net)(
        torch.ones(2, 8)
    ),
    "torch's way to evaluate": lambda script: (
        script.net.set_reshard_after_forward(False),
        script.evaluate(),
        script.net.set_reshard_after_forward(True),
        script.net.reshard(),
        [block.reshard() for block in script.net.blocks],
    ),
}


@pytest.mark.parametrize("between", BETWEEN)
def test_no_step_is_missed_whatever_comes_between_backward_and_step(between: str) -> None:
    def make() -> Net:
        net = sharded()
        net.set_reshard_after_forward(True)  # what stays gathered at the root would miss a step in the script, too
        return net

    plain, kept = Script(make=make), Script("keep-gathered=1", make=make)
    assert trained(plain, BETWEEN[between]) == trained(kept, BETWEEN[between])
    assert kept.gathered == [True, True]
    assert kept.now_gathered() == [False, False]


def test_a_module_that_the_script_has_keep_a_part_is_left_alone() -> None:
    groups = [SimpleNamespace(_reshard_after_forward=True, _use_post_forward_mesh=part) for part in (False, True)]
    module = SimpleNamespace(_get_fsdp_state=lambda: SimpleNamespace(_fsdp_param_groups=groups[1:]))
    assert not gathers_twice(module)
    groups.reverse()
    module = SimpleNamespace(_get_fsdp_state=lambda: SimpleNamespace(_fsdp_param_groups=groups[1:]))
    assert gathers_twice(module)


@pytest.mark.parametrize(
    "make",
    [
        lambda: sharded(reshard_after_forward=False),
        lambda: sharded(blocks=False),
        lambda: sharded(root=False),
        lambda: sharded(root=False, blocks=False),
    ],
    ids=["kept by the script", "the root alone", "blocks alone", "nothing"],
)
def test_where_nothing_is_gathered_twice_nothing_can_be_kept(make: Callable[[], Net]) -> None:
    script = Script("keep-gathered=1", make=make)
    script.step()
    assert script.problem().startswith("keep-gathered=1 changed nothing: no module inside of another")


def test_shards_in_bfloat16_compute_so_and_outputs_are_as_wide_as_before() -> None:
    plain, narrow = Script(), Script("bf16-shards=1", "keep-gathered=1")

    exact, near = plain.step(), narrow.step()

    assert near.dtype == narrow.evaluate().dtype == torch.float32
    assert narrow.types == {torch.bfloat16}
    assert not torch.equal(near, exact)
    torch.testing.assert_close(near, exact, rtol=0.05, atol=0.05)
    assert {one.dtype for one in narrow.gradients()} == {torch.float32}
    assert narrow.problem() == ""
    assert torch.equal(Script().step(), exact), "undone"


def test_gradients_are_added_up_in_bfloat16_and_all_else_is_as_before() -> None:
    plain, narrow = Script(), Script("bf16-reduce=1")

    assert torch.equal(plain.step(), narrow.step())
    pairs = list(zip(plain.gradients(), narrow.gradients(), strict=True))
    assert not all(torch.equal(one, other) for one, other in pairs)
    assert all(torch.equal(one.bfloat16().float(), other) for one, other in pairs)
    assert narrow.problem() == ""


@pytest.mark.parametrize("choices", [("bf16-shards=1", "bf16-reduce=1"), ("bf16-reduce=1", "bf16-shards=1")])
def test_both_make_one_policy_in_either_order(choices: tuple[str, ...]) -> None:
    both = Script(*choices)
    try:
        both.step()
        assert both.types == set(), "gathered parameters are given back"
        assert both.net.blocks[0]._get_fsdp_state()._mp_policy.param_dtype == torch.bfloat16
        assert both.net.blocks[0]._get_fsdp_state()._mp_policy.reduce_dtype == torch.bfloat16
    finally:
        both.choices.undo()


@pytest.mark.parametrize("make", [lambda: sharded(blocks=False), lambda: sharded(root=False)])
def test_each_outermost_module_gives_back_float32(make: Callable[[], Net]) -> None:
    script = Script("bf16-shards=1", make=make)
    assert script.step().dtype == script.evaluate().dtype == torch.float32
    assert script.problem() == ""


def test_by_hand_the_same_is_computed() -> None:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    outermost = replace(policy, output_dtype=torch.float32)

    def make() -> Net:
        net = sharded(root=False, mp_policy=policy)
        fsdp.fully_shard(net, mp_policy=outermost)
        return net

    by_hand, chosen = Script(make=make), Script("bf16-shards=1")
    assert torch.equal(by_hand.step(), chosen.step())
    assert all(map(torch.equal, by_hand.gradients(), chosen.gradients()))
    chosen.choices.undo()
    said = choices_of("aot")["bf16-shards"].by_hand
    assert all(f"{name}=torch.{dtype}" in said for name, dtype in policy_fields(outermost))


def policy_fields(policy: MixedPrecisionPolicy) -> list[tuple[str, str]]:
    given = vars(policy).items()
    return [(name, str(value).removeprefix("torch.")) for name, value in given if isinstance(value, torch.dtype)]


def test_a_model_that_was_sharded_before_is_told_apart() -> None:
    choices = MadeChoices(Configuration("eager", choices=("bf16-shards=1",)), print)
    assert "the model was sharded before; only `autotune launch` gives" in str(choices.problem())


def test_a_policy_of_the_scripts_stays() -> None:
    script = Script("bf16-reduce=1", make=lambda: sharded(mp_policy=BF16))
    script.step()
    assert script.net.blocks[0]._get_fsdp_state()._mp_policy == BF16
    assert script.problem() == "bf16-reduce=1 changed nothing: the script itself gives fully_shard a policy"


def test_a_script_that_shards_nothing_has_no_policy() -> None:
    script = Script("bf16-shards=1", make=lambda: sharded(root=False, blocks=False))
    script.step()
    assert script.problem() == "bf16-shards=1 changed nothing: the script calls no fully_shard"


@pytest.mark.parametrize(
    ("make", "facts"),
    [
        (sharded, ShardingFacts(3, 2, has_policy=False)),
        (lambda: sharded(mp_policy=BF16), ShardingFacts(3, 2, has_policy=True)),
        (lambda: sharded(reshard_after_forward=False), ShardingFacts(3, 0, has_policy=False)),
        (lambda: sharded(root=False), ShardingFacts(2, 0, has_policy=False)),
        (lambda: sharded(root=False, blocks=False), None),
    ],
)
def test_discovery_tells_how_a_script_shards(make: Callable[[], Net], facts: ShardingFacts | None) -> None:
    script = Script(make=make)
    script.step()
    assert sharding_facts([script.net]) == facts


SHARDED = replace(FACTS, precision=PrecisionFacts("float32"), sharding=ShardingFacts(3, 2, has_policy=False))


@pytest.mark.parametrize(
    ("facts", "refused"),
    [
        (SHARDED, {}),
        (
            replace(SHARDED, sharding=None),
            dict.fromkeys(("keep-gathered", "bf16-shards", "bf16-reduce"), "shards no module"),
        ),
        (
            replace(SHARDED, sharding=ShardingFacts(3, 0, has_policy=True)),
            {"keep-gathered": "a second time", "bf16-shards": "itself gives", "bf16-reduce": "itself gives"},
        ),
        (
            replace(SHARDED, precision=PrecisionFacts("bfloat16")),
            dict.fromkeys(("bf16-shards", "bf16-reduce"), "parameters are bfloat16"),
        ),
    ],
)
def test_what_a_script_rules_out_is_refused_before_any_trial(facts: Any, refused: dict[str, str]) -> None:
    known = choices_of("aot")
    for name in ("keep-gathered", "bf16-shards", "bf16-reduce"):
        reason = known[name].refusal_for(facts)
        assert refused[name] in reason if name in refused else reason == ""
