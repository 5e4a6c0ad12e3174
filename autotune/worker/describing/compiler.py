"""Reasons why Inductor may not compile a script, as far as they show without compiling it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterable

import torch

from ...records.engines import ENGINES
from ...records.outcome import Fallback, Outcome
from ..hooks.roots import Root

# What Triton generates code for (torch.utils._triton.has_triton, which would import Triton into the script).
_LEAST_CAPABILITY = 7


def compile_refusal(roots: Iterable[Root], device: int | None, undescribed: Outcome | None) -> str:
    """Return why Inductor cannot compile a script, or changes nothing; empty where it may.

    ``undescribed`` is why it could not be described: what torch cannot trace it cannot compile either.
    """
    own = next((root.name for root in roots if root.applied_by and root.applied_by not in ENGINES), "")
    if own:
        return f"the script compiles {own} itself"
    if isinstance(undescribed, Fallback):
        return undescribed.cause
    return _without_compiler() if device is None else _without_triton(device)


def _without_triton(device: int) -> str:
    if "triton" not in sys.modules and importlib.util.find_spec("triton") is None:
        return "Inductor's code for GPUs needs the package triton, which is not installed"
    major, minor = torch.cuda.get_device_capability(device)
    if major < _LEAST_CAPABILITY:
        return (
            f"Inductor's code for GPUs needs compute capability {_LEAST_CAPABILITY}.0, and this one has {major}.{minor}"
        )
    return ""


def _without_compiler() -> str:
    # Of the compilers that autotune's own extension may take Inductor looks for these only.
    name = os.environ.get("CXX", "g++")
    return "" if shutil.which(name) else f"Inductor's code for CPUs needs a C++ compiler, and there is no {name!r}"
