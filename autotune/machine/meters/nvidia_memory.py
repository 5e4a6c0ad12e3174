"""The memory in use on a GPU by NVML's figures, and detection of figures that cannot be true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Memory:
    """The memory of a device, in bytes, and the version of NVML's call that gave it.

    Version 2 keeps what the driver reserves apart from what processes use. Drivers before 510 have version 1 only,
    where the two are one figure.
    """

    version: int
    total: int
    reserved: int
    used: int


class NoFigureError(Exception):
    """NVML does not know a device's memory, or what it says cannot be true."""


def memory_of(nvml: Any, handle: Any, *, versions: Sequence[int] = (2, 1)) -> Memory:
    """The memory of a device by the first of the calls that gives it; NoFigureError with the reason if none does."""
    problem = ""
    for version in versions:
        try:
            if version == 2:
                found = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
                memory = Memory(2, int(found.total), int(found.reserved), int(found.used))
            else:
                found = nvml.nvmlDeviceGetMemoryInfo(handle)
                memory = Memory(1, int(found.total), 0, int(found.used))
        except nvml.NVMLError as error:
            problem = str(error)
            continue
        if memory.used <= memory.total and memory.total > 0:
            return memory
        # NVML_VALUE_NOT_AVAILABLE is 2**64 - 1, and layers that share a GPU out have let their counters wrap around.
        problem = f"{memory.used} of {memory.total} bytes are said to be in use"
    raise NoFigureError(problem)
