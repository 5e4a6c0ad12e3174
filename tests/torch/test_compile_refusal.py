"""Why Inductor may not compile a script, as far as discovery sees that without compiling it."""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
import weakref
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._dynamo.device_interface import CudaInterface

from autotune.records.outcome import Fallback, OutOfMemory
from autotune.worker.describing.description import compile_refusal
from autotune.worker.hooks.roots import Root

NET = nn.Linear(1, 1)


def root(applied_by: str = "aot") -> Root:
    return Root(weakref.ref(NET), "Net", applied_by=applied_by)


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that is there."""
    path = tmp_path / "cxx"
    path.write_text("")
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))
    return path


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("applied_by", ["", "aot", "inductor"])
def test_on_a_cpu_with_a_compiler_nothing_is_refused(applied_by: str) -> None:
    assert compile_refusal([root(applied_by)], None, None) == ""
    assert compile_refusal([], None, OutOfMemory("out of memory")) == "", "what was too large to describe may compile"


def test_on_a_cpu_without_a_compiler_it_is_named_that_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", "clang++-99")
    assert compile_refusal([root()], None, None).endswith("there is no 'clang++-99'")
    monkeypatch.delenv("CXX")
    assert compile_refusal([root()], None, None).endswith("there is no 'g++'")


def test_inductor_looks_for_the_compiler_that_is_asked_for_here() -> None:
    """Guards a refusal that torch would not have made, and none where it would."""
    from torch._inductor import config

    assert config.cpp.cxx == (None, os.environ.get("CXX", "g++"))


@pytest.mark.usefixtures("compiler")
def test_a_script_that_compiles_itself_is_left_to_it() -> None:
    own = root("the script's own compilation")
    assert compile_refusal([root(), own], None, None) == "the script compiles Net itself"


@pytest.mark.usefixtures("compiler")
def test_what_torch_cannot_trace_it_cannot_compile() -> None:
    failed = Fallback("torch traces no LSTM", advice="")
    assert compile_refusal([root()], None, failed) == "torch traces no LSTM"


@pytest.mark.parametrize(
    ("triton", "capability", "refusal"),
    [
        (True, (9, 0), ""),
        (True, (7, 0), ""),
        (True, (6, 1), "needs compute capability 7.0, and this one has 6.1"),
        (False, (9, 0), "needs the package triton, which is not installed"),
    ],
)
def test_on_a_gpu_triton_has_to_be_there_and_the_gpu_young_enough(
    monkeypatch: pytest.MonkeyPatch, triton: bool, capability: tuple[int, int], refusal: str
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: (triton or None) if name == "triton" else find_spec(name)
    )
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    found = compile_refusal([root()], 0, None)
    assert found.endswith(refusal)
    assert bool(found) == bool(refusal)


def test_torch_asks_the_same_of_a_gpu() -> None:
    """Guards the figure: it is that of torch itself."""
    assert "major >= 7" in inspect.getsource(CudaInterface.is_triton_capable)
