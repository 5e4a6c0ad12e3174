"""What a bundle remembers of a script's files and of a model."""

from __future__ import annotations

import sys
from collections import OrderedDict
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

from autotune.worker.describing.fingerprint import model_print, own_files


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that has imported all kinds of modules, each by the name that it has in ``sys.modules``."""
    for name, file in {
        "__main__": "train.py",
        "net": "net.py",
        "package": "package/__init__.py",
        "package.inner": "package/inner.py",
        "shared": "src/shared.py",
        "installed": "env/lib/site-packages/installed.py",
        "cached": ".cache/cached.py",
        "torch._inductor.cxy": "compiled/xy/cxy.py",
        "above": "../above.py",
        "gone": "gone.py",
        "built": "built.so",
    }.items():
        path = tmp_path / "script" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        if name != "gone":
            path.write_text(name)
        module = ModuleType(name)
        module.__file__ = str(path)
        monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.usefixtures("imported")
def test_the_scripts_own_files_are_those_that_it_imports_from_its_folder() -> None:
    assert [one.path for one in own_files()] == [
        *("train.py", "net.py", "package/__init__.py", "package/inner.py", "src/shared.py")
    ]


def test_without_a_file_there_is_no_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    assert own_files() == ()


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))


def test_a_model_is_what_its_modules_and_parameters_are_and_not_their_values() -> None:
    first = model_print(model())
    second = model()
    with torch.no_grad():
        for parameter in second.parameters():
            parameter.add_(1)
    assert model_print(second.eval()) == first
    assert (first.name, first.num_parameters, first.num_trainable) == ("Sequential", 58, 58)
    assert first.modules == {"Sequential": 1, "Linear": 2, "GELU": 1}


@pytest.mark.parametrize("what", ["class", "shape", "dtype", "frozen", "name"])
def test_another_part_makes_another_model(what: str) -> None:
    other = model()
    assert isinstance(other, nn.Sequential)
    if what == "class":
        other[1] = nn.ReLU()
    elif what == "shape":
        other[0] = nn.Linear(8, 4)
    elif what == "dtype":
        other.bfloat16()
    elif what == "frozen":
        other[0].requires_grad_(requires_grad=False)
    else:
        other = nn.Sequential(OrderedDict(zip("abc", other, strict=True)))
    assert model_print(other).structure != model_print(model()).structure
