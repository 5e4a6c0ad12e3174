"""The GPU that a model runs on, as CUDA's driver tells it (asking takes none of its memory), and the environment.

Functions are those of the CUDA driver API (``cuda.h``), whose library is wherever a GPU can be used.
"""

from __future__ import annotations

import ctypes
import os
import platform
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import onnxruntime

from ..metering.host import driver_version, processor_name
from ..records.environment import Environment

_LIBRARY = "libcuda.so.1"
_LONGEST_NAME = 256


@dataclass(frozen=True)
class Gpu:
    """The first GPU that this process sees; ``uuid`` is NVML's without its prefix, ``memory_bytes`` is its total."""

    name: str
    uuid: str
    memory_bytes: int
    driver: Any = field(repr=False, compare=False)

    def free_bytes(self) -> int | None:
        """Return what nobody holds of it; None before this thread has used it."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        refused = self.driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
        return None if refused else free.value

    def free_before(self, free_bytes: Mapping[str, int], usable_bytes: Mapping[str, int]) -> int | None:
        """Return the bytes that were free before the run, as CUDA counts; None where NVML did not tell.

        NVML's ``free_bytes`` and ``usable_bytes``, those for processes, go by the UUIDs of GPUs. CUDA counts tens of
        MiB more or fewer usable bytes.
        """
        free = free_bytes.get(self.uuid)
        return None if free is None else free + self.memory_bytes - usable_bytes.get(self.uuid, self.memory_bytes)


def find_gpu(driver: Any = None) -> Gpu | None:
    """Find the GPU, by ``CUDA_VISIBLE_DEVICES`` where that is set; None without one, or without a working driver.

    ``driver`` is CUDA's library, which is looked for unless given.
    """
    try:
        driver = driver or ctypes.CDLL(_LIBRARY)
    except OSError:
        return None
    device, size = ctypes.c_int(), ctypes.c_size_t()
    name, number = ctypes.create_string_buffer(_LONGEST_NAME), (ctypes.c_ubyte * 16)()
    # Each gives 0 where it worked; a driver without devices refuses the second or the first.
    asked = (
        (driver.cuInit, 0),
        (driver.cuDeviceGet, ctypes.byref(device), 0),
        (driver.cuDeviceGetName, name, _LONGEST_NAME, device),
        (driver.cuDeviceTotalMem_v2, ctypes.byref(size), device),
        (driver.cuDeviceGetUuid, ctypes.byref(number), device),
    )
    if any(function(*arguments) for function, *arguments in asked):
        return None
    return Gpu(name.value.decode(errors="replace"), str(uuid.UUID(bytes=bytes(number))), size.value, driver)


def describe_environment(gpu: Gpu | None) -> Environment:
    """Describe the GPU that the model runs on, or the CPU where it runs on none."""
    host_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Environment(
        device_kind="cpu" if gpu is None else "cuda",
        device_name=processor_name() if gpu is None else gpu.name,
        device_memory_bytes=host_bytes if gpu is None else gpu.memory_bytes,
        num_devices=1,
        num_threads=len(os.sched_getaffinity(0)),
        hostname=socket.gethostname(),
        platform=platform.platform(),
        python=platform.python_version(),
        torch="",
        cuda=None if gpu is None else onnxruntime.cuda_version or None,
        driver=None if gpu is None else driver_version(),
        variables={},
        onnxruntime=onnxruntime.__version__,
    )
