"""Repairs that ONNX Runtime Training 1.19.2 needs to run on a torch that is newer than itself.

ORTModule was written against torch 2.3 and gets no more releases. Each repair says what it mends and since which torch
it is needed. All of them are seen to work together on the releases in ``_TORCH``, and others are refused. A repair
that no longer fits would show as wrong gradients at worst. Nothing of the script's own is changed: where a function of
torch has to behave differently, it does so during ORTModule's export only.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

_ONNXRUNTIME = "1.19.2"
_TORCH = ("2.13",)
_EXPORTER = "torch.onnx._internal.torchscript_exporter"


@dataclass(frozen=True)
class Repair:
    """``what`` is mended, needed since torch ``since``; ``apply`` does it, before or after ORTModule is imported."""

    what: str
    since: str
    when: str
    apply: Callable[[], None]


def refusal(torch_version: str, onnxruntime_version: str) -> str:
    """Return why ORTModule cannot be run on these versions; empty if it can."""
    release = ".".join(torch_version.split(".")[:2])
    if onnxruntime_version != _ONNXRUNTIME:
        return f"engine ortmodule is made for onnxruntime-training {_ONNXRUNTIME}, this is {onnxruntime_version}"
    if release not in _TORCH:
        return f"engine ortmodule was seen to work on torch {', '.join(_TORCH)}, this is {torch_version}"
    return ""


def import_ortmodule() -> ModuleType:
    """Give ``onnxruntime.training.ortmodule``, repaired.

    Raises:
        ImportError: it is not installed, is another release, or runs on a torch that it was not seen to work on.
    """
    loaded = sys.modules.get("onnxruntime.training.ortmodule")
    if loaded is not None:
        return loaded
    onnxruntime = importlib.import_module("onnxruntime")
    reason = refusal(str(torch.__version__), onnxruntime.__version__)
    if reason:
        raise ImportError(reason)
    for repair in REPAIRS:
        if repair.when == "before":
            repair.apply()
    ortmodule = importlib.import_module("onnxruntime.training.ortmodule")
    for repair in REPAIRS:
        if repair.when == "after":
            repair.apply()
    return ortmodule


def _moved_modules() -> None:
    for leaf in ("jit_utils", "registration", "onnx_proto_utils"):
        _alias(f"torch.onnx._internal.{leaf}", f"{_EXPORTER}.{leaf}")
    for leaf in ("_type_utils", "_globals"):
        _alias(f"torch.onnx.{leaf}", f"{_EXPORTER}.{leaf}")


def _alias(old: str, new: str) -> None:
    """Let a module be imported by the name that it had."""
    module = sys.modules[old] = importlib.import_module(new)
    parent, _, leaf = old.rpartition(".")
    setattr(importlib.import_module(parent), leaf, module)


def _private_names() -> None:
    leaves = ["symbolic_helper", "utils", *(f"symbolic_opset{version}" for version in range(7, 21))]
    for leaf in leaves:
        public, real = (importlib.import_module(f"{package}.{leaf}") for package in ("torch.onnx", _EXPORTER))
        for name, value in vars(real).items():
            if not hasattr(public, name):
                setattr(public, name, value)


def _torchscript_export() -> None:
    export = torch.onnx.export
    # One list with one flag: whether ORTModule is exporting at this moment.
    exporting = importlib.import_module("onnxruntime.training.ortmodule").ORTMODULE_ONNX_EXPORT_CONTEXT

    @functools.wraps(export)
    def export_(*arguments: Any, **keywords: Any) -> Any:
        if exporting[0]:
            keywords["dynamo"] = False
        return export(*arguments, **keywords)

    torch.onnx.export = export_


def _no_interop_extension() -> None:
    name = "onnxruntime.training.ortmodule.torch_cpp_extensions.torch_interop_utils"
    # Imported even where the feature is off, and then not used.
    sys.modules[name] = ModuleType(name)
    os.environ["ORTMODULE_ENABLE_CUSTOM_AUTOGRAD"] = "0"


def _sparse_optimizers_can_be_off() -> None:
    manager: Any = importlib.import_module("onnxruntime.training.ortmodule._graph_transition_manager")
    cls = manager.GraphTransitionManager
    add_hooks = cls._add_check_label_sparsity_hook
    cls._add_check_label_sparsity_hook = staticmethod(lambda *arguments: add_hooks(*arguments) or [])


def _no_nvtx() -> None:
    if torch.version.cuda is not None:
        return
    profiling: Any = importlib.import_module("onnxruntime.training.utils.torch_profile_utils")
    profiling.torch_nvtx_range_push = lambda _: None
    profiling.torch_nvtx_range_pop = lambda: None


REPAIRS: tuple[Repair, ...] = (
    Repair("modules of the TorchScript exporter that were moved", "2.9", "before", _moved_modules),
    Repair(
        "their underscored functions, which the modules left in their places do not pass on",
        "2.9",
        "before",
        _private_names,
    ),
    Repair(
        "the extension for custom autograd functions, which does not compile: they are off",
        "2.12",
        "before",
        _no_interop_extension,
    ),
    Repair("torch.onnx.export, whose default became the Dynamo exporter", "2.9", "after", _torchscript_export),
    Repair(
        "the switches of compute and embedding sparse optimizer, which raise TypeError when one is off",
        "1.13",
        "after",
        _sparse_optimizers_can_be_off,
    ),
    Repair("calls of NVTX, which CPU builds of torch refuse", "1.13", "after", _no_nvtx),
)
"""In the order in which they are applied."""


def try_one_step() -> None:
    """Train a small model for one step, as a check of an environment; raises whatever is wrong with it."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 1))
    os.environ["ORTMODULE_FALLBACK_POLICY"] = "FALLBACK_DISABLE"
    wrapped = import_ortmodule().ORTModule(model)
    wrapped(torch.randn(4, 8)).sum().backward()
    if any(parameter.grad is None for parameter in model.parameters()):
        raise RuntimeError("ORTModule ran a step that left no gradients")
