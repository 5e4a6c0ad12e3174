"""Description of the environment in which a model runs, as an ``Environment`` record."""

from __future__ import annotations

import os
import platform
import socket

import onnxruntime

from ..metering.host import driver_version, processor_name
from ..records.environment import Environment
from .gpu import Gpu


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
