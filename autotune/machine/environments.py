"""The Python environments that engines of their own need: what is in one, where it is, and whether it is whole.

Engine ``ortmodule`` is ONNX Runtime Training, whose last release needs Python 3.11 or older and takes the import name
of ``onnxruntime`` itself, so it cannot live where autotune does. Its environment is a folder in the cache. A marker,
written last, says that it is whole.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError
from ..records.engines import Engine
from .interpreter import find_interpreter

MARKER = "autotune.json"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The parts of an engine's own environment.

    ``python`` is the only version that all parts exist for. ``torch`` is a release of its CPU builds, found at
    ``torch_links``. ``requirements`` are pinned, the dependencies too: newer ones were
    never seen with a release that gets no more updates. ``extension`` is the folder of the one C++ extension to
    compile, below ``site-packages``. ``module`` is a file of the worker's. Scripts of the environment's user can import
    it under its own name.
    """

    python: tuple[int, int]
    torch: str
    torch_links: str
    requirements: tuple[str, ...]
    extension: str
    module: Path

    @property
    def key(self) -> str:
        """Changes with the recipe, so that another version of autotune makes a folder of its own."""
        parts = [str(self.python), self.torch, self.extension, *self.requirements, self.module.read_text()]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


RECIPES: Mapping[Engine, Recipe] = {
    # The CPU release, on machines with a GPU as well: the one for CUDA is built for CUDA 11.8 and cuDNN 8, which come
    # with no torch that the worker runs on.
    "ortmodule": Recipe(
        python=(3, 11),
        torch="torch==2.13.0+cpu",
        torch_links="https://download.pytorch.org/whl/cpu/torch/",
        requirements=(
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
        ),
        extension="onnxruntime/training/ortmodule/torch_cpp_extensions/cpu/aten_op_executor",
        module=Path(__file__).parents[1] / "worker" / "engines" / "ortmodule_compat.py",
    ),
}
"""The engines with an environment of their own."""


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


def environment_folder(engine: Engine) -> Path:
    """Return where an engine's environment is, or will be."""
    return cache_folder() / "engines" / f"{engine}-{RECIPES[engine].key}"


def environment_python(engine: Engine) -> Path | None:
    """The interpreter of an engine's environment; None where it is not there, or not whole."""
    folder = environment_folder(engine)
    python = folder / "bin" / "python"
    # A link to the Python that it was made with, which may be gone by now.
    return python if (folder / MARKER).exists() and os.access(python, os.X_OK) else None


def engine_interpreter(engine: Engine, *, named: str | None = None) -> str:
    """The interpreter that runs a script under an engine: the one that was named, the engine's own, or this one.

    UsageError if it is not there, or the engine's own environment was not made yet.
    """
    if named is not None or engine not in RECIPES:
        return find_interpreter(named)
    python = environment_python(engine)
    if python is None:
        raise UsageError(
            f"engine {engine!r} runs in a Python environment of its own, which is not there yet",
            hint=f"make it, once, in about two minutes: autotune engines install {engine}",
        )
    return str(python)
