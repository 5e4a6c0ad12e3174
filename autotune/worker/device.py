"""The device that this process trains on: its name, what is held of it, and its memory limit."""

from __future__ import annotations

import time
from collections.abc import Iterable

import torch


def uses_cuda() -> bool:
    """Return whether this process has touched a CUDA device, without touching one."""
    # `is_available` would count the devices, and a process that is forked after that can use none of them.
    return torch.cuda.is_initialized()


def now_s() -> float:
    """Wait until the device has done its work, and return the seconds of ``time.perf_counter``."""
    if uses_cuda():
        torch.cuda.synchronize()
    return time.perf_counter()


def cuda_device(tensors: Iterable[torch.Tensor]) -> int | None:
    """The CUDA index of the first of the tensors that is on such a device; None if none is."""
    return next((tensor.device.index for tensor in tensors if tensor.is_cuda), None)


def device_uuid(device: int | None) -> str:
    """Return what CUDA calls a device: NVML's UUID without its prefix; empty for None, which is the CPU."""
    return "" if device is None else str(torch.cuda.get_device_properties(device).uuid)


def outside_bytes(
    device: int, *, free_before: int | None, usable_bytes: int | None = None, num_processes: int
) -> int | None:
    """Return what this process holds of a device outside torch's allocator: context and libraries.

    That is what the device has less than before the run, at most an eighth of it: others may have taken some meanwhile.
    None where that is not known, or where ranks must share devices. ``free_before`` and ``usable_bytes`` are NVML's;
    CUDA has tens of MiB more or less for processes.
    """
    if free_before is None or num_processes > torch.cuda.device_count():
        return None
    free, total = torch.cuda.mem_get_info(device)
    free_before += 0 if usable_bytes is None else total - usable_bytes
    return min(max(0, free_before - free - torch.cuda.memory_reserved(device)), total // 8)


def limit_memory(limit_bytes: int, device: int, *, outside_bytes: int) -> None:
    """Keep torch's allocator below a limit, less what the process holds besides."""
    # Where ranks share a device, the controller ends a run that passes the limit: NVML shows it their sum.
    _, total = torch.cuda.mem_get_info(device)
    torch.cuda.set_per_process_memory_fraction(max(0.001, min(1.0, (limit_bytes - outside_bytes) / total)), device)
