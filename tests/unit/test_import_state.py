"""What a script changes before it imports torch, and so keeps its trials from being forked."""

from __future__ import annotations

import builtins
import importlib.abc
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

import autotune
from autotune.worker import import_state
from autotune.worker.import_state import ImportState

_WORKER = Path(autotune.__file__).parent / "worker"


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path, target=None):
        return None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    (path / "model.py").touch()
    (path / "data").mkdir()
    return path


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Callable[[], ImportState]:
    """Remember the surroundings, and put the script's folder on the path as the worker does."""

    def begin() -> ImportState:
        before = ImportState()
        monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
        return before

    return begin


def test_a_script_with_modules_of_its_own_changes_nothing(begin: Callable[[], ImportState]) -> None:
    before = begin()
    sys.path.append("..")

    assert before.change() == ""


def test_a_folder_beside_the_script_that_nobody_may_look_into_is_passed_over(
    begin: Callable[[], ImportState], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at, look = [], os.stat

    def refuse(path: Path | str, **options: bool) -> os.stat_result:
        looked_at.append(str(path))
        if "lost+found" in str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return look(path, **options)

    (folder / "lost+found").mkdir()
    (folder / "secrets.py").touch()
    before = begin()
    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", refuse)
        assert before.change() == f"secrets in {folder} stands before an installed module"
    assert f"{folder}/lost+found/__init__.py" in looked_at


def test_files_beside_the_script_are_not_looked_at_one_by_one(
    begin: Callable[[], ImportState], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at, look = [], os.stat
    for number in range(50):
        (folder / f"{number}.txt").touch()
    before = begin()
    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", lambda path, **options: (looked_at.append(str(path)), look(path, **options))[1])
        before.change()

    assert [path for path in looked_at if path.endswith("__init__.py")] == [f"{folder}/data/__init__.py"]


def test_a_folder_that_is_on_the_path_already_comes_to_its_front_again(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    own = sys.path
    for path, is_same in (([str(folder), *own], True), ([*own, str(folder)], False)):
        monkeypatch.setattr(sys, "path", path)
        before = ImportState()
        monkeypatch.setattr(sys, "path", [str(folder), *path])
        assert (before.change() == "") is is_same


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "PYTORCH_ALLOC_CONF", "LD_LIBRARY_PATH"])
def test_variables_are_seen(begin: Callable[[], ImportState], monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "1")
    before = begin()
    monkeypatch.setenv(name, "2")
    assert name in before.change()
    monkeypatch.delenv(name)
    assert name in before.change()
    monkeypatch.setenv(name, "1")
    assert before.change() == ""


def test_variables_that_torch_does_not_read_are_left_alone(
    begin: Callable[[], ImportState], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = begin()
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")

    assert before.change() == ""


@pytest.mark.parametrize(
    ("name", "path"), [("torch", "torch/__init__.py"), ("numpy", "numpy.py"), ("queue", "queue.py")]
)
def test_a_module_that_stands_before_an_installed_one_is_seen(
    begin: Callable[[], ImportState], folder: Path, name: str, path: str
) -> None:
    (folder / path).parent.mkdir(exist_ok=True)
    (folder / path).touch()

    assert f"{name} in {folder}" in begin().change()


@pytest.mark.parametrize("change", ["finder", "import", "path"])
def test_another_way_to_find_modules_is_seen(
    begin: Callable[[], ImportState], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    before = begin()
    if change == "finder":
        monkeypatch.setattr(sys, "meta_path", [_Finder(), *sys.meta_path])
    elif change == "import":
        monkeypatch.setattr(builtins, "__import__", lambda *arguments, real=builtins.__import__: real(*arguments))
    else:
        monkeypatch.setattr(sys, "path", sys.path[::-1])

    assert "how modules are found" in before.change()


def test_a_finder_that_is_asked_last_changes_nothing(
    begin: Callable[[], ImportState], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = begin()
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, _Finder()])

    assert before.change() == ""


def test_other_processors_are_seen(begin: Callable[[], ImportState], monkeypatch: pytest.MonkeyPatch) -> None:
    before = begin()
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {97})

    assert "processors" in before.change()


def test_a_library_that_torch_shares_is_seen_and_numpys_own_is_not(
    begin: Callable[[], ImportState], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = begin()
    maps = """
        7f00-7f01 r-xp 00000000 08:01 17 /venv/lib/python3.11/site-packages/numpy.libs/libopenblas64_p-r0-1a2b.3.so
        7f02-7f03 r-xp 00000000 08:01 18 /usr/lib/x86_64-linux-gnu/libcurl.so.4
        7f04-7f05 rw-p 00000000 00:00 0
        7f06-7f07 r-xp 00000000 08:01 19 /venv/lib/python3.11/site-packages/scikit_learn.libs/libgomp-1a2b.so.1.0.0
    """
    monkeypatch.setattr(import_state.Path, "read_text", lambda path: textwrap.dedent(maps).strip())

    assert before.change() == (
        "the script loads /venv/lib/python3.11/site-packages/scikit_learn.libs/libgomp-1a2b.so.1.0.0 "
        "before it imports torch"
    )


_HOST = f"""
import importlib, importlib.util, sys
sys.path.insert(0, {str(_WORKER.parents[1])!r})
from autotune.worker.hidden_modules import Hidden
from autotune.worker.torch_import import when_imported
before = list(sys.meta_path)
import torch
known = sorted(name for name in sys.modules if name.startswith("torch"))
Hidden()
when_imported(lambda: print("torch is here:", "torch.nn" in sys.modules), before=lambda: print("before"))
"""


@pytest.mark.parametrize(
    "first", ["import torch", "from torch.nn import torch", "import torch.nn", "import torch.nn as nn"]
)
@pytest.mark.process
def test_hidden_torch_comes_back_as_if_it_was_imported(tmp_path: Path, first: str) -> None:
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("print('torch is run')\nfrom . import nn\n")
    (package / "nn.py").write_text("import torch\n")
    code = f"""{_HOST}
print([name for name in sys.modules if name.partition(".")[0] == "torch"])
print(importlib.util.find_spec("torch").name)
{first}
import torch, torch.nn
print(torch.nn.torch is torch, sys.meta_path == before, sorted(vars(torch.__loader__)) == ["name", "path"])
print(torch.__spec__.loader is torch.__loader__, sorted(n for n in sys.modules if n.startswith("torch")) == known)
"""
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
    )

    assert process.stdout.splitlines() == [
        "torch is run",
        "[]",
        "torch",
        "before",
        "torch is here: True",
        "True True True",
        "True True",
    ], process.stderr
