"""Sources of a script: its files, its name for people, and a hash that tells one version from the next.

A script is a file, a module that is run as ``python -m`` runs it, or a launcher such as ``torchrun``. A launcher is a
script of its own and is told in its arguments which script to start.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from pathlib import Path


def script_title(script: str, module: str, arguments: Sequence[str]) -> str:
    """Return what people call it: a path, or a module's name; behind a launcher that of what it starts."""
    if module or not _is_launcher(script):
        return module or script
    names = [after for before, after in itertools.pairwise(arguments) if before in ("-m", "--module")]
    return next((one for one in arguments if one.endswith(".py")), next(iter(names), script))


def script_sha256(script: str, arguments: Sequence[str] = (), folder: str = ".") -> str:
    """The script's content as a hash: a study belongs to one version of its script."""
    digest = hashlib.sha256(Path(script).read_bytes())
    if _is_launcher(script):
        for argument in arguments:
            path = Path(folder) / argument
            if path.suffix == ".py" and path.is_file():
                digest.update(path.read_bytes())
    return digest.hexdigest()


def script_file(script: str, module: str, arguments: Sequence[str]) -> Path | None:
    """The file of what is trained, links resolved: behind a launcher the script that it starts, None if not found."""
    if module or not _is_launcher(script):
        return Path(script).resolve()
    title = script_title(script, module, arguments)
    path = Path(title)
    return path.resolve() if title != script and path.is_file() else None


def source_root(script: Path, module: str) -> Path:
    """The folder that a script imports its own files from: its own, or what ``python -m`` is started in."""
    inner = module.removesuffix(".__main__").split(".") if module else [""]
    return script.parents[len(inner) - 1 + (bool(module) and script.name == "__main__.py")]


def _is_launcher(script: str) -> bool:
    """Programs such as ``torchrun`` are installed without the suffix that scripts have."""
    return Path(script).suffix not in (".py", ".onnx")
