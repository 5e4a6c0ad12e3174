"""A stand-in for ``torch.cuda``'s counters, streams and events: devices whose memory a test moves."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch


@dataclass
class FakeDevice:
    """Bytes; ``used`` is what the driver says of the whole device."""

    total: int = 80 * 2**30
    used: int = 0
    allocated: int = 0
    reserved: int = 0
    peak_allocated: int = 0
    peak_reserved: int = 0
    retries: int = 0
    failures: int = 0
    fraction: float | None = None
    uuid: str = ""

    def hold(self, size: int, *, outside: int = 0) -> None:
        """Let the allocator hold this much, and the driver as much more."""
        self.allocated = self.reserved = size
        self.used = size + outside
        self.peak_allocated = max(self.peak_allocated, size)
        self.peak_reserved = max(self.peak_reserved, size)

    def reset(self) -> None:
        self.peak_allocated, self.peak_reserved = self.allocated, self.reserved


class FakeEvent:
    """An event of a device that comes to it when ``FakeCuda.done_s`` has reached the time at which it was recorded."""

    def __init__(self, cuda: FakeCuda) -> None:
        self._cuda = cuda
        self._at_s: float | None = None

    def record(self, stream: int) -> None:
        self._cuda.recorded_on.append(stream)
        self._at_s = self._cuda.now_s

    def query(self) -> bool:
        assert self._at_s is not None
        return self._at_s <= self._cuda.done_s

    def elapsed_time(self, end: FakeEvent) -> float:
        if not (self.query() and end.query()):
            # As torch: the driver's cudaErrorNotReady.
            raise RuntimeError("device not ready")
        assert self._at_s is not None
        assert end._at_s is not None
        return (end._at_s - self._at_s) * 1e3

    def synchronize(self) -> None:
        self._cuda.synchronize()


class FakeCuda:
    """Puts itself in the place of ``torch.cuda``; device 0 is the current one.

    ``now_s`` is the time on the devices at which what is recorded will be done, ``done_s`` how far they have come;
    ``synchronized`` counts how often somebody waited for them.
    """

    def __init__(self, patch: pytest.MonkeyPatch, *devices: FakeDevice) -> None:
        self.devices = devices
        self.recorded_on: list[int] = []
        self.now_s = self.done_s = 0.0
        self.synchronized = 0
        self.backend = "native"
        replaced = {
            "is_available": lambda: True,
            "is_initialized": lambda: True,
            "is_current_stream_capturing": lambda: False,
            "current_device": lambda: 0,
            "get_allocator_backend": lambda: self.backend,
            "device_count": lambda: len(devices),
            "synchronize": lambda device=None: self.synchronize(),
            "empty_cache": lambda: None,
            "mem_get_info": lambda device=None: (self[device].total - self[device].used, self[device].total),
            "memory_reserved": lambda device=None: self[device].reserved,
            "max_memory_allocated": lambda device=None: self[device].peak_allocated,
            "max_memory_reserved": lambda device=None: self[device].peak_reserved,
            "memory_stats": lambda device=None: {
                "num_alloc_retries": self[device].retries,
                "num_ooms": self[device].failures,
            },
            "reset_peak_memory_stats": lambda device=None: torch._C._cuda_resetPeakMemoryStats(device),
            "set_per_process_memory_fraction": self._limit,
            "get_device_properties": lambda device=None: SimpleNamespace(
                name=f"Fake {device or 0}", total_memory=self[device].total, uuid=self[device].uuid
            ),
            "current_stream": lambda device=None: device or 0,
            "Event": lambda **_: FakeEvent(self),
        }
        for name, value in replaced.items():
            patch.setattr(torch.cuda, name, value)
        patch.setattr(torch._C, "_cuda_resetPeakMemoryStats", lambda device: self[device].reset(), raising=False)

    def __getitem__(self, device: int | None) -> Any:
        return self.devices[device or 0]

    def synchronize(self) -> None:
        self.synchronized += 1
        self.done_s = self.now_s

    def _limit(self, fraction: float, device: int | None = None) -> None:
        self[device].fraction = fraction


class FakeStream:
    """A stream of device 0 that works off what the host launches, in the place of ``torch.cuda``'s events and waits.

    ``host_s`` is the host's clock; each launch takes the host ten microseconds, and what is launched begins when the
    host has launched it and the device has done what came before.

    Args:
        patch: puts it in the place of ``torch.cuda``'s.
        event_s: what the device takes to set a mark.
    """

    def __init__(self, patch: pytest.MonkeyPatch, *, event_s: float) -> None:
        self.host_s = 0.0
        self._device_s = 0.0
        self._event_s = event_s
        patch.setattr(torch.cuda, "is_initialized", lambda: True)
        patch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
        patch.setattr(torch.cuda, "current_stream", lambda device=None: self)
        patch.setattr(torch.cuda, "synchronize", lambda device=None: self._wait_until(self._device_s))
        patch.setattr(torch.cuda, "_sleep", lambda cycles: self.launch(None, kernel_s=cycles / 1.7e9))
        patch.setattr(torch.cuda, "Event", lambda enable_timing: _Mark(self))

    def launch(self, value: Any, *, kernel_s: float) -> Any:
        """Launch a kernel; gives the value."""
        self.host_s += 10e-6
        self._device_s = max(self._device_s, self.host_s) + kernel_s
        return value

    def compute(self, value: Any, seconds: float) -> Any:
        """Compute on the host; gives the value."""
        self.host_s += seconds
        return value

    def mark(self) -> float:
        """When the device sets a mark that the host asks for now."""
        self.launch(None, kernel_s=self._event_s)
        return self._device_s

    def _wait_until(self, seconds: float) -> None:
        self.host_s = max(self.host_s, seconds)


class _Mark:
    def __init__(self, stream: FakeStream) -> None:
        self._stream = stream
        self._at_s = 0.0

    def record(self, stream: FakeStream) -> None:
        assert stream is self._stream
        self._at_s = stream.mark()

    def synchronize(self) -> None:
        self._stream._wait_until(self._at_s)

    def elapsed_time(self, end: _Mark) -> float:
        assert self._stream.host_s >= end._at_s, "read before the device had set it"
        return 1e3 * (end._at_s - self._at_s)
