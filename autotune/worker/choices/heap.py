"""The heap of the C library: another one in its place, or a setting of glibc's."""

from __future__ import annotations

import os
from pathlib import Path

from ...records.choices import HeapChoice, PreloadedHeap
from .made import MadeChoice


class Preloaded(MadeChoice):
    """Looks whether the loader has put the library of a ``PreloadedHeap`` into this process."""

    choice: PreloadedHeap

    def problem(self) -> str:
        """Say why nothing has changed, or nothing."""
        library = self.choice.text
        if f"/{library}" in Path("/proc/self/maps").read_text():
            return ""
        return f"the loader has not found {library}; Debian and Ubuntu have it in {self.choice.package}"


class Variable(MadeChoice):
    """Looks whether the process has the variable of a ``HeapChoice``, which the controller starts a run with."""

    choice: HeapChoice

    def problem(self) -> str:
        """Say why nothing has changed, or nothing."""
        name, value = self.choice.variable, self.choice.text
        return "" if os.environ.get(name) == value else f"this process was started without {name}={value}"
