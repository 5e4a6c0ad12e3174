"""Sources of a script, and fingerprints of bundles, which decide whether a bundle still fits.

A script is a file, a module as ``python -m`` runs it, or a launcher such as ``torchrun`` with the script to start among
its arguments.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path


def script_title(script: str, module: str, arguments: Sequence[str]) -> str:
    """Return the script's path, or its module's name; behind a launcher that of what it starts."""
    if module or not _is_launcher(script):
        return module or script
    names = [after for before, after in itertools.pairwise(arguments) if before in ("-m", "--module")]
    return next((one for one in arguments if one.endswith(".py")), next(iter(names), script))


def script_sha256(script: str, arguments: Sequence[str] = (), folder: str = ".") -> str:
    """Return the script's content as a hash: a study belongs to one version of its script."""
    digest = hashlib.sha256(Path(script).read_bytes())
    if _is_launcher(script):
        for argument in arguments:
            path = Path(folder) / argument
            if path.suffix == ".py" and path.is_file():
                digest.update(path.read_bytes())
    return digest.hexdigest()


def script_file(script: str, module: str, arguments: Sequence[str]) -> Path | None:
    """Return the file of what is trained, links resolved; None if a launcher does not tell which it starts."""
    if module or not _is_launcher(script):
        return Path(script).resolve()
    title = script_title(script, module, arguments)
    path = Path(title)
    return path.resolve() if title != script and path.is_file() else None


def source_root(script: Path, module: str) -> Path:
    """Return the folder that a script imports its own files from: its own, or what ``python -m`` is started in."""
    inner = module.removesuffix(".__main__").split(".") if module else [""]
    return script.parents[len(inner) - 1 + (bool(module) and script.name == "__main__.py")]


def _is_launcher(script: str) -> bool:
    # Programs such as `torchrun` are installed without the suffix that scripts have.
    return Path(script).suffix not in (".py", ".onnx")


@dataclass(frozen=True)
class SourceFile:
    """One of the script's own files, by its path below the folder of the script, with ``/``."""

    path: str
    sha256: str


@dataclass(frozen=True)
class ModelPrint:
    """The composition of a root module, with the number of modules of each class."""

    name: str
    num_parameters: int
    num_trainable: int
    modules: dict[str, int]
    structure: str  # a hash of names and classes of modules, and names, shapes and types of parameters


@dataclass(frozen=True)
class Fingerprint:
    """The parts that a bundle was made of, or the same parts as they are found later.

    An empty field is not known, and nothing is compared with it. ``files`` begin with the script itself. ``models`` are
    the roots in the order of their first calls. ``occurrences`` is the number of occurrences that each plan recomputes,
    by the plan's text, and the level as ``level 1``.
    """

    files: tuple[SourceFile, ...] = ()
    torch: str = ""
    models: tuple[ModelPrint, ...] = ()
    occurrences: dict[str, int] = field(default_factory=dict)

    def files_now(self, script: str, module: str, arguments: Sequence[str]) -> Fingerprint:
        """Read its files as they are now, for a script that may be another; none behind a launcher that hides it."""
        path = script_file(script, module, arguments)
        if path is None:
            return Fingerprint()
        root = source_root(path, module)
        return Fingerprint(files=source_files([path, *(root / one.path for one in self.files[1:])], root))


def source_files(paths: Iterable[Path], root: Path) -> tuple[SourceFile, ...]:
    """Read files below ``root``; those that cannot be read are left out."""
    found = []
    for path in paths:
        try:
            # A pipe would keep us waiting, and a device never end.
            content = path.read_bytes() if path.is_file() else None
        except OSError:
            continue
        if content is not None:
            found.append(SourceFile(path.relative_to(root).as_posix(), hashlib.sha256(content).hexdigest()))
    return tuple(found)
