"""The plain code that is exported, applied in this process: same bits, less memory, and what it refuses."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from autotune.export.expressing import Blocks, Expressed
from autotune.export.heading import heading_of
from autotune.export.plain_code import render
from autotune.records.configuration import Configuration
from autotune.records.facts import Located
from tests.fakes.study_record import study_record

WIDTH = 16


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.batch_norm = nn.LayerNorm(WIDTH), nn.BatchNorm1d(WIDTH)
        self.instance_norm = nn.InstanceNorm1d(1, track_running_stats=True)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        y = F.gelu(self.up(self.norm(x)) * 2 + 1)
        y = self.instance_norm(self.down(y).unsqueeze(1)).squeeze(1)
        return x + self.batch_norm(F.dropout(y, 0.2, self.training))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return F.gelu(x)


def code(*blocks):
    said = Expressed(Configuration("aot"), blocks)
    names: dict = {}
    exec(render(said, heading_of(study_record(), said, None), Located((), (), 1)), names)
    return names


def step(model):
    """Result, gradients, buffers and the generator's state of a training step."""
    torch.manual_seed(1)
    x = torch.randn(7, WIDTH, requires_grad=True)
    model.zero_grad()
    result = model(x)
    result.square().sum().backward()
    gradients = [parameter.grad.clone() for parameter in (*model.parameters(), x)]
    buffers = [buffer.clone() for buffer in model.buffers()]
    return [result.detach(), *gradients, *buffers, torch.get_rng_state()]


def is_same(ours, theirs):
    return len(ours) == len(theirs) and all(map(torch.equal, ours, theirs))


FIRST_TWO = Blocks("Block", 3, (0, 1), has_statistics=True)


def test_a_step_has_the_same_bits_and_copies_call_their_own_modules():
    torch.manual_seed(0)
    plain = Model()
    model = copy.deepcopy(plain)
    code(FIRST_TWO)["apply"](model)
    copied = copy.deepcopy(model)
    for _ in range(2):
        expected = step(plain)
        assert is_same(step(model), expected)
        assert is_same(step(copied), expected)
    assert list(model.state_dict()) == list(plain.state_dict())
    model.eval(), plain.eval()
    x = torch.randn(4, WIDTH)
    assert torch.equal(model(x), plain(x))


def test_a_model_that_is_not_the_plans_raises():
    with pytest.raises(ValueError, match="3 Block, this one has 0"):
        code(FIRST_TWO)["apply"](nn.Linear(2, 2))


def test_a_model_that_is_refused_is_left_as_it_was():
    model = Model()
    refused = code(FIRST_TWO, Blocks("Linear", 7, (0,)))["apply"]
    with pytest.raises(ValueError, match="7 Linear, this one has 6"):
        refused(model)
    parallel = nn.DataParallel(model)
    parallel.device_ids = [0, 1]
    with pytest.raises(TypeError, match="DataParallel"):
        refused(parallel)
    assert not any("forward" in vars(one) for one in model.modules())


def test_a_second_apply_changes_nothing():
    torch.manual_seed(0)
    model = Model()
    plain = copy.deepcopy(model)
    apply = code(FIRST_TWO)["apply"]
    apply(model)
    before = {name: vars(one).get("forward") for name, one in model.named_modules()}
    apply(model)
    assert {name: vars(one).get("forward") for name, one in model.named_modules()} == before
    assert is_same(step(model), step(plain))


def test_a_second_backward_and_autocast_have_the_same_bits():
    torch.manual_seed(0)
    plain = Model()
    model = copy.deepcopy(plain)
    code(FIRST_TWO)["apply"](model)
    found = []
    for one in (plain, model):
        torch.manual_seed(1)
        x = torch.randn(8, WIDTH)
        with torch.autocast("cpu", torch.bfloat16):
            loss = one(x).square().sum()
            loss.backward(retain_graph=True)
        loss.backward()
        found.append([*(parameter.grad for parameter in one.parameters()), *one.buffers()])
    assert is_same(*found)
