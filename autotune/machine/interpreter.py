"""A Python interpreter, as it answers for itself: its version, whether it has torch, whether it can compile."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ..errors import FormatError, UsageError
from ..records.codec import loads
from ..records.engines import ENGINES, Engine

OLDEST_PYTHON = (3, 11)
_OLDEST_TORCH = (2, 11)

_PACKAGE = Path(__file__).resolve().parent.parent
WORKER = _PACKAGE / "worker" / "__main__.py"
"""The bootstrap of the training process, which an interpreter is given."""


def worker_of(engine: Engine) -> Path:
    """Return the bootstrap of what measures under an engine."""
    return _PACKAGE / ENGINES[engine].worker / "__main__.py"


# Any Python has to answer, however old. Torch's metadata takes a hundredth of the time that importing torch takes.
_ASK = """
import json, os, sys, sysconfig
torch = None
try:
    from importlib import metadata, util
    torch = "of unknown version" if util.find_spec("torch") else None
    torch = torch and metadata.version("torch")
except Exception:
    pass  # built in place, so without metadata; or a Python too old for it
print(json.dumps({
    "version": list(sys.version_info[:3]), "torch": torch,
    "has_headers": os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")),
}))
"""
_ASK_TORCH = """
import json
try:
    import torch
except Exception as error:
    print(json.dumps({"problem": type(error).__name__ + ": " + str(error)}))
else:
    print(json.dumps({
        "version": str(torch.__version__), "cuda": torch.version.cuda or "",
        "num_devices": torch.cuda.device_count(), "num_threads": torch.get_num_threads(),
    }))
"""
_ASK_PACKAGES = """
import sys
from importlib import util
print(" ".join(name for name in sys.argv[1:] if util.find_spec(name) is None) or "none")
"""
# Follows the finders as ``python -m`` does, but imports no package on the way: that may take as long as torch takes.
_ASK_MODULE = """
import json, os, sys

def find(name, path):
    for finder in sys.meta_path:
        spec = finder.find_spec(name, path)
        if spec is not None:
            return spec

name, path, spec = "", None, None
for part in sys.argv[1].split("."):
    is_inside, name = bool(name), name + "." + part if name else part
    spec = None if is_inside and path is None else find(name, path)
    path = getattr(spec, "submodule_search_locations", None)
    if spec is None:
        break
if spec is not None and path is not None:
    name += ".__main__"
    spec = find(name, path)
file = spec and spec.has_location and os.path.abspath(spec.origin)
print(json.dumps({"file": file or "", "missing": "" if file else name}))
"""
_ANSWER_S = 60.0
_IMPORT_S = 120.0
_VERSION = re.compile(r"(\d+)\.(\d+)")
_HINT = "--python takes the path of a Python 3.11 or newer that has torch; `autotune doctor --python PATH` looks closer"


@dataclass(frozen=True)
class Interpreter:
    """``torch`` is the version of its torch, None where it has none.

    ``has_headers``: extensions can be compiled for it.
    """

    version: tuple[int, int, int]
    torch: str | None
    has_headers: bool


@dataclass(frozen=True)
class Torch:
    """An interpreter's torch, once imported; ``problem`` says why it cannot be, and then nothing else is known.

    ``cuda`` is the version that it is built for, empty on builds for CPU; ``num_devices`` those that it sees.
    """

    version: str = ""
    cuda: str = ""
    num_devices: int = 0
    num_threads: int = 0
    problem: str = ""


@dataclass(frozen=True)
class Module:
    """The file that ``python -m`` runs for a module; ``missing`` is the name that was not found where there is none."""

    file: str
    missing: str


def find_interpreter(named: str | None) -> str:
    """Return the absolute path of an interpreter, this one by default; UsageError if it is not there."""
    chosen = named or sys.executable
    found = shutil.which(chosen)
    if found is None:
        raise UsageError(f"there is no interpreter {chosen!r}", hint="give --python the path of a Python with torch")
    # Not resolved: a virtual environment's python is a link, and its own path is what makes it that environment's.
    return os.path.abspath(found)  # noqa: PTH100


@functools.cache
def ask_interpreter(python: str) -> Interpreter:
    """Ask an interpreter once; UsageError if it does not start, or does not answer as Python does."""
    answer = _answer(python, _ASK, _ANSWER_S)
    try:
        return loads(Interpreter, answer)
    except FormatError:
        raise UsageError(f"{python!r} does not answer as Python does: {answer[-200:]}", hint=_HINT) from None


def check_worker_python(python: str) -> None:
    """Raise UsageError if the worker cannot run in this: no Python, or too old a Python, no torch, or too old one."""
    found = ask_interpreter(python)
    if found.version < OLDEST_PYTHON:
        major, minor, _ = found.version
        raise UsageError(f"{python!r} is Python {major}.{minor}, which is too old for the worker", hint=_HINT)
    if found.torch is None:
        raise UsageError(f"{python!r} has no torch", hint=_HINT)
    if is_too_old(found.torch):
        raise UsageError(
            f"{python!r} has torch {found.torch}, which is too old: autotune needs torch 2.11 or newer",
            hint="install a newer torch there, or give --python the path of a Python that has one",
        )


def is_too_old(torch: str) -> bool:
    """Tell whether a version of torch is older than the oldest that the worker runs on; False of an unknown one."""
    version = _VERSION.match(torch)
    return version is not None and (int(version[1]), int(version[2])) < _OLDEST_TORCH


def check_has(python: str, *packages: str, hint: str) -> None:
    """Raise UsageError if the interpreter lacks one of these packages."""
    missing = _answer(python, _ASK_PACKAGES, _ANSWER_S, *packages).split()
    if missing != ["none"]:
        raise UsageError(f"{python!r} has no {missing[0]}", hint=hint)


def find_module(name: str, python: str) -> Module:
    """Ask an interpreter which file ``python -m name`` would run from the folder that the user is in."""
    return loads(Module, _answer(python, _ASK_MODULE, _ANSWER_S, name))


def look_at_torch(python: str) -> Torch:
    """Have an interpreter import torch, which takes seconds, and say what it is like. Never raises."""
    try:
        return loads(Torch, _answer(python, _ASK_TORCH, _IMPORT_S))
    except UsageError as error:
        return Torch(problem=str(error))


def _answer(python: str, question: str, timeout_s: float, *arguments: str) -> str:
    """Return the last line that a program prints; UsageError where there is none."""
    try:
        done = subprocess.run(
            (python, "-c", question, *arguments),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise UsageError(f"the interpreter {python!r} did not answer within {timeout_s:g} s", hint=_HINT) from None
    except OSError as error:
        raise UsageError(f"cannot start the interpreter {python!r}: {error.strerror}", hint=_HINT) from None
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        said = (done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"])[-1]
        raise UsageError(f"{python!r} does not answer as Python does: {said}", hint=_HINT)
    return lines[-1]
