"""The controller's side of a run: start it, watch it, measure its memory, end it, and say how it ended.

``port.py`` is the seam that scheduling sees; ``process.py`` is what stands behind it. No torch in here.
"""

from __future__ import annotations

from .devices import Device, Gpus, find_device, read_gpus
from .interpreter import check_interpreter
from .logs import log_tail
from .machine import HostMemory, host_memory, host_memory_limit, oom_kills
from .meters import MemoryMeter, MeterFactory, ResidentMeter, meter_for
from .nvml import NvmlMeter
from .port import Event, Launcher, RunResult
from .process import WORKER, ProcessLauncher, device_variables, worker_command
from .requests import discovery_request, fill_arguments, has_placeholder, trial_request, verify_request

__all__ = [
    "WORKER",
    "Device",
    "Event",
    "Gpus",
    "HostMemory",
    "Launcher",
    "MemoryMeter",
    "MeterFactory",
    "NvmlMeter",
    "ProcessLauncher",
    "ResidentMeter",
    "RunResult",
    "check_interpreter",
    "device_variables",
    "discovery_request",
    "fill_arguments",
    "find_device",
    "has_placeholder",
    "host_memory",
    "host_memory_limit",
    "log_tail",
    "meter_for",
    "oom_kills",
    "read_gpus",
    "trial_request",
    "verify_request",
    "worker_command",
]
