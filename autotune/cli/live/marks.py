"""The characters of the block: those of Unicode, and plain ones for a console that cannot encode them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len, set_cell_size


@dataclass(frozen=True)
class Marks:
    """The characters: ``parts`` are those of a bar in turn, ``free`` is what it has left, and ``spinner`` turns."""

    parts: str
    free: str
    limit: str
    trial: str
    own: str
    best: str
    floor: str
    corner: str
    wall: str
    beyond: str
    between: str
    cut: str
    spinner: str


UNICODE: Final = Marks("█▓▒░▚▞", "·", "│", "•", "○", "◆", "─", "└", "│", "→", "·", "…", "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
ASCII: Final = Marks("#=+-o~", ".", "|", ".", "o", "*", "-", "+", "|", ">", "-", "~", "|/-\\")


def cut(text: str, width: int, marks: Marks) -> str:
    """A line in at most so many columns; what is too long ends in a mark that says so."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + marks.cut if width > 0 else ""
