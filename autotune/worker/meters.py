"""Time and memory as the training process sees them."""

from __future__ import annotations

import ctypes
import functools
import gc
import resource
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

import torch

from ..records import Peaks

__all__ = [
    "MemoryWatch",
    "StepClock",
    "WaitingTime",
    "cuda_device",
    "device_uuid",
    "is_capturing",
    "limit_memory",
    "outside_bytes",
    "release_memory",
    "reset_resident_peak",
    "resident_bytes",
    "resident_peak",
    "trim_heap",
    "uses_cuda",
]


def uses_cuda() -> bool:
    """Whether this process has touched a CUDA device; asking must not be what touches it first."""
    # Not `is_available`: it counts the devices, and a process that was forked after that can use none of them.
    return torch.cuda.is_initialized()


def is_capturing() -> bool:
    """Whether this thread's work is being captured into a CUDA graph: whatever waits for the device would end that."""
    return uses_cuda() and torch.cuda.is_current_stream_capturing()


def cuda_device(tensors: Iterable[torch.Tensor]) -> int | None:
    """The CUDA index of the first of the tensors that is on such a device; None if none is."""
    return next((tensor.device.index for tensor in tensors if tensor.is_cuda), None)


def device_uuid(device: int | None) -> str:
    """What CUDA calls a device: NVML's UUID without its prefix; empty for None, which is the CPU."""
    return "" if device is None else str(torch.cuda.get_device_properties(device).uuid)


def outside_bytes(device: int, *, free_before: int | None, num_processes: int) -> int | None:
    """What this process holds of a device outside torch's allocator: context and libraries.

    That is what the device has less than before the run; of what others have taken meanwhile no more than an eighth of
    the device is mistaken for it.

    Args:
        device: its CUDA index.
        free_before: bytes that it had free before the run, as far as NVML told.
        num_processes: how many train together.

    Returns:
        None where that is not known, or where ranks must share devices: it could be another rank's.
    """
    if free_before is None or num_processes > torch.cuda.device_count():
        return None
    free, total = torch.cuda.mem_get_info(device)
    return min(max(0, free_before - free - torch.cuda.memory_reserved(device)), total // 8)


def limit_memory(limit_bytes: int, device: int, *, outside_bytes: int) -> None:
    """Let torch's allocator take no more of a device than leaves this process below a limit.

    Where ranks share a device the controller, to whom NVML shows their sum, ends a run that passes it.

    Args:
        limit_bytes: of the device's memory.
        device: its CUDA index.
        outside_bytes: what the process holds besides, which comes off the limit.
    """
    _, total = torch.cuda.mem_get_info(device)
    torch.cuda.set_per_process_memory_fraction(max(0.001, min(1.0, (limit_bytes - outside_bytes) / total)), device)


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

    def share(self) -> float:
        """The longest waiting of any thread since the start, as a share of the time; 0.0 where it is not known."""
        elapsed_s = time.perf_counter() - self._began_s
        waited = self._read()
        delays = [ns - self._waited.get(thread, 0) for thread, ns in waited.items()]
        return max(delays, default=0) / 1e9 / elapsed_s if elapsed_s > 0 else 0.0

    @staticmethod
    def _read() -> dict[str, int]:
        waited = {}
        for path in Path("/proc/self/task").glob("*/schedstat"):
            try:
                waited[path.parent.name] = int(path.read_text().split()[1])
            except (OSError, IndexError, ValueError):
                continue  # the thread ended meanwhile, or the kernel keeps no such figures
        return waited


class MemoryWatch:
    """Peaks of one trial on a device: ``begin`` resets them, ``peaks`` reads them."""

    latest: ClassVar[MemoryWatch | None] = None

    def __init__(self, device: int | None = None) -> None:
        self.notes: list[str] = []
        self._device = device
        self._allocated = 0
        self._reserved = 0
        self._retries = 0
        self._out_of_memory = 0

    def begin(self) -> None:
        """Give back what earlier trials left cached, and reset every high-water mark."""
        release_memory(self._device)
        if uses_cuda():
            _tell_of_resets()
            MemoryWatch.latest = None
            torch.cuda.reset_peak_memory_stats(self._device)
            MemoryWatch.latest = self
            statistics = torch.cuda.memory_stats(self._device)
            self._retries = statistics.get("num_alloc_retries", 0)
            self._out_of_memory = statistics.get("num_ooms", 0)
        refusal = reset_resident_peak()
        if refusal is not None:
            self.notes.append(f"the resident peak includes start-up: it could not be reset ({refusal})")

    def allocator_retries(self) -> int:
        """How often the allocator had to free its cache and try again since ``begin``."""
        return self._count("num_alloc_retries") - self._retries if uses_cuda() else 0

    def keep_peaks(self) -> None:
        """Remember the allocator's peaks: the script is about to reset them."""
        self._allocated = max(self._allocated, torch.cuda.max_memory_allocated(self._device))
        self._reserved = max(self._reserved, torch.cuda.max_memory_reserved(self._device))

    def peaks(self) -> Peaks:
        """The peaks since ``begin``; of what is held outside torch's allocator only NVML can tell whose it is."""
        resident = resident_peak()
        if not uses_cuda():
            return Peaks(resident=resident)
        self._note_what_is_odd()
        self.keep_peaks()
        return Peaks(allocated=self._allocated, reserved=self._reserved, resident=resident)

    def _note_what_is_odd(self) -> None:
        failures = self._count("num_ooms") - self._out_of_memory
        if failures > 0:
            # The script may have caught it, or cuDNN, which then takes an algorithm that needs less.
            self.notes.append(f"the allocator ran out of memory {failures} times, and training went on")
        device = torch.cuda.current_device() if self._device is None else self._device
        others = [i for i in range(torch.cuda.device_count()) if i != device and torch.cuda.memory_reserved(i)]
        if others:
            names = ", ".join(f"cuda:{index}" for index in others)
            self.notes.append(f"peaks are those of cuda:{device}, but the process holds memory on {names} as well")

    def _count(self, name: str) -> int:
        return int(torch.cuda.memory_stats(self._device).get(name, 0))


def _tell_of_resets() -> None:
    """Let the latest watch keep the peaks whenever the script resets them, however it does."""
    for name in ("_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats"):
        reset = getattr(torch._C, name, None)
        if reset is not None and not hasattr(reset, "__wrapped__"):
            setattr(torch._C, name, _telling(reset))


def _telling(reset: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(reset)
    def told(*arguments: Any) -> Any:
        if MemoryWatch.latest is not None:
            MemoryWatch.latest.keep_peaks()
        return reset(*arguments)

    return told


def reset_resident_peak() -> str | None:
    """Set the resident set's high-water mark to its present size; gives the reason where the system refuses."""
    try:
        # proc(5): writing 5 resets the peak resident set size to the current one.
        Path("/proc/self/clear_refs").write_text("5")
    except OSError as error:
        return error.strerror or str(error)
    return None


def resident_peak() -> int:
    """High-water mark of the resident set in bytes: ``VmHWM`` of ``/proc/self/status``, else ``ru_maxrss``."""
    return _status_bytes("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def resident_bytes() -> int:
    """The resident set in bytes: ``VmRSS`` of ``/proc/self/status``, else its high-water mark."""
    return _status_bytes("VmRSS") or resident_peak()


def _status_bytes(field: str) -> int | None:
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def release_memory(device: int | None = None) -> None:
    """Give back to the device and to the system what earlier trials left cached (the heap with glibc only)."""
    gc.collect()
    if uses_cuda():
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()
    trim_heap()


def trim_heap() -> None:
    """Give back to the system what the C library's allocator keeps (glibc only)."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        pass
