"""A stand-in for ``torch.cuda``'s counters, streams and events: devices whose memory a test moves."""

from __future__ import annotations

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


class FakeCuda:
    """Puts itself in the place of ``torch.cuda``; device 0 is the current one."""

    def __init__(self, patch: pytest.MonkeyPatch, *devices: FakeDevice) -> None:
        self.devices = devices
        self.recorded_on: list[int] = []
        replaced = {
            "is_available": lambda: True,
            "is_initialized": lambda: True,
            "is_current_stream_capturing": lambda: False,
            "current_device": lambda: 0,
            "device_count": lambda: len(devices),
            "synchronize": lambda device=None: None,
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
            "Event": lambda **_: SimpleNamespace(record=self.recorded_on.append),
        }
        for name, value in replaced.items():
            patch.setattr(torch.cuda, name, value)
        patch.setattr(torch._C, "_cuda_resetPeakMemoryStats", lambda device: self[device].reset(), raising=False)

    def __getitem__(self, device: int | None) -> Any:
        return self.devices[device or 0]

    def _limit(self, fraction: float, device: int | None = None) -> None:
        self[device].fraction = fraction
