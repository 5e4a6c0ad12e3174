"""Fingerprints of a script and its model: one that a bundle remembers, and one that a launch compares with it."""

from __future__ import annotations

import hashlib
import os
import sys
from collections import Counter
from pathlib import Path

from torch import nn

from ...records.fingerprint import ModelPrint, SourceFile, source_files, source_root
from ..plans.layers import own_class

_MOST_FILES = 1000
_INSTALLED = ("site-packages", "dist-packages")
_STANDARD_LIBRARY = Path(os.__file__).resolve().parent
_PACKAGE = Path(__file__).resolve().parents[2]


def model_print(module: nn.Module) -> ModelPrint:
    """Return what a module is made of, by the names that ``named_modules`` and ``named_parameters`` give."""
    parameters = dict(module.named_parameters())
    lines = [f"{name} {own_class(one).__name__}" for name, one in module.named_modules()]
    lines += [f"{name} {tuple(one.shape)} {one.dtype} {one.requires_grad}" for name, one in parameters.items()]
    return ModelPrint(
        name=own_class(module).__name__,
        num_parameters=sum(one.numel() for one in parameters.values()),
        num_trainable=sum(one.numel() for one in parameters.values() if one.requires_grad),
        modules=dict(Counter(own_class(one).__name__ for one in module.modules())),
        structure=hashlib.sha256("\n".join(lines).encode()).hexdigest(),
    )


def own_files() -> tuple[SourceFile, ...]:
    """The script's own files: itself, then those that it has imported from its folder or below.

    Not what is installed there, and not code that was generated: that is imported by other names than its files have.
    """
    main = sys.modules["__main__"]
    if not isinstance(getattr(main, "__file__", None), str):
        return ()
    spec = getattr(main, "__spec__", None)
    script = Path(os.path.realpath(str(main.__file__)))
    root = source_root(script, "" if spec is None else spec.name)
    found = set()
    for name, module in list(sys.modules.items()):
        file, inner = getattr(module, "__file__", None), "/" + name.replace(".", "/")
        if isinstance(file, str) and file.endswith((f"{inner}.py", f"{inner}/__init__.py")):
            path = Path(os.path.realpath(file))
            if path.is_relative_to(root) and not _is_installed(path, root):
                found.add(path)
    return source_files([script, *sorted(found - {script})[:_MOST_FILES]], root)


def _is_installed(path: Path, root: Path) -> bool:
    """Tell files of environments, Python and caches, which may lie in the script's folder, from the user's own."""
    hidden = any(part in _INSTALLED or part.startswith(".") for part in path.relative_to(root).parts)
    return hidden or _STANDARD_LIBRARY in path.parents or _PACKAGE in path.parents
