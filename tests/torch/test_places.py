"""The modules and lines that storages on a card that is not there are allocated for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

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
            file, _, line = place.script_line.rpartition(":")
            told.append([place.module, place.operator, int(line or 0), place.is_backward])
    print(json.dumps(told))
"""
FIRST = START.count("\n") + 1


def told_of(lines: str, folder: Path) -> list[tuple[str, str, int, bool]]:
    """Run lines after those above; return module, operator, line of ``lines``, and if a backward made it."""
    script = folder / "script.py"
    script.write_text(START + lines)
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    return [(module, operator, line - FIRST + 1, is_backward) for module, operator, line, is_backward in told]


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
    assert {operator for _, operator, _, is_backward in told if is_backward} >= {"cos", "sigmoid_backward", "mm"}
    assert by_operator["addmm"] == ("layers.0", 7)
    assert by_operator["sigmoid"] == ("layers.1", 7)
    assert by_operator["exp"] == ("Model", 7)
    assert by_operator["sin"] == ("", 12)
    assert by_operator["cos"] == ("", 12), "the backward of sin"
    assert by_operator["sigmoid_backward"] == ("layers.1", 7)
    assert by_operator["mm"] == ("layers.0", 7)


def test_what_is_computed_again_is_at_its_own_module(tmp_path: Path) -> None:
    told = told_of(
        MODEL
        + """model = Model().cuda()
x = torch.ones(3, 4, device="cuda", requires_grad=True)
for reentrant in (False, True):
    checkpoint(model.layers, x, use_reentrant=reentrant).sum().backward()
tell()
""",
        tmp_path,
    )
    places = [
        (module, line) for module, operator, line, is_backward in told if operator == "sigmoid" and not is_backward
    ]
    assert places == [("layers.1", 12)] * 4, "twice in the forward, and twice again in the backward"
    assert [module for module, operator, *_ in told if operator == "sigmoid_backward"] == ["layers.1"] * 2


def test_modules_have_their_names_in_the_model_that_was_wrapped(tmp_path: Path) -> None:
    told = told_of(
        MODEL
        + """model = Model().cuda()
model.layers(torch.ones(3, 4, device="cuda"))
wrapped = nn.Module()
wrapped.module = model
wrapped.forward = lambda x: model(x)
wrapped(torch.ones(3, 4, device="cuda"))
tell()
""",
        tmp_path,
    )
    assert {module for module, operator, *_ in told if operator == "addmm"} == {"layers.0"}


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
