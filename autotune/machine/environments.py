"""The Python environment that engine ``ortmodule`` needs: what is in it, where it is, and whether it is whole.

The engine is ONNX Runtime Training, whose last release needs Python 3.11 or older and takes the import name of
``onnxruntime`` itself, so it cannot live where autotune does. Its environment is a folder in the cache. A marker,
written last, says that it is whole.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from ..errors import UsageError
from ..records.engines import Engine
from .interpreter import find_interpreter

MARKER = "autotune.json"
OWN_ENGINE: Engine = "ortmodule"
"""The engine with an environment of its own."""
PYTHON = (3, 11)
"""The only version that all parts exist for."""
# The CPU release, on machines with a GPU as well: the one for CUDA is built for CUDA 11.8 and cuDNN 8, which come with
# no torch that the worker runs on.
TORCH = "torch==2.13.0+cpu"
TORCH_LINKS = "https://download.pytorch.org/whl/cpu/torch/"
# Pinned, the dependencies too: newer ones were never seen with a release that gets no more updates.
REQUIREMENTS = (
    "onnxruntime-training-cpu==1.19.2",
    "cerberus==1.3.8",
    "flatbuffers==25.12.19",
    "h5py==3.16.0",
    "ml-dtypes==0.6.0",
    "numpy==2.4.6",
    "onnx==1.23.2",
    "packaging==26.3",
    "protobuf==7.36.2",
    "setuptools==84.2.1",
    "sympy==1.14.0",
)
EXTENSION = "onnxruntime/training/ortmodule/torch_cpp_extensions/cpu/aten_op_executor"
"""The folder of the one C++ extension to compile, below ``site-packages``."""
MODULE = Path(__file__).parents[1] / "worker" / "engines" / "ortmodule_compat.py"
"""A file of the worker's that scripts of the environment's user can import under its own name."""


def cache_folder(variables: Mapping[str, str] = os.environ) -> Path:
    """Return the folder where autotune keeps files that can be made again.

    It is ``AUTOTUNE_CACHE``, else ``autotune`` in the XDG cache folder.
    """
    own = variables.get("AUTOTUNE_CACHE")
    if own:
        return Path(own).absolute()
    base = variables.get("XDG_CACHE_HOME", "")
    # The XDG specification has relative paths ignored.
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "autotune"


def environment_folder() -> Path:
    """Return where the environment is, or will be; another version of autotune may have a folder of its own."""
    parts = [str(PYTHON), TORCH, EXTENSION, *REQUIREMENTS, MODULE.read_text()]
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    return cache_folder() / "engines" / f"{OWN_ENGINE}-{key}"


def environment_python() -> Path | None:
    """Return the interpreter of the environment; None where it is not there, or not whole."""
    folder = environment_folder()
    python = folder / "bin" / "python"
    # A link to the Python that it was made with, which may be gone by now.
    return python if (folder / MARKER).exists() and os.access(python, os.X_OK) else None


def engine_interpreter(engine: Engine, *, named: str | None = None) -> str:
    """Return the interpreter that runs a script under an engine: the one that was named, the engine's own, or this one.

    UsageError if it is not there, or the engine's own environment was not made yet.
    """
    if named is not None or engine != OWN_ENGINE:
        return find_interpreter(named)
    python = environment_python()
    if python is None:
        raise UsageError(
            f"engine {engine!r} needs a Python environment of its own, which is not installed yet",
            hint=f"make it, once, in about two minutes: autotune engines install {engine}",
        )
    return str(python)
