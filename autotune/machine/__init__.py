"""What this computer has: devices and their meters, the host's memory, interpreters, engines and their environments."""

from __future__ import annotations

from .devices import Device, Gpus, find_device
from .host import HostMemory, check_platform, host_memory, host_memory_limit, oom_kills
from .interpreter import check_worker_python, find_interpreter
from .meters import MemoryMeter, MeterFactory, ResidentMeter, RunMeter, Sample, meter_for, read_gpus

__all__ = [
    "Device",
    "Gpus",
    "HostMemory",
    "MemoryMeter",
    "MeterFactory",
    "ResidentMeter",
    "RunMeter",
    "Sample",
    "check_platform",
    "check_worker_python",
    "find_device",
    "find_interpreter",
    "host_memory",
    "host_memory_limit",
    "meter_for",
    "oom_kills",
    "read_gpus",
]
