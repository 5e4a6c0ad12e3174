"""Waiting for a processor, and the processor time of other programs, by the kernel's counts. Standard library only."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from ..records.measurement import CONTENDED_SHARE

# Fields of `/proc/<pid>/stat` behind the command: user and system time of the process, and of its children that ended.
_TIMES = slice(11, 15)
# Fields of the first line of `/proc/stat`: user, nice, system, (idle, iowait,) irq, softirq, steal.
_BUSY = (1, 2, 3, 6, 7, 8)


def others_s(proc: Path = Path("/proc")) -> float | None:
    """Return the seconds for which processors ran anything but this process and those that it started.

    It counts since the machine's start; None where the kernel does not tell. Another virtual machine's time counts.
    """
    try:
        fields = (proc / "stat").read_text().split("\n", 1)[0].split()
        busy = sum(int(fields[place]) for place in _BUSY)
        own = sum(_ticks(proc, pid) for pid in _own(proc, "self"))
    except (OSError, IndexError, ValueError):
        return None
    return (busy - own) / os.sysconf("SC_CLK_TCK")


def _own(proc: Path, pid: str) -> Iterator[str]:
    yield pid
    for path in (proc / pid / "task").glob("*/children"):
        with suppress(OSError):  # the thread ended meanwhile
            for child in path.read_text().split():
                yield from _own(proc, child)


def _ticks(proc: Path, pid: str) -> int:
    try:
        after_command = (proc / pid / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        if pid == "self":
            raise
        return 0  # the child has ended meanwhile
    return sum(map(int, after_command[_TIMES]))


class WaitingTime:
    """The time that this process's threads, ready to run, waited for a processor (``/proc/<pid>/schedstat``).

    Other processes on the machine make a measurement worthless long before its spread shows it: threads wait at a
    barrier, or a device waits for the thread that launches its next kernel. ``launching`` is how the names of threads
    begin that launch a device's work in turns with the thread that makes this: only these count, together as one.
    Threads also wait while the script's own processes run, as the workers of a DataLoader do. So no wait is longer than
    the time that other programs ran for (``others_s``).
    """

    def __init__(
        self,
        *,
        launching: str | None = None,
        tasks: Path = Path("/proc/self/task"),
        others_s: Callable[[], float | None] = others_s,
    ) -> None:
        self._launching = launching
        self._tasks = tasks
        self._others_s = others_s
        self._here = str(threading.get_native_id())
        self._others_ran_s = others_s()
        self._began_s = time.perf_counter()
        self._waited = self._read()

    def shares(self) -> tuple[float, ...]:
        """Return the share of the time since the start that each thread waited; empty where that is not known."""
        elapsed_ns = (time.perf_counter() - self._began_s) * 1e9
        if elapsed_ns <= 0:
            return ()
        shares = [(ns - self._waited.get(thread, 0)) / elapsed_ns for thread, ns in self._read().items()]
        if shares and self._launching is not None:
            shares = [sum(shares)]
        if max(shares, default=0.0) > CONTENDED_SHARE:
            most = self._share_of_others(elapsed_ns / 1e9)
            shares = [min(share, most) for share in shares]
        return tuple(shares)

    def _share_of_others(self, elapsed_s: float) -> float:
        ran_s = None if self._others_ran_s is None else self._others_s()
        return math.inf if ran_s is None or self._others_ran_s is None else (ran_s - self._others_ran_s) / elapsed_s

    def _read(self) -> dict[str, int]:
        waited = {}
        for path in self._tasks.glob("*/schedstat"):
            try:
                thread = path.parent
                is_own = self._launching is None or thread.name == self._here
                if is_own or (thread / "comm").read_text().startswith(self._launching or ""):
                    waited[thread.name] = int(path.read_text().split()[1])
            except (OSError, IndexError, ValueError):
                continue  # the thread ended meanwhile, or the kernel keeps no such figures
        return waited
