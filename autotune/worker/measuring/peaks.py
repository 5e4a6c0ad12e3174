"""The highest points of memory as the training process sees them: torch's allocator on CUDA, the resident set."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import Any, ClassVar

import torch

from ...metering.host import ResidentMemory, resident_peak, trim_heap
from ...records.measurement import Peaks
from ..device import uses_cuda


class MemoryWatch(ResidentMemory):
    """Peaks of one trial: ``begin`` resets them, ``peaks`` reads them.

    ``device`` is the CUDA index of the device that is trained on. None is the CPU, even where something else, such as
    an optimizer's step in torch 2.14, has touched CUDA.
    """

    latest: ClassVar[MemoryWatch | None] = None

    def __init__(self, device: int | None = None) -> None:
        super().__init__()
        self._device = device
        self._allocated = 0
        self._reserved = 0
        # Of the allocator, since the process began: when the trial did, and each time that measured steps have begun.
        self._retries = 0
        self._retries_before: list[int] = []
        self._out_of_memory = 0

    def begin(self) -> None:
        """Give back what earlier trials left cached, and reset every high-water mark."""
        super().begin()
        if self._device is not None:
            _tell_of_resets()
            MemoryWatch.latest = None
            torch.cuda.reset_peak_memory_stats(self._device)
            MemoryWatch.latest = self
            self._retries, self._out_of_memory = self._count("num_alloc_retries"), self._count("num_ooms")
            self._retries_before.clear()

    def _release(self) -> None:
        release_memory(self._device)

    def measuring_begins(self) -> None:
        """Count the allocator's retries from here: what it freed before may have been what warming up had left."""
        if self._device is not None:
            self._retries_before.append(self._count("num_alloc_retries"))

    def measuring_began_earlier(self) -> None:
        """Count from the first ``measuring_begins`` after all: no other steps come."""
        del self._retries_before[1:]

    def allocator_retries(self) -> int:
        """Return how often the allocator had to free its cache and try again since ``measuring_begins``."""
        return 0 if self._device is None else self._count("num_alloc_retries") - self._retries_before_measuring()

    def _retries_before_measuring(self) -> int:
        return self._retries_before[-1] if self._retries_before else self._retries

    def keep_peaks(self) -> None:
        """Remember the allocator's peaks: the script is about to reset them."""
        self._allocated = max(self._allocated, torch.cuda.max_memory_allocated(self._device))
        self._reserved = max(self._reserved, torch.cuda.max_memory_reserved(self._device))

    def peaks(self) -> Peaks:
        """Return the peaks since ``begin``, without what is held outside torch's allocator: only NVML knows whose."""
        if self._device is None:
            return super().peaks()
        resident = resident_peak()
        self._note_what_is_odd()
        self.keep_peaks()
        return Peaks(allocated=self._allocated, reserved=self._reserved, resident=resident)

    def _note_what_is_odd(self) -> None:
        failures = self._count("num_ooms") - self._out_of_memory
        if failures > 0:
            # The script may have caught it, or cuDNN, which then takes an algorithm that needs less.
            self.notes.append(f"the allocator ran out of memory {failures} times, and training went on")
        early = self._retries_before_measuring() - self._retries
        if early > 0:
            times = "once" if early == 1 else f"{early} times"
            self.notes.append(
                f"the allocator had to free memory and try again {times} in warm-up, which is not counted"
            )
        own = self._device
        others = [i for i in range(torch.cuda.device_count()) if i != own and torch.cuda.memory_reserved(i)]
        if others:
            names = ", ".join(f"cuda:{index}" for index in others)
            self.notes.append(f"peaks are those of cuda:{own}, but the process holds memory on {names} as well")

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


def release_memory(device: int | None = None) -> None:
    """Give back to the device and to the system what earlier trials left cached (the heap: see ``trim_heap``)."""
    gc.collect()
    if uses_cuda():
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()
    trim_heap()
