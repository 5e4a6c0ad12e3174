"""How much memory a run takes, seen from outside: the port, and the resident set of its processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import psutil

from .devices import find_device, read_gpus
from .nvml import NvmlMeter

__all__ = ["MemoryMeter", "MeterFactory", "ResidentMeter", "meter_for"]


class MemoryMeter(Protocol):
    """Samples the memory that one run takes from a device, what others hold there left out.

    ``start`` is called before the run's first process exists, ``close`` after its last one is gone.
    """

    @property
    def kind(self) -> Literal["device", "resident"]:
        """Whether it reads a device's memory or the processes' resident sets."""
        ...

    @property
    def contended(self) -> bool:
        """Whether others held another amount of the device's memory at the latest sample than at the start."""
        ...

    def start(self) -> None:
        """Note what others hold. RunError if the device cannot be read at all."""
        ...

    def sample(self, pids: Sequence[int]) -> int | None:
        """The bytes that the run, whose processes are ``pids``, holds now; None if this cannot be told at present."""
        ...

    def peak(self) -> int | None:
        """The highest sample so far, None without one."""
        ...

    def close(self) -> None:
        """Give back what ``start`` took. The peak stays readable."""
        ...


MeterFactory = Callable[[int | None], MemoryMeter]
"""Makes the meter of a device index, or of the host for None."""


def meter_for(device: int | None) -> MemoryMeter:
    """NVML's figures for a GPU, the resident set on CPU; UsageError for a device that isn't there."""
    if device is None:
        return ResidentMeter()
    return NvmlMeter(find_device(device, read_gpus()).uuid)


class ResidentMeter:
    """Sums the resident sets of the processes it is given.

    Pages that processes share count once for each of them, so forked data loaders do not belong into ``pids``.
    """

    kind: Literal["resident"] = "resident"
    contended = False  # what other processes hold is not in a resident set

    def __init__(self) -> None:
        self._peak: int | None = None
        self._processes: dict[int, psutil.Process] = {}

    def start(self) -> None:
        """Nothing to note: a resident set holds nobody else's memory."""

    def sample(self, pids: Sequence[int]) -> int | None:
        """The sum over the processes that are still there, None if none is."""
        sizes = [size for pid in pids if (size := self._resident(pid)) is not None]
        if not sizes:
            return None
        total = sum(sizes)
        self._peak = max(total, self._peak or 0)
        return total

    def peak(self) -> int | None:
        """The highest sum so far."""
        return self._peak

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
