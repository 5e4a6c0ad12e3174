"""The modules and lines that storages on a card that is not there are allocated for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

START = """
import json, torch, torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from autotune.records.cards import CARDS
from autotune.worker.absent.places import Places
from autotune.worker.absent.pretence import pretend
from autotune.worker.absent.recorder import AllocationRecorder

places = Places()
recorder = AllocationRecorder(places)
pretend(CARDS["a100-40gb"], recorder, print)
places.install()


def tell():
    trace, place, told = recorder.trace(), None, []
    for kind, number in zip(trace.kinds, trace.numbers):
        if kind == "w":
            place = trace.places[number]
        elif kind == "a":
            file, _, line = place.line.rpartition(":")
            told.append([place.module, place.operator, int(line or 0), place.way])
    print(json.dumps(told))
"""
FIRST = START.count("\n") + 1


def told_of(lines: str, folder: Path) -> list[tuple[str, str, int, str]]:
    """Run lines after those above; return module, operator, line of ``lines``, and what made it."""
    script = folder / "script.py"
    script.write_text(START + lines)
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    return [(module, operator, line - FIRST + 1, way) for module, operator, line, way in told]


MODEL = """class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 5), nn.Sigmoid())

    def forward(self, x):
        return self.layers(x).exp()

"""


def test_a_backward_is_at_the_module_and_the_line_of_its_forward(tmp_path: Path) -> None:
    told = told_of(
        MODEL
        + """model = Model().cuda()
x = torch.ones(3, 4, device="cuda")
y = model(x)
loss = y.sin().sum()
loss.backward()
tell()
""",
        tmp_path,
    )
    by_operator = {operator: (module, line) for module, operator, line, _ in told}
    assert {operator for _, operator, _, way in told if way == "backward"} >= {"cos", "sigmoid_backward", "mm"}
    assert by_operator["addmm"] == ("layers.0", 7)
    assert by_operator["sigmoid"] == ("layers.1", 7)
    assert by_operator["exp"] == ("Model", 7)
    assert by_operator["sin"] == ("", 12)
    assert by_operator["cos"] == ("", 12), "the backward of sin"
    assert by_operator["sigmoid_backward"] == ("layers.1", 7)
    assert by_operator["mm"] == ("layers.0", 7)


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_is_computed_again_is_at_its_own_module_and_line(reentrant: bool, tmp_path: Path) -> None:
    """Also where a function is checkpointed, which runs in no module as it is computed again."""
    told = told_of(
        f"""class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def twice(self, x):
        return self.inner(x.exp().tanh())

    def forward(self, x):
        return checkpoint(self.twice, x, use_reentrant={reentrant}) + 1

model = nn.Sequential(Block(), Block()).cuda()
x = torch.ones(3, 4, device="cuda", requires_grad=True)
model(x).sum().backward()
tell()
""",
        tmp_path,
    )
    # Without reentering, torch stops as soon as it has what the backward needs.
    again = {"exp": ["0", "1"], "tanh": ["0", "1"], **({"addmm": ["0.inner", "1.inner"]} if reentrant else {})}
    for operator, modules in again.items():
        found = [(module, way, line) for module, each, line, way in told if each == operator]
        assert found[:2] == [(module, "forward", 7) for module in modules]
        assert found[2:] == [(module, "recompute", 7) for module in reversed(modules)]
    made = [(module, line) for module, operator, line, way in told if operator == "tanh_backward"]
    assert made == [("1", 7), ("0", 7)]
    (seed,) = [(operator, way) for _, operator, _, way in told if operator == "ones_like"]
    assert seed == ("ones_like", "forward"), "the backward begins with it"


def test_a_gradient_of_a_gradient_is_at_the_line_of_the_forward(tmp_path: Path) -> None:
    """Guards gradient penalties: autograd numbers the nodes of a backward, too."""
    told = told_of(
        """x = torch.ones(3, 4, device="cuda", requires_grad=True)
y = x.sigmoid().sum()
(gradient,) = torch.autograd.grad(y, x, create_graph=True)
gradient.pow(2).sum().backward()
tell()
""",
        tmp_path,
    )
    assert {line for _, operator, line, way in told if operator == "sigmoid_backward"} == {2}
    made = [(operator, line) for _, operator, line, way in told if way == "backward"]
    assert {line for _, line in made} <= {2, 4}
    assert not [operator for _, operator, _, way in told if way == "recompute"]


def test_modules_have_their_names_in_the_model_that_is_wrapped(tmp_path: Path) -> None:
    told = told_of(
        MODEL
        + """model = Model().cuda()
model.layers(torch.ones(3, 4, device="cuda"))
nn.DataParallel(model)(torch.ones(3, 4, device="cuda"))
tell()
""",
        tmp_path,
    )
    assert {module for module, operator, *_ in told if operator == "addmm"} == {"layers.0"}


def test_a_module_that_is_called_module_is_no_wrapped_model(tmp_path: Path) -> None:
    told = told_of(
        """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.module = nn.Linear(4, 4)

    def forward(self, x):
        return self.module(x)

Net().cuda()(torch.ones(3, 4, device="cuda"))
tell()
""",
        tmp_path,
    )
    assert {module for module, operator, *_ in told if operator == "addmm"} == {"module"}


def test_models_of_one_class_are_told_apart(tmp_path: Path) -> None:
    told = told_of(
        MODEL
        + """first, second = Model().cuda(), Model().cuda()
first(torch.ones(3, 4, device="cuda"))
second(torch.ones(3, 4, device="cuda"))
tell()
""",
        tmp_path,
    )
    assert [module for module, operator, *_ in told if operator == "exp"] == ["Model", "Model#2"]


def test_modules_of_several_models_are_named_with_their_model(tmp_path: Path) -> None:
    told = told_of(
        MODEL
        + """model, other = Model().cuda(), nn.Sequential(nn.Linear(5, 2)).cuda()
loss = nn.MSELoss()(other(model(torch.ones(3, 4, device="cuda"))), torch.ones(3, 2, device="cuda"))
tell()
""",
        tmp_path,
    )
    modules = [module for module, operator, *_ in told if operator in ("addmm", "mse_loss")]
    assert modules == ["Model.layers.0", "Sequential.0", "MSELoss"]


def test_a_part_of_a_model_that_is_called_alone_has_its_name_in_the_model(tmp_path: Path) -> None:
    told = told_of(
        MODEL
        + """model = Model().cuda()
model.layers(torch.ones(3, 4, device="cuda"))
tell()
""",
        tmp_path,
    )
    assert [module for module, operator, *_ in told if operator in ("addmm", "sigmoid")] == ["layers.0", "layers.1"]


def test_the_line_is_no_line_of_the_standard_library(tmp_path: Path) -> None:
    told = told_of(
        """import copy
linear = nn.Linear(4, 4).cuda()
other = copy.deepcopy(linear)
tell()
""",
        tmp_path,
    )
    assert [line for _, operator, line, _ in told if operator == "clone"] == [3, 3]


def test_modules_may_define_what_is_equal_to_them(tmp_path: Path) -> None:
    """Guards torchmetrics, where comparing two modules makes a third one."""
    told = told_of(
        """class Metric(nn.Linear):
    def __eq__(self, other):
        raise AssertionError("compared")

    __hash__ = object.__hash__

Metric(4, 5).cuda()(torch.ones(3, 4, device="cuda"))
nn.Sequential(Metric(4, 5), Metric(5, 6)).cuda()(torch.ones(3, 4, device="cuda"))
tell()
""",
        tmp_path,
    )
    assert [module for module, operator, *_ in told if operator == "addmm"] == ["Metric", "0", "1"]


def test_parameters_gradients_and_state_are_known_by_name(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        START
        + MODEL
        + """
model = Model().cuda()
model(torch.ones(3, 4, device="cuda")).sum().backward()
for role, name, tensor in places.tensors():
    recorder.note_role(role, name, tensor)
    recorder.note_role("gradient", name, tensor.grad)
print([(one.role, one.parameter, one.dtype) for one in recorder.trace().tensors if one.role])
"""
    )
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    found = [(role, f"layers.0.{name}", "float32") for role in ("parameter", "gradient") for name in ("weight", "bias")]
    assert sorted(eval(ended.stdout)) == sorted(found)
