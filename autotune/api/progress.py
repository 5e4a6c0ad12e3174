"""A study at work as its lines come: on standard error, or in the output of a notebook's cell."""

from __future__ import annotations

import html
import sys
from typing import Any

# So many lines stand in a notebook; a study writes one for each trial.
_MOST_LINES = 30


class Progress:
    """Shows lines; in a notebook in one place that is written anew. ``lines`` are all that came.

    Args:
        is_shown: whether anything is to be shown at all.
    """

    def __init__(self, *, is_shown: bool) -> None:
        self.lines: list[str] = []
        self._is_shown = is_shown
        self._handle = _notebook_handle(self) if is_shown else None

    def add(self, line: str) -> None:
        """Show a line beside those before it."""
        self.lines.append(line)
        if self._handle is not None:
            self._handle.update(self)
        elif self._is_shown:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()

    def __repr__(self) -> str:
        return "\n".join(self.lines[-_MOST_LINES:])

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"


def _notebook_handle(shown: Progress) -> Any:
    """Return what updates an output of the cell that runs; None where this is no notebook."""
    if "IPython" not in sys.modules:
        return None
    from IPython import get_ipython
    from IPython.display import display

    shell = get_ipython()
    show: Any = display  # it has no types
    return show(shown, display_id=True) if hasattr(shell, "kernel") else None
