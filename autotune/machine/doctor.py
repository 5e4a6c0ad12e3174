"""Diagnosis of this machine for `autotune doctor`: the parts that a study needs, found or missing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError
from ..records.units import format_bytes
from .host import find_cxx_compiler, host_memory
from .interpreter import OLDEST_PYTHON, Torch, ask_interpreter, is_too_old, look_at_torch
from .meters.nvidia import read_gpus


@dataclass(frozen=True)
class Finding:
    """Something looked at: what was found, what it means, and whether it is as it should be.

    Without a ``required`` one that is good, no study can run.
    """

    name: str
    found: str
    means: str
    good: bool = True
    required: bool = False


def examine(python: str) -> tuple[Finding, ...]:
    """Look at interpreter, GPUs, NVML, what Inductor compiles with, and memory limits."""
    torch = look_at_torch(python)
    compiling = (_compiler(), *_headers(python))
    return (_interpreter(python), _torch(torch), *_gpus(torch), *compiling, _memory(), _resident_peak())


def _interpreter(python: str) -> Finding:
    too_old = "The worker needs Python 3.11 or newer: choose one with --python."
    try:
        version = ask_interpreter(python).version
    except UsageError as error:
        return Finding("Python", str(error), too_old, good=False, required=True)
    found, good = f"{'.'.join(map(str, version))} at {python}", version >= OLDEST_PYTHON
    return Finding("Python", found, "It runs the script." if good else too_old, good=good, required=True)


def _torch(torch: Torch) -> Finding:
    if torch.problem:
        means = "Install torch there, or choose another interpreter with --python."
        return Finding("torch", torch.problem, means, good=False, required=True)
    built = f"built for CUDA {torch.cuda}" if torch.cuda else "built for CPU"
    found, good = f"{torch.version}, {built}", not is_too_old(torch.version)
    means = (
        f"{torch.num_threads} threads on CPU." if good else "The worker needs torch 2.11 or newer: install it there."
    )
    return Finding("torch", found, means, good=good, required=True)


def _gpus(torch: Torch) -> tuple[Finding, ...]:
    gpus = read_gpus()
    if not gpus.devices:
        found = gpus.problem or "no GPU"
        means = "Trials run on the CPU; peaks are the resident set's."
        if torch.num_devices:
            means = "torch sees one all the same: trials run there, but memory outside torch is in no peak."
            means += " Mend the driver until nvidia-smi works."
        return (Finding("GPU", found, means, good=not torch.cuda),)
    findings = []
    for device in gpus.devices:
        size = "size unknown" if device.memory_bytes is None else format_bytes(device.memory_bytes)
        used = "" if device.used_bytes is None else f", {format_bytes(device.used_bytes)} in use now"
        means = f"Peaks are NVML's, device {device.index} of --devices."
        findings.append(Finding(f"GPU {device.index}", f"{device.name}, {size}{used}", means))
    if not torch.num_devices:
        means = "torch does not see the GPU: its build, the driver or CUDA_VISIBLE_DEVICES does not match."
        findings.append(Finding("torch and GPU", "torch sees no CUDA device", means, good=False))
    return (*findings, Finding("NVML", f"driver {gpus.driver}", "Device memory can be measured."))


def _compiler() -> Finding:
    found = find_cxx_compiler()
    if found is None:
        means = "Scripts that compile with Inductor on CPU need one, Triton on GPUs a C compiler; engine aot does not."
        return Finding("C++ compiler", "none", means, good=False)
    return Finding("C++ compiler", found, "Scripts that compile with Inductor can run.")


def _headers(python: str) -> tuple[Finding, ...]:
    try:
        found = ask_interpreter(python)
    except UsageError:
        return ()  # there is nobody to have any
    if found.has_headers:
        return (Finding("Python's headers", "Python.h is there", "Inductor and Triton can compile with them."),)
    name = f"python{found.version[0]}.{found.version[1]}"
    means = (
        "Scripts that compile with Inductor need them, as Triton does on GPUs; engine aot does not. "
        f"Install the package {name}-dev (Debian, Ubuntu) or {name}-devel (Fedora, RHEL), "
        "or choose a Python of conda or uv with --python, which has them."
    )
    return (Finding("Python's headers", "no Python.h", means, good=False),)


def _memory() -> Finding:
    memory = host_memory()
    found = f"{format_bytes(memory.total_bytes)}, {format_bytes(memory.available_bytes)} available"
    if memory.limit_bytes is not None and memory.limit_bytes < memory.total_bytes:
        found += f", limited to {format_bytes(memory.limit_bytes)} by the container"
    return Finding("Host memory", found, "On CPU the default --memory-limit is what is left of it.")


def _resident_peak() -> Finding:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError as error:
        means = "Resident peaks include the script's start-up; compare them with care."
        return Finding("Resident peak", f"cannot be reset ({error.strerror})", means, good=False)
    return Finding("Resident peak", "can be reset", "Peaks on CPU are each trial's own.")
