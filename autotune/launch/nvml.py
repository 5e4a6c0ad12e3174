"""The memory meter of a GPU, through NVML."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from ..errors import RunError
from .devices import nvml_memory

__all__ = ["NvmlMeter"]

_MIB = 2**20


class NvmlMeter:
    """The device's used memory, less what other processes hold.

    What others hold is read before the run begins; when they move later, the figure is corrected by as much and
    ``contended`` is set. How well others can be told from the run depends on what NVML shows:

    - its process list holds the run's pids: everything else is others;
    - a container, where the list holds the host's pids: those that were there at the start are others, new ones are
      taken for the run's own, unless there are more of them than the run has processes;
    - a list without memory figures (some drivers and containers): others count as moved when one of them has gone, or
      when more have come than the run has processes; the figure cannot be corrected then.

    Args:
        uuid: the device's, or the MIG device's.
        nvml: a module like ``pynvml``, which is the default.
        list_every: the process list is dearer than the memory figure, so it is read at every so many samples.
        moved_bytes: others must move by more than this to count as contention.
    """

    kind: Literal["device"] = "device"

    def __init__(self, uuid: str, *, nvml: Any = None, list_every: int = 10, moved_bytes: int = 8 * _MIB) -> None:
        if nvml is None:
            import pynvml

            nvml = pynvml
        self._nvml: Any = nvml
        self._uuid = uuid
        self._list_every = list_every
        self._moved_limit_bytes = moved_bytes
        self._handle: Any = None
        self._others: dict[int, int | None] | None = None
        self._baseline_bytes = 0
        self._moved_bytes = 0
        self._sees_own_pids = False
        self._samples = 0
        self._peak: int | None = None
        self.contended = False

    def start(self) -> None:
        """Note what the device's memory holds before the run. RunError if NVML does not know the device."""
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            raise self._unreadable(error) from None
        try:
            self._handle = self._nvml.nvmlDeviceGetHandleByUUID(self._uuid)
        except self._nvml.NVMLError as error:
            self._nvml.nvmlShutdown()
            raise self._unreadable(error) from None
        memory = nvml_memory(self._nvml, self._handle)
        self._baseline_bytes = 0 if memory is None else memory[2]
        self._others = self._processes()

    def sample(self, pids: Sequence[int]) -> int | None:
        """The device's used bytes that are the run's own; None where NVML has no figure."""
        memory = nvml_memory(self._nvml, self._handle)
        if memory is None:
            return None
        if self._samples % self._list_every == 0:
            self._look_at_others(set(pids))
        self._samples += 1
        own = max(0, memory[2] - self._baseline_bytes - self._moved_bytes)
        self._peak = max(own, self._peak or 0)
        return own

    def peak(self) -> int | None:
        """The highest sample so far."""
        return self._peak

    def close(self) -> None:
        """Let go of NVML."""
        if self._handle is not None:
            self._handle = None
            self._nvml.nvmlShutdown()

    def _unreadable(self, error: Exception) -> RunError:
        return RunError(
            f"NVML cannot read the memory of device {self._uuid!r}: {error}",
            hint="`autotune doctor` shows what NVML finds",
        )

    def _look_at_others(self, pids: set[int]) -> None:
        now = self._processes()
        if now is None or self._others is None:
            return  # NVML keeps the list to itself: what the device held at the start is all there is to go by
        # A pid that was there before the run is a stranger's, of the host, where a container shows the host's pids.
        self._sees_own_pids = self._sees_own_pids or bool(pids & (now.keys() - self._others.keys()))
        new = now.keys() - self._others.keys() - pids
        gone = self._others.keys() - now.keys()
        too_many = bool(new) if self._sees_own_pids else len(new) > len(pids)
        others = [pid for pid in now if pid in self._others or (self._sees_own_pids and pid in new)]
        figures = [now[pid] for pid in others] + list(self._others.values())
        if any(figure is None for figure in figures):
            self._moved_bytes = 0
            self.contended = bool(gone) or too_many
            return
        self._moved_bytes = sum(now[pid] or 0 for pid in others) - sum(held or 0 for held in self._others.values())
        self.contended = abs(self._moved_bytes) > self._moved_limit_bytes or (too_many and not self._sees_own_pids)

    def _processes(self) -> dict[int, int | None] | None:
        """Bytes by pid of all processes on the device, computing or drawing; None if NVML does not list them."""
        computing = self._listed(self._nvml.nvmlDeviceGetComputeRunningProcesses)
        if computing is None:
            return None
        found: dict[int, int | None] = {}
        # A card for computing only has no list of those that draw.
        for process in (*computing, *(self._listed(self._nvml.nvmlDeviceGetGraphicsRunningProcesses) or ())):
            known = found.get(process.pid)
            # A process that computes and draws is in both lists, with the same figure.
            found[process.pid] = process.usedGpuMemory if known is None else max(known, process.usedGpuMemory or 0)
        return found

    def _listed(self, read: Callable[[Any], list[Any]]) -> list[Any] | None:
        try:
            return read(self._handle)
        except (self._nvml.NVMLError, self._nvml.NVMLLibraryMismatchError):
            return None  # the latter is no NVMLError: a driver without the version of the call that pynvml makes
