"""Fingerprints of bundles, which decide whether a bundle still fits: files, torch, model and plans' occurrences."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .sources import script_file, source_root


@dataclass(frozen=True)
class SourceFile:
    """One of the script's own files, by its path below the folder of the script, with ``/``."""

    path: str
    sha256: str


@dataclass(frozen=True)
class ModelPrint:
    """The composition of a root module.

    ``modules`` counts the classes in it, by name. ``structure`` is a hash of the names and classes of all modules, and
    of the names, shapes and types of all parameters.
    """

    name: str
    num_parameters: int
    num_trainable: int
    modules: dict[str, int]
    structure: str


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
        """Its files as they are now, for a script that may be another; nothing behind a launcher that hides it."""
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
