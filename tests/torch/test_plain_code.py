"""The plain code that is exported, applied in this process: same bits, less memory, and what it refuses."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from autotune.export.expressing import Blocks, Chain, Expressed
from autotune.export.heading import heading_of
from autotune.export.plain_code import render_plain_code
from autotune.records.configuration import Configuration
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


def code(blocks=(), chains=(), *, counts=False):
    said = Expressed(Configuration("aot"), blocks, chains)
    names: dict = {}
    exec(render_plain_code(said, heading_of(study_record(), said, None), counts=counts), names)
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


FIRST_TWO = (Blocks("Block", 3, (0, 1), has_statistics=True),)
# What the last one gives goes to the loss, and no part of the model keeps it.
GELUS = (Chain(("gelu",), 3, 3),)
CHAINS = (
    Chain(("gelu",), 3, 2),
    Chain(("native_layer_norm",), 3, 3),
    # The product is not kept by itself, so that the sum is made again from what the linear layer gave.
    Chain(("addmm", "mul", "add"), 3, 3),
)


@pytest.mark.parametrize(
    ("blocks", "chains"),
    [
        (FIRST_TWO, ()),
        ((), GELUS),
        ((), CHAINS),
        (FIRST_TWO, (Chain(("gelu",), 1, 1), Chain(("native_layer_norm",), 1, 1))),
    ],
    ids=["blocks", "gelus", "chains", "both"],
)
def test_a_step_has_the_same_bits_and_copies_call_their_own_modules(blocks, chains):
    torch.manual_seed(0)
    plain = Model()
    model = copy.deepcopy(plain)
    code(blocks, chains)["apply"](model)
    copied = copy.deepcopy(model)
    for _ in range(2):
        expected = step(plain)
        assert is_same(step(model), expected)
        assert is_same(step(copied), expected)
    assert list(model.state_dict()) == list(plain.state_dict())
    model.eval(), plain.eval()
    x = torch.randn(4, WIDTH)
    assert torch.equal(model(x), plain(x))


@pytest.mark.parametrize("count", [3, 1, 0])
def test_of_what_a_chain_gives_the_first_are_not_kept(count):
    names = code((), (Chain(("gelu",), 3, count),))
    model = Model()
    names["apply"](model)
    is_recipe = []
    inner = names["MakesAgain"].pack

    def pack(self, tensor):
        found = inner(self, tensor)
        is_recipe.append(found.func is not names["unchanged"])
        return found

    names["MakesAgain"].pack = pack
    model(torch.randn(8, WIDTH)).sum().backward()
    assert sum(is_recipe) == count


def test_counting_compares_nothing():
    names = code((), (Chain(("gelu",), 99, 0),), counts=True)
    model = Model()
    names["apply"](model)
    model(torch.randn(8, WIDTH)).square().sum().backward()
    assert names["SEEN"] == [{("gelu",): 3}]


def test_a_model_that_is_not_the_plans_raises():
    with pytest.raises(ValueError, match="3 Block, this one has 0"):
        code(FIRST_TWO)["apply"](nn.Linear(2, 2))
    model = Model()
    code((), (Chain(("gelu",), 5, 5),))["apply"](model)
    with pytest.raises(RuntimeError, match="the plan is for"):
        model(torch.randn(8, WIDTH)).square()


def test_a_model_that_is_refused_is_left_as_it_was():
    model = Model()
    refused = code((*FIRST_TWO, Blocks("Linear", 7, (0,))), GELUS)["apply"]
    with pytest.raises(ValueError, match="7 Linear, this one has 6"):
        refused(model)
    parallel = nn.DataParallel(model)
    parallel.device_ids = [0, 1]
    with pytest.raises(TypeError, match="DataParallel"):
        refused(parallel)
    assert not any("forward" in vars(one) for one in model.modules())


@pytest.mark.parametrize(("blocks", "chains"), [(FIRST_TWO, ()), ((), CHAINS)])
def test_a_second_apply_changes_nothing(blocks, chains):
    torch.manual_seed(0)
    model = Model()
    plain = copy.deepcopy(model)
    apply = code(blocks, chains)["apply"]
    apply(model)
    before = {name: vars(one).get("forward") for name, one in model.named_modules()}
    apply(model)
    assert {name: vars(one).get("forward") for name, one in model.named_modules()} == before
    assert is_same(step(model), step(plain))


class ChangesItsInput(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x):
        held = x * 1
        y = torch.tanh(held) * self.scale
        held.add_(1)
        return y


def test_what_was_changed_in_place_since_raises_and_is_never_made_again_of_it():
    model = ChangesItsInput()
    code((), (Chain(("mul", "tanh"), 1, 1),))["apply"](model)
    x = torch.randn(3, 4)
    model(x).sum().backward()  # from the start of the chain on nothing was changed

    class Held(ChangesItsInput):
        def forward(self, x):
            y = torch.tanh(x) * self.scale
            x.add_(1)
            return y

    model = Held()
    code((), (Chain(("tanh",), 1, 1),))["apply"](model)
    result = model(x)
    with pytest.raises(RuntimeError, match="changed in place"):
        result.sum().backward()


class SavesItsOutput(nn.Module):
    """Its second result is kept by the operator that made it; ``changes`` it after that."""

    def __init__(self, *, changes=False):
        super().__init__()
        self.up, self.aside, self.changes = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), changes

    def forward(self, x):
        kept = torch.sigmoid(self.aside(x))
        result = F.gelu(self.up(x)) * 2
        return result, kept.mul_(2) if self.changes else kept


@pytest.mark.parametrize("is_trained", [False, True])
def test_results_that_no_backward_comes_by_are_freed(is_trained):
    model = SavesItsOutput()
    code((), (Chain(("addmm",), 1, 1),))["apply"](model)
    result, aside = model(torch.randn(8, WIDTH))
    if is_trained:
        result.sum().backward()
    memory = StorageWeakRef(aside.untyped_storage())
    del result, aside
    assert memory.expired()


def test_what_is_kept_as_it_was_may_not_be_changed_in_place_either():
    model = SavesItsOutput(changes=True)
    code((), (Chain(("addmm",), 1, 1),))["apply"](model)
    result, aside = model(torch.randn(8, WIDTH))
    with pytest.raises(RuntimeError, match="changed in place"):
        (result.sum() + aside.sum()).backward()


class Rotates(nn.Module):
    """Multiplies complex views of what its layers give, as rotary embeddings do."""

    def __init__(self):
        super().__init__()
        self.up, self.angles = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        pairs = (one.view(-1, WIDTH // 2, 2) for one in (F.gelu(self.up(x)), self.angles(x)))
        up, angles = map(torch.view_as_complex, pairs)
        return torch.view_as_real(up * angles)


def test_a_view_of_another_type_has_the_same_bits():
    torch.manual_seed(0)
    plain = Rotates()
    model = copy.deepcopy(plain)
    code((), (Chain(("gelu",), 1, 1), Chain(("addmm",), 2, 2)))["apply"](model)
    assert is_same(step(model), step(plain))


class Conjugates(nn.Module):
    """Its layer's result is saved as a conjugate view."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, WIDTH, dtype=torch.cfloat)
        self.scale = nn.Parameter(torch.ones(WIDTH, dtype=torch.cfloat))

    def forward(self, x):
        return (self.up(x.to(torch.cfloat)).conj() * self.scale).real


def test_a_conjugate_view_has_the_same_bits():
    torch.manual_seed(0)
    plain = Conjugates()
    model = copy.deepcopy(plain)
    code((), (Chain(("addmm",), 1, 1),))["apply"](model)
    assert is_same(step(model), step(plain))


@pytest.mark.parametrize("is_applied", [False, True])
def test_a_parameter_whose_data_is_replaced_before_the_backward_is_used_as_it_is_then(is_applied):
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Unflatten(1, (WIDTH, 1)), nn.Conv1d(WIDTH, WIDTH, 1))
    weight = model[3].weight
    if is_applied:
        code((), (Chain(("gelu",), 1, 1),))["apply"](model)
    result = model(torch.ones(4, WIDTH))
    memory = StorageWeakRef(weight.untyped_storage())
    weight.data = torch.empty(0)
    assert memory.expired()
    weight.data = torch.zeros(WIDTH, WIDTH, 1)
    result.sum().backward()
    assert not model[0].weight.grad.any()


@pytest.mark.parametrize(("blocks", "chains"), [((), GELUS), (FIRST_TWO, ())], ids=["chains", "blocks"])
def test_a_second_backward_and_autocast_have_the_same_bits(blocks, chains):
    torch.manual_seed(0)
    plain = Model()
    model = copy.deepcopy(plain)
    code(blocks, chains)["apply"](model)
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


class InFullPrecision(nn.Module):
    """A part that a script keeps out of its autocast."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        with torch.autocast("cpu", enabled=False):
            return F.gelu(self.up(x))


def test_what_ran_without_autocast_is_made_again_without_it():
    torch.manual_seed(0)
    plain = InFullPrecision()
    model = copy.deepcopy(plain)
    code((), (Chain(("addmm",), 1, 1),))["apply"](model)
    for one in (plain, model):
        torch.manual_seed(1)
        with torch.autocast("cpu", torch.bfloat16):
            one(torch.randn(8, WIDTH)).square().sum().backward()
    assert is_same(*([parameter.grad for parameter in one.parameters()] for one in (plain, model)))
