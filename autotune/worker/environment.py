"""Environment of this process, as an ``Environment`` record."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys

import torch

from ..metering.host import driver_version, processor_name
from ..records.choices import choice_variables, heap_libraries
from ..records.environment import Environment
from .device import uses_cuda

_PRELOAD_S = 10.0
# Variables that change speed or memory; a bundle repeats those that were set.
_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "CUBLAS_WORKSPACE_CONFIG",
    "MALLOC_TRIM_THRESHOLD_",
    "MKL_NUM_THREADS",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
    *sorted(choice_variables()),
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
)


def describe_environment(device: int | None = None, *, trains_on_cpu: bool = False) -> Environment:
    """Describe the device that the process trains on: CUDA where it was touched, unless it ``trains_on_cpu``."""
    # An optimizer of torch 2.14 touches CUDA.
    cuda = uses_cuda() and not trains_on_cpu
    if cuda:
        properties = torch.cuda.get_device_properties(device)
        name, memory, count = properties.name, properties.total_memory, torch.cuda.device_count()
    else:
        name, memory, count = processor_name(), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), 1
    return Environment(
        device_kind="cuda" if cuda else "cpu",
        device_name=name,
        device_memory_bytes=memory,
        num_devices=count,
        num_threads=torch.get_num_threads(),
        hostname=socket.gethostname(),
        platform=platform.platform(),
        python=platform.python_version(),
        torch=str(torch.__version__),
        cuda=torch.version.cuda if cuda else None,
        driver=driver_version() if cuda else None,
        variables={name: os.environ[name] for name in _VARIABLES if name in os.environ},
    )


def found_heap_libraries() -> tuple[str, ...]:
    """Return the libraries of ``records/choices`` that a Python process could preload here."""
    return tuple(filter(_can_preload, heap_libraries()))


def _can_preload(library: str) -> bool:
    # The loader starts a program without what it cannot find.
    look = f"import sys; sys.exit('/{library}' not in open('/proc/self/maps').read())"
    command, variables = (sys.executable, "-I", "-S", "-c", look), os.environ | {"LD_PRELOAD": library}
    try:
        return not subprocess.run(
            command, env=variables, capture_output=True, timeout=_PRELOAD_S, check=False
        ).returncode
    except (OSError, subprocess.TimeoutExpired):
        return False
