"""The device that this process trains on: which it is, what is held of it, and how it is kept below a limit."""

from __future__ import annotations

import time
from collections.abc import Iterable

import torch


def uses_cuda() -> bool:
    """Return whether this process has touched a CUDA device; asking must not be what touches it first."""
    # Not `is_available`: it counts the devices, and a process that was forked after that can use none of them.
    return torch.cuda.is_initialized()


def is_capturing() -> bool:
    """Tell whether this thread's work is being captured into a CUDA graph; a wait for the device ends the capture."""
    return uses_cuda() and torch.cuda.is_current_stream_capturing()


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

    That is what the device has less than before the run; of what others have taken meanwhile no more than an eighth of
    the device is mistaken for it.

    Args:
        device: its CUDA index.
        free_before: bytes that it had free before the run, as far as NVML told.
        usable_bytes: of all bytes those for processes, by NVML too. CUDA has tens of MiB more or less of them.
        num_processes: how many train together.

    Returns:
        None where that is not known, or where ranks must share devices: it could be another rank's.
    """
    if free_before is None or num_processes > torch.cuda.device_count():
        return None
    free, total = torch.cuda.mem_get_info(device)
    free_before += 0 if usable_bytes is None else total - usable_bytes
    return min(max(0, free_before - free - torch.cuda.memory_reserved(device)), total // 8)


def limit_memory(limit_bytes: int, device: int, *, outside_bytes: int) -> None:
    """Let torch's allocator take no more of a device than leaves this process below a limit.

    What the process holds besides comes off the limit. Where ranks share a device the controller, to whom NVML shows
    their sum, ends a run that passes it.
    """
    _, total = torch.cuda.mem_get_info(device)
    torch.cuda.set_per_process_memory_fraction(max(0.001, min(1.0, (limit_bytes - outside_bytes) / total)), device)
