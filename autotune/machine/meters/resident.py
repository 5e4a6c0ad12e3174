"""The memory meter of processes that train on the CPU: their resident sets."""

from __future__ import annotations

from collections.abc import Sequence

import psutil

from ...records.conditions import DeviceReading
from .port import Neighbours


class ResidentMeter:
    """Sums the resident sets of the processes it is given.

    Pages that processes share count once for each of them, so forked data loaders do not belong into ``pids``.
    """

    contended = False  # what other processes hold is not in a resident set
    neighbours = Neighbours()  # a processor that others use is waited for, which the process itself sees
    problem = ""  # a process without a resident set has ended
    reading: DeviceReading | None = None  # of a processor nothing is read

    def __init__(self) -> None:
        self._processes: dict[int, psutil.Process] = {}

    def start(self) -> None:
        """Nothing to note: a resident set holds nobody else's memory."""

    def sample(self, pids: Sequence[int]) -> int | None:
        """The sum over the processes that are still there, None if none is."""
        sizes = [size for pid in pids if (size := self._resident(pid)) is not None]
        return sum(sizes) if sizes else None

    def close(self) -> None:
        """Forget the processes."""
        self._processes.clear()

    def _resident(self, pid: int) -> int | None:
        try:
            if pid not in self._processes:
                self._processes[pid] = psutil.Process(pid)
            return int(self._processes[pid].memory_info().rss)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return None
