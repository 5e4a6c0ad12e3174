"""A variable about the heap of the C library, which the loader or glibc reads as a process starts."""

from __future__ import annotations

from pathlib import Path

from ...records.choices import PreloadedHeap
from .made import MadeChoice


class HeapVariable(MadeChoice):
    """Looks whether this process was started with the variable, and has the library of a ``PreloadedHeap``."""

    def problem(self) -> str:
        """Say why nothing has changed, or nothing."""
        ((name, text),) = self.choice.variables_for("1", {}).items()
        if f"{name}={text}".encode() not in Path("/proc/self/environ").read_bytes().split(b"\0"):
            return f"this process was started without {name}={text}"
        if isinstance(self.choice, PreloadedHeap) and f"/{text}" not in Path("/proc/self/maps").read_text():
            return f"{text} is not installed; Debian and Ubuntu have it in {self.choice.package}"
        return ""
