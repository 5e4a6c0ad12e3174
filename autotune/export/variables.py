"""The environment variables that a bundle may carry: a closed list, each with the values it may have.

A bundle may come from somebody else, and a variable can load a library (``LD_PRELOAD``, ``NCCL_NET_PLUGIN``), run code
(``PYTHONPATH``), load pickles from a folder (``TORCHINDUCTOR_CACHE_DIR``) or write to a path (``MALLOC_CONF``). So no
family is let in by its prefix, and nothing takes a path but ``ORTMODULE_MEMORY_OPT_CONFIG``, which must name the
bundle's own file. The variables of choices come on the list from the choices themselves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from ..errors import BundleError
from ..records.choices import ALLOCATOR_SETTINGS
from ..records.chosen import choice_variables

MEM_OPT_NAME = "mem_opt.json"
MEM_OPT_VARIABLE = "ORTMODULE_MEMORY_OPT_CONFIG"

_SWITCH = re.compile(r"[01]")
_NUMBER = re.compile(r"[0-9]{1,18}")
_NUMBERS = re.compile(r"[0-9]{1,6}(,[0-9]{1,6}){0,7}")
_WORD = re.compile(r"[A-Za-z_]{1,32}")
_PLACES = re.compile(r"[A-Za-z0-9_{}():,=\-]{1,256}")
_WORKSPACE = re.compile(r"(:[0-9]{1,7}){2,8}")

KNOWN: dict[str, re.Pattern[str]] = choice_variables() | {
    # ONNX Runtime Training (documented in its Memory_Optimizer.md and ORTModule_Training_Guidelines.md)
    MEM_OPT_VARIABLE: re.compile(re.escape(MEM_OPT_NAME)),
    "ORTMODULE_MEMORY_OPT_LEVEL": re.compile(r"[012]"),
    "ORTMODULE_ENABLE_MEM_EFFICIENT_GRAD_MGMT": _SWITCH,
    "ORTMODULE_FALLBACK_POLICY": _WORD,
    "ORTMODULE_LOG_LEVEL": _WORD,
    "ORTMODULE_PRINT_MEMORY_STATS": _SWITCH,
    # torch
    "PYTORCH_HIP_ALLOC_CONF": ALLOCATOR_SETTINGS,
    "PYTORCH_NO_CUDA_MEMORY_CACHING": _SWITCH,
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": _SWITCH,
    # CUDA and its libraries
    "CUBLAS_WORKSPACE_CONFIG": _WORKSPACE,
    "CUDA_DEVICE_MAX_CONNECTIONS": _NUMBER,
    "CUDA_MODULE_LOADING": _WORD,
    "NVIDIA_TF32_OVERRIDE": _SWITCH,
    # threads and the C allocator
    "KMP_AFFINITY": _PLACES,
    "KMP_BLOCKTIME": _NUMBER,
    "MALLOC_ARENA_MAX": _NUMBER,
    "MALLOC_MMAP_THRESHOLD_": _NUMBER,
    "MALLOC_TRIM_THRESHOLD_": _NUMBER,
    "MKL_NUM_THREADS": _NUMBER,
    "OMP_NUM_THREADS": _NUMBERS,
    "OMP_PLACES": _PLACES,
    "OMP_PROC_BIND": _WORD,
    "OMP_WAIT_POLICY": _WORD,
    "OPENBLAS_NUM_THREADS": _NUMBER,
}


def allowed(name: str, value: str) -> bool:
    """Return whether a bundle may set ``name`` to ``value``."""
    pattern = KNOWN.get(name)
    return pattern is not None and pattern.fullmatch(value) is not None


def check(variables: Mapping[str, str]) -> None:
    """Raise BundleError for the first variable that is not on the list, or has a value it may not have."""
    for name, value in variables.items():
        if name not in KNOWN:
            raise BundleError(
                f"the bundle sets {name[:80]!r}, which is not on the list of variables a bundle may set",
                hint="take it out of stack.json, and set it yourself if you trust where the bundle comes from",
            )
        if not allowed(name, value):
            raise BundleError(
                f"the bundle sets {name} to {value[:80]!r}, which is not a value it may have",
                hint=f"correct {name} in stack.json, or take it out",
            )


def resolve(variables: Mapping[str, str], directory: Path) -> dict[str, str]:
    """The variables as a process must see them: the one path is made absolute, inside ``directory``."""
    return {
        name: str(directory / MEM_OPT_NAME) if name == MEM_OPT_VARIABLE else value for name, value in variables.items()
    }
