"""This process and its machine: to end with whoever started it, and what the machine is called."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import platform
import re
import signal
from pathlib import Path


def die_with_parent() -> None:
    """Have the kernel end this process when the controller is gone (prctl(2), PR_SET_PDEATHSIG = 1)."""
    parent = os.getppid()
    try:
        ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):
        return
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def show_stacks() -> None:
    """At a crash, and where the controller asks before it ends a run that hangs; to file 2, which is ``stderr.log``."""
    faulthandler.enable(file=2, all_threads=True)
    faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)


def processor_name() -> str:
    """The name of the processor's model."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def driver_version(path: Path = Path("/proc/driver/nvidia/version")) -> str | None:
    """The version of the GPU's driver, which the kernel's module tells; None where it tells nobody."""
    try:
        found = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)\s", path.read_text())
    except OSError:
        return None
    return found[1] if found else None
