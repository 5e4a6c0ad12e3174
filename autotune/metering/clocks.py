"""Clocks of step times, and of the time for which a process's threads have waited for a processor."""

from __future__ import annotations

import threading
import time
from pathlib import Path


class WallClock:
    """Marks of time at step boundaries, of steps that are over when they return."""

    def __init__(self) -> None:
        self._marks: list[float] = []

    def mark(self) -> None:
        """End a step and begin the next."""
        self._marks.append(time.perf_counter())

    def step_times_s(self) -> list[float]:
        """Seconds between the marks, of the steps that are over: a device may be at work on the latest."""
        return [end - begin for begin, end in zip(self._marks, self._marks[1:], strict=False)]


class WaitingTime:
    """The time that this process's threads, ready to run, waited for a processor (``/proc/<pid>/schedstat``).

    Other processes on the machine make a CPU measurement worthless long before its spread shows it. A thread that waits
    at a barrier for one that has no processor costs a whole time slice. A device waits as well, where the thread that
    should launch its next kernel has no processor.

    Args:
        launching: how the names of threads begin that launch a device's work in turns with the thread that makes this.
            These are then the only ones that count, and together as one. None counts each thread of the process.
        tasks: where the kernel shows the threads.
    """

    def __init__(self, *, launching: str | None = None, tasks: Path = Path("/proc/self/task")) -> None:
        self._launching = launching
        self._tasks = tasks
        self._here = str(threading.get_native_id())
        self._began_s = time.perf_counter()
        self._waited = self._read()

    def shares(self) -> tuple[float, ...]:
        """Return what each thread waited since the start, as a share of the time; empty where that is not known.

        Of threads that launch a device's work in turns it is one share, the sum.
        """
        elapsed_ns = (time.perf_counter() - self._began_s) * 1e9
        if elapsed_ns <= 0:
            return ()
        shares = [(ns - self._waited.get(thread, 0)) / elapsed_ns for thread, ns in self._read().items()]
        return tuple(shares) if self._launching is None or not shares else (sum(shares),)

    def _read(self) -> dict[str, int]:
        waited = {}
        for path in self._tasks.glob("*/schedstat"):
            try:
                if self._counts(path.parent):
                    waited[path.parent.name] = int(path.read_text().split()[1])
            except (OSError, IndexError, ValueError):
                continue  # the thread ended meanwhile, or the kernel keeps no such figures
        return waited

    def _counts(self, thread: Path) -> bool:
        if self._launching is None or thread.name == self._here:
            return True
        return (thread / "comm").read_text().startswith(self._launching)
