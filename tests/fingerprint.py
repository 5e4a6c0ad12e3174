"""Whether code has changed: a hash of it. Standard library only."""

from __future__ import annotations

import hashlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def code_of(*paths: Path) -> str:
    """A hash of files, and of the Python files and settings below folders: another one when any has changed."""
    files = {file for path in paths for file in ([path] if path.is_file() else _files_below(path))}
    found = hashlib.sha256()
    for path in sorted(files):
        name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        found.update(str(name).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:12]


def _files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.suffix in (".py", ".toml")]
