"""Changes of runs on disk, in words."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

_SHOWN = 5
# As `pymp-6lgjb029`, of Python and of libraries that make such folders.
_DRAWN = re.compile(r"^(?:tmp(?!_)|pymp-|torchelastic_|matplotlib-)[a-z0-9_]{8}$")


@dataclass
class Changes:
    """Paths, in the order in which they were first seen; each is in one list."""

    put_back: list[str] = field(default_factory=list)  # were there before, and are again as they were
    removed: list[str] = field(default_factory=list)  # made by runs
    data: list[str] = field(default_factory=list)  # made by a run before its training and read by it: they stay
    unkept: dict[str, str] = field(default_factory=dict)  # could not be kept aside, with the reason
    newer: dict[str, str] = field(default_factory=dict)  # written by another program, with the place of the older one
    others: list[str] = field(default_factory=list)  # where runs have made something, not seen to be written: they stay

    def __bool__(self) -> bool:
        return any(vars(self).values())

    def add(self, other: Changes) -> None:
        """Add those of another run; what several runs have changed is named once."""
        for name in ("put_back", "removed", "data", "others"):
            mine, theirs = getattr(self, name), getattr(other, name)
            mine += [path for path in theirs if path not in mine]
        self.unkept |= other.unkept
        self.newer |= other.newer

    def sentences(self, folder: Path) -> list[str]:
        """Return what to tell the user, who is in ``folder``; empty if nothing was changed."""
        said = []
        if self.put_back:
            said.append(f"Your script changes {_named(self.put_back, folder)}: put back as it was after each run.")
        if made := [path for path in self.removed if not _is_temporary(path, folder)]:
            said.append(f"Your script makes {_named(made, folder)}: removed after each run.")
        if self.data:
            said.append(f"Your script prepares {_named(self.data, folder)} before it trains, and reads it: that stays.")
        said += [f"{_near(path, folder)} was changed and not kept: {why}." for path, why in self.unkept.items()]
        said += [
            f"{_near(path, folder)} was changed by another program, and stays so; "
            f"its earlier content is in {_printable(kept)}."
            for path, kept in self.newer.items()
        ]
        if self.others:
            said.append(
                f"{_named(self.others, folder)} lies where your script has made something, and no run was seen to "
                "write it: it stays. Remove it if it came of a run."
            )
        return said


def _is_temporary(path: str, folder: Path) -> bool:
    """Tell whether a library may have made it, under a name that Python's ``tempfile`` has drawn."""
    temporary = Path(tempfile.gettempdir())
    if not Path(path).is_relative_to(temporary) or Path(path).is_relative_to(folder):
        return False
    first = next(iter(Path(path).relative_to(temporary).parts), "")
    return _DRAWN.match(Path(first).stem) is not None


def _named(paths: Iterable[str], folder: Path) -> str:
    """Name the first few paths; those that share a folder of the user's as one."""
    names: dict[str, list[str]] = {}
    for path in paths:
        near = _near(path, folder)
        top = os.path.dirname(near) if os.path.isabs(near) else near.partition(os.sep)[0]  # noqa: PTH117, PTH120
        names.setdefault(top, []).append(near)
    said = [inside[0] if len(inside) == 1 else f"{top}/ ({len(inside)} paths)" for top, inside in names.items()]
    more = len(said) - _SHOWN
    return ", ".join(said[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _near(path: str, folder: Path) -> str:
    return _printable(os.path.relpath(path, folder) if Path(path).is_relative_to(folder) else path)


def _printable(path: str) -> str:
    from ..records.printable import printable  # not above: this package is loaded into every process of a run

    return printable(path)
