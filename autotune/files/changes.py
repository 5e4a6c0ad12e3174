"""Changes of runs on disk, in words."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

_SHOWN = 5


@dataclass
class Changes:
    """Paths, in the order in which they were first seen; each is in one list.

    ``put_back`` was there before and is again as it was; ``removed`` was made by runs; ``data`` was made by a run
    before its first training step, which then read it, and stays. ``unkept`` (with the reason) was there before and
    could not be kept aside. ``newer`` (with where the older one is) was written by somebody else in its place.
    ``others`` lies where runs have made something, and no run was seen to write it: it stays.
    """

    put_back: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    data: list[str] = field(default_factory=list)
    unkept: dict[str, str] = field(default_factory=dict)
    newer: dict[str, str] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any((self.put_back, self.removed, self.data, self.unkept, self.newer, self.others))

    def add(self, other: Changes) -> None:
        """Take in those of another run; what several runs have changed is named once."""
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
        if self.removed:
            said.append(f"Your script makes {_named(self.removed, folder)}: removed after each run.")
        if self.data:
            said.append(f"Your script prepares {_named(self.data, folder)} before it trains, and reads it: that stays.")
        said += [f"{_near(path, folder)} was changed and not kept: {why}." for path, why in self.unkept.items()]
        said += [
            f"{_near(path, folder)} was written by somebody else, and stays; "
            f"what it was before is in {_printable(kept)}."
            for path, kept in self.newer.items()
        ]
        if self.others:
            said.append(
                f"{_named(self.others, folder)} lies where your script has made something, and no run was seen to "
                "write it: it stays. Remove it if it came of a run."
            )
        return said


def _named(paths: Iterable[str], folder: Path) -> str:
    """The first few paths; those that share a folder of the user's as one."""
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
