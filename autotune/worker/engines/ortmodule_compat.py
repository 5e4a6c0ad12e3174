"""Repairs that ONNX Runtime Training 1.19.2 needs to run on a torch that is newer than itself.

ORTModule was written against torch 2.3 and gets no more releases. The docstring of each repair says what it mends and
since which torch it is needed. The repairs were seen to work together on the releases in ``_TORCH``. Others are
refused, since a repair that no longer fits could give wrong gradients. Nothing of the script's own is changed: where a
function of torch has to behave differently, it does so during ORTModule's export only.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from types import ModuleType
from typing import Any

import torch

_ONNXRUNTIME = "1.19.2"
_TORCH = ("2.13",)
_EXPORTER = "torch.onnx._internal.torchscript_exporter"


def refusal(torch_version: str, onnxruntime_version: str) -> str:
    """Return why ORTModule cannot be run on these versions; empty if it can."""
    release = ".".join(torch_version.split(".")[:2])
    if onnxruntime_version != _ONNXRUNTIME:
        return f"engine ortmodule is made for onnxruntime-training {_ONNXRUNTIME}, this is {onnxruntime_version}"
    if release not in _TORCH:
        return f"engine ortmodule was seen to work on torch {', '.join(_TORCH)}, this is {torch_version}"
    return ""


def import_ortmodule() -> ModuleType:
    """Import ``onnxruntime.training.ortmodule``, repaired.

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
    for repair in REPAIRS_BEFORE_IMPORT:
        repair()
    ortmodule = importlib.import_module("onnxruntime.training.ortmodule")
    for repair in REPAIRS_AFTER_IMPORT:
        repair()
    return ortmodule


def _moved_modules() -> None:
    """Since torch 2.9: give modules of the TorchScript exporter the names from before they were moved."""
    internal = ("_internal.jit_utils", "_internal.registration", "_internal.onnx_proto_utils")
    for name in (*internal, "_type_utils", "_globals"):
        parent, _, leaf = f"torch.onnx.{name}".rpartition(".")
        module = sys.modules[f"{parent}.{leaf}"] = importlib.import_module(f"{_EXPORTER}.{leaf}")
        setattr(importlib.import_module(parent), leaf, module)


def _private_names() -> None:
    """Since torch 2.9: have the modules left in the old places pass on underscored functions too."""
    leaves = ["symbolic_helper", "utils", *(f"symbolic_opset{version}" for version in range(7, 21))]
    for leaf in leaves:
        public, real = (importlib.import_module(f"{package}.{leaf}") for package in ("torch.onnx", _EXPORTER))
        for name, value in vars(real).items():
            if not hasattr(public, name):
                setattr(public, name, value)


def _torchscript_export() -> None:
    """Since torch 2.9: have ORTModule export by TorchScript; the default became the Dynamo exporter."""
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
    """Since torch 2.12: leave out the extension for custom autograd functions, which does not compile."""
    name = "onnxruntime.training.ortmodule.torch_cpp_extensions.torch_interop_utils"
    # Imported even where the feature is off, and then not used.
    sys.modules[name] = ModuleType(name)
    os.environ["ORTMODULE_ENABLE_CUSTOM_AUTOGRAD"] = "0"


def _sparse_optimizers_can_be_off() -> None:
    """Since torch 1.13: let compute and embedding sparse optimizer be off, which raises TypeError otherwise."""
    manager: Any = importlib.import_module("onnxruntime.training.ortmodule._graph_transition_manager")
    cls = manager.GraphTransitionManager
    add_hooks = cls._add_check_label_sparsity_hook
    cls._add_check_label_sparsity_hook = staticmethod(lambda *arguments: add_hooks(*arguments) or [])


def _no_nvtx() -> None:
    """Since torch 1.13: leave out the calls of NVTX, which CPU builds of torch refuse."""
    if torch.version.cuda is not None:
        return
    profiling: Any = importlib.import_module("onnxruntime.training.utils.torch_profile_utils")
    profiling.torch_nvtx_range_push = lambda _: None
    profiling.torch_nvtx_range_pop = lambda: None


# In the order in which they are applied, around the import of ORTModule.
REPAIRS_BEFORE_IMPORT = (_moved_modules, _private_names, _no_interop_extension)
REPAIRS_AFTER_IMPORT = (_torchscript_export, _sparse_optimizers_can_be_off, _no_nvtx)


def try_one_step() -> None:
    """Train a small model for one step, as a check of an environment; raises whatever is wrong with it."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 1))
    os.environ["ORTMODULE_FALLBACK_POLICY"] = "FALLBACK_DISABLE"
    wrapped = import_ortmodule().ORTModule(model)
    wrapped(torch.randn(4, 8)).sum().backward()
    if any(parameter.grad is None for parameter in model.parameters()):
        raise RuntimeError("ORTModule ran a step that left no gradients")
