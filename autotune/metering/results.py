"""A worker's side of the protocol's files: lines of ``results.jsonl`` and the mapped progress file."""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path
from typing import Any

from ..records.codec import dumps, loads
from ..records.outcome import Phase
from ..records.progress import Progress
from ..records.run import Line, Result


def append_line(directory: Path, line: Line) -> None:
    """Append a line in one write, so that processes that share the file do not tear each other's lines."""
    data = (dumps(line) + "\n").encode()
    descriptor = os.open(directory / "results.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, data)
        # The outcome must outlive a power cut as well as a crash: it is minutes of somebody's GPU.
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def ranks_of_results(directory: Path) -> list[int]:
    """Return the ranks that have written results so far, in that order."""
    path = directory / "results.jsonl"
    written = path.read_text(errors="replace").splitlines() if path.exists() else []
    lines: list[Line] = [loads(Line, line) for line in written]
    return [line.rank for line in lines if isinstance(line, Result)]


class ProgressFile:
    """``progress-<pid>``: made at the first training call, so that only training processes have one."""

    def __init__(self, directory: Path, rank: int, num_processes: int, device: str) -> None:
        self._state = Progress("start", 0, 0, rank, num_processes, os.getpid(), time.monotonic(), device)
        path = directory / f"progress-{os.getpid()}"
        with path.open("w+b") as file:
            file.write(self._state.to_bytes())
            file.flush()
            self._map = mmap.mmap(file.fileno(), Progress.SIZE)

    @property
    def phase(self) -> Phase:
        """Return the phase last entered."""
        return self._state.phase

    def update(self, **changes: Any) -> None:
        """Write what changed of ``Progress``; ``steps`` also moves the time of the last step, ``phase`` adds a mark."""
        if "steps" in changes:
            changes["updated_s"] = time.monotonic()
        if "phase" in changes:
            changes["marks"] = self._state.marks + 1
        for name, value in changes.items():
            setattr(self._state, name, value)
        self._map[:] = self._state.to_bytes()
