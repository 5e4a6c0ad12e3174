"""Lines of JSON in a file whose writer may be killed at any moment: no line is lost but the one that was cut off."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["append", "read"]


def append(path: Path, values: Mapping[str, Any]) -> None:
    """Write a line, on the disk when this returns; the file and its folders are made where they are not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        # A line that a kill has cut off must not swallow this one.
        is_whole = path.read_bytes()[-1:] in (b"", b"\n")
        file.write("\n" * (not is_whole) + json.dumps(values) + "\n")
        file.flush()
        os.fsync(file.fileno())


def read(path: Path) -> list[dict[str, Any]]:
    """The lines that are whole, the earliest first; none where there is no file."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            values = json.loads(line)
        except ValueError:
            continue
        if isinstance(values, dict):
            found.append(values)
    return found
