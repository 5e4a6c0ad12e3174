"""What this machine offers a study, for `autotune doctor`."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ..records.units import format_bytes
from .devices import read_gpus
from .machine import host_memory

__all__ = ["Finding", "examine"]

_ASK_TORCH = """
import json, sys
try:
    import torch
except Exception as error:
    print(json.dumps({"python": sys.version.split()[0], "error": f"{type(error).__name__}: {error}"}))
else:
    print(json.dumps({
        "python": sys.version.split()[0], "torch": torch.__version__, "cuda": torch.version.cuda,
        "devices": torch.cuda.device_count(), "threads": torch.get_num_threads(),
    }))
"""


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
    """Look at interpreter, GPUs, NVML, compiler and memory limits."""
    asked = _ask_torch(python)
    return (*_interpreter(python, asked), *_gpus(asked), _compiler(), _memory(), _resident_peak())


def _ask_torch(python: str) -> dict[str, object]:
    try:
        done = subprocess.run(
            (python, "-c", _ASK_TORCH),
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        answer: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return answer


def _interpreter(python: str, asked: dict[str, object]) -> tuple[Finding, ...]:
    version = str(asked.get("python", "unknown"))
    parts = [int(part) for part in version.split(".")[:2] if part.isdigit()]
    new_enough = parts >= [3, 11]
    means = "It runs the script." if new_enough else "The worker needs Python 3.11 or newer: choose one with --python."
    interpreter = Finding("Python", f"{version} at {python}", means, good=new_enough, required=True)
    if "torch" not in asked:
        means = "Install torch there, or choose another interpreter with --python."
        return interpreter, Finding("torch", str(asked.get("error")), means, good=False, required=True)
    built = f"built for CUDA {asked['cuda']}" if asked["cuda"] else "built for CPU"
    means = f"{asked['threads']} threads on CPU."
    return interpreter, Finding("torch", f"{asked['torch']}, {built}", means, required=True)


def _gpus(asked: dict[str, object]) -> tuple[Finding, ...]:
    gpus = read_gpus()
    if not gpus.devices:
        found = gpus.problem or "no GPU"
        means = "Trials run on the CPU; peaks are the resident set's."
        return (Finding("GPU", found, means, good=not asked.get("cuda")),)
    findings = []
    for device in gpus.devices:
        size = "size unknown" if device.memory_bytes is None else format_bytes(device.memory_bytes)
        used = "" if device.used_bytes is None else f", {format_bytes(device.used_bytes)} in use now"
        means = f"Peaks are NVML's, device {device.index} of --devices."
        findings.append(Finding(f"GPU {device.index}", f"{device.name}, {size}{used}", means))
    if not asked.get("devices"):
        means = "torch does not see the GPU: its build, the driver or CUDA_VISIBLE_DEVICES does not match."
        findings.append(Finding("torch and GPU", "torch sees no CUDA device", means, good=False))
    return (*findings, Finding("NVML", f"driver {gpus.driver}", "Device memory can be measured."))


def _compiler() -> Finding:
    found = next((path for path in map(shutil.which, ("cc", "gcc", "clang")) if path), None)
    if found is None:
        means = "Only scripts that compile with Inductor on CPU need one; engine aot does not."
        return Finding("C compiler", "none", means, good=False)
    return Finding("C compiler", found, "Scripts that compile with Inductor can run.")


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
