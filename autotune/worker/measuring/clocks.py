"""How long steps take, and how much of that a process's threads have waited for a processor."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch

from ..device import uses_cuda

__all__ = ["StepClock", "WaitingTime"]


class StepClock:
    """Marks of time at step boundaries, without stopping the device at each of them.

    On CUDA a mark is an event in the device's current stream; ``step_times_s`` waits for the last one. ``device`` is
    a CUDA index, None the current device, here and below.
    """

    def __init__(self, device: int | None = None) -> None:
        self._marks: list[Any] = []
        self._device = device
        self._cuda = uses_cuda()

    def __len__(self) -> int:
        return max(0, len(self._marks) - 1)

    def mark(self) -> None:
        """End a step and begin the next."""
        if self._cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record(torch.cuda.current_stream(self._device))
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter())

    def step_times_s(self) -> list[float]:
        """Seconds between the marks."""
        pairs = list(zip(self._marks, self._marks[1:], strict=False))
        if self._cuda and pairs:
            self._marks[-1].synchronize()
            return [begin.elapsed_time(end) / 1e3 for begin, end in pairs]
        return [end - begin for begin, end in pairs]


class WaitingTime:
    """How long this process's threads were ready to run and waited for a processor (``/proc/<pid>/schedstat``).

    Other processes on the machine make a CPU measurement worthless long before its spread shows it: a thread that
    waits at a barrier for one that has no processor costs a whole time slice.
    """

    def __init__(self) -> None:
        self._began_s = time.perf_counter()
        self._waited = self._read()

    def shares(self) -> tuple[float, ...]:
        """What each thread waited since the start, as a share of the time; empty where that is not known."""
        elapsed_ns = (time.perf_counter() - self._began_s) * 1e9
        if elapsed_ns <= 0:
            return ()
        return tuple((ns - self._waited.get(thread, 0)) / elapsed_ns for thread, ns in self._read().items())

    @staticmethod
    def _read() -> dict[str, int]:
        waited = {}
        for path in Path("/proc/self/task").glob("*/schedstat"):
            try:
                waited[path.parent.name] = int(path.read_text().split()[1])
            except (OSError, IndexError, ValueError):
                continue  # the thread ended meanwhile, or the kernel keeps no such figures
        return waited
