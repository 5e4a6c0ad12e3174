"""What the peers' driver does to a model, and when."""

from __future__ import annotations

import sys
import types

import pytest
import torch
import torch._functorch.config
import torch._inductor.config
from torch import nn

from tests.benchmarks.peers import drive

pytestmark = pytest.mark.slow  # guards benchmarks, and nothing that is shipped


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
        self.calls = 0

    def forward(self, x, *, scale=1.0):
        self.calls += 1
        return x + scale * self.mlp(x)


class Model(nn.Module):
    def __init__(self, blocks=5):
        super().__init__()
        self.stem = nn.Linear(4, 4)
        self.heads = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.stages = nn.ModuleList(nn.ModuleList(Block() for _ in range(2)) for _ in range(2))
        self.tail = nn.Sequential(*(Block() for _ in range(blocks - 4)))

    def forward(self, x):
        x = self.stem(x)
        for stage in self.stages:
            for block in stage:
                x = block(x, scale=0.5)
        return self.heads[0](self.tail(x))


@pytest.fixture
def plain_call():
    called = nn.Module.__call__
    yield called
    nn.Module.__call__ = called


def gradients(model, x):
    torch.manual_seed(0)
    model(x).sum().backward()
    return {name: one.grad for name, one in model.named_parameters() if one.grad is not None}


def test_blocks_are_what_a_model_repeats_and_neither_leaves_nor_what_is_inside_of_blocks():
    model = Model(6)
    assert list(drive.repeated_blocks(model)) == [*model.stages[0], *model.stages[1], *model.tail]
    alone = Model(5)
    assert alone.tail[0] not in list(drive.repeated_blocks(alone))


def test_blocks_that_are_sequences_of_operators_are_blocks_too():
    blocks = [nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(3)]
    assert list(drive.repeated_blocks(nn.Sequential(nn.Linear(4, 4), nn.Sequential(*blocks)))) == blocks


@pytest.mark.parametrize(("every", "again"), [(1, [2] * 6), (2, [2, 1] * 3), (3, [2, 1, 1] * 2)])
def test_every_nth_block_runs_again_in_backward_with_the_scripts_gradients(every, again):
    torch.manual_seed(1)
    model, x = Model(6), torch.rand(3, 4)
    expected = gradients(model, x)
    model.zero_grad(set_to_none=True)
    blocks = list(drive.repeated_blocks(model))
    drive.checkpoint_blocks(model, every)
    for block in blocks:
        block.calls = 0
    found = gradients(model, x)
    assert [block.calls for block in blocks] == again
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_a_model_without_repeated_blocks_is_not_checkpointed():
    with pytest.raises(drive.NotApplicableError, match="Linear repeats no block"):
        drive.checkpoint_blocks(nn.Linear(1, 1), 1)


def test_it_is_done_once_before_the_first_call_of_the_module_that_trains(plain_call):
    seen = []
    model = Model()
    drive.when_training_begins(lambda root: seen.append((root, nn.Module.__call__ is plain_call)))
    nn.CrossEntropyLoss()(torch.rand(2, 3), torch.tensor([0, 1]))  # has no parameters
    with torch.no_grad():
        model(torch.rand(1, 4))
    model.eval()
    model(torch.rand(1, 4))
    assert seen == []
    model.train()
    model(torch.rand(1, 4))
    model(torch.rand(1, 4))
    assert seen == [(model, True)]


def test_what_it_does_is_in_force_in_that_very_call(plain_call):
    model = Model()
    drive.when_training_begins(lambda root: drive.checkpoint_blocks(root, 1))
    gradients(model, torch.rand(1, 4))
    assert model.stages[0][0].calls == 2


def test_a_budget_and_equal_numerics_are_set_and_the_root_compiled(monkeypatch):
    functorch, inductor = torch._functorch.config, torch._inductor.config
    compiled = []
    monkeypatch.setattr(nn.Module, "compile", lambda self: compiled.append(self))  # noqa: PLW0108 - a method
    model = Model()
    # Not by monkeypatch: a setting that it has put back is one that "does not exist".
    with (
        functorch.patch(activation_memory_budget=1.0),
        inductor.patch(fallback_random=False, emulate_precision_casts=False),
    ):
        drive.action_of("compile", equal_numerics=False)(model)
        assert (functorch.activation_memory_budget, inductor.fallback_random) == (1.0, False)
        drive.action_of("compile:0.3", equal_numerics=True)(model)
        assert functorch.activation_memory_budget == 0.3
        assert inductor.fallback_random
        assert inductor.emulate_precision_casts
    assert compiled == [model, model]


class Library(types.ModuleType):
    """Transformers, as far as the driver knows it; older releases have no options."""

    __version__ = "5.0"

    def __init__(self, *, has_options):
        super().__init__("transformers")

        class PreTrainedModel(nn.Module):
            enabled = None

            def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs=None):
                self.enabled = gradient_checkpointing_kwargs

        if has_options:

            def enable(self, activation_checkpointing_kwargs=None, every_n_layers=1, offload=False):
                self.enabled = {"every_n_layers": every_n_layers, "offload": offload}

            PreTrainedModel.activation_checkpointing_enable = enable
        self.PreTrainedModel = PreTrainedModel


def test_checkpointing_of_transformers_is_the_librarys_own_with_its_options(monkeypatch):
    library = Library(has_options=True)
    monkeypatch.setitem(sys.modules, "transformers", library)
    for what, expected in (
        ("transformers", {"every_n_layers": 1, "offload": False}),
        ("transformers:every_n_layers=2", {"every_n_layers": 2, "offload": False}),
        ("transformers:offload=True", {"every_n_layers": 1, "offload": True}),
    ):
        model = library.PreTrainedModel()
        drive.action_of(what, equal_numerics=False)(nn.ModuleList([model]))
        assert model.enabled == expected


def test_what_a_release_or_a_model_does_not_have_is_said(monkeypatch):
    library = Library(has_options=False)
    monkeypatch.setitem(sys.modules, "transformers", library)
    model = library.PreTrainedModel()
    drive.action_of("transformers", equal_numerics=False)(model)
    assert model.enabled == {"use_reentrant": False}
    with pytest.raises(drive.NotApplicableError, match=r"transformers 5\.0 has no offload"):
        drive.action_of("transformers:offload=True", equal_numerics=False)(model)
    with pytest.raises(drive.NotApplicableError, match="Model is no model of transformers"):
        drive.action_of("transformers", equal_numerics=False)(Model())
    monkeypatch.delitem(sys.modules, "transformers")
    with pytest.raises(drive.NotApplicableError):
        drive.action_of("transformers", equal_numerics=False)(model)


def test_it_becomes_the_script(tmp_path, plain_call, monkeypatch, capsys):
    (tmp_path / "beside.py").write_text("VALUE = 7")
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, beside\nprint(__name__, sys.argv, __file__, sys.path[0], beside.VALUE)\nraise SystemExit(4)"
    )
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", ["the driver's folder", *sys.path])
    with pytest.raises(SystemExit) as ended:
        drive.main(["checkpoint:1", str(script), "--lr", "1"])
    assert ended.value.code == 4
    assert capsys.readouterr().out == f"__main__ {[str(script), '--lr', '1']} {script} {tmp_path} 7\n"
    sys.modules.pop("beside")


def test_an_unknown_thing_to_do_is_refused_before_the_script_begins(tmp_path):
    with pytest.raises(ValueError, match="'faster'"):
        drive.main(["faster", str(tmp_path / "train.py")])
