"""This process and its machine: the resident set, its highest point, the processor, and dying with the parent."""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import os
import platform
import re
import resource
import signal
from pathlib import Path

from ..records.measurement import Peaks


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


class ResidentMemory:
    """Peaks of one trial without a device: ``begin`` resets them, ``peaks`` reads them."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def begin(self) -> None:
        """Give back what is not needed, and reset the high-water mark."""
        self._release()
        refusal = reset_resident_peak()
        if refusal is not None:
            self.notes.append(f"the resident peak includes start-up: it could not be reset ({refusal})")

    def _release(self) -> None:
        gc.collect()
        trim_heap()

    def measuring_begins(self) -> None:
        """The steps from now on are measured: what is counted of them is counted from here."""

    def measuring_began_earlier(self) -> None:
        """No others come, so those since the first ``measuring_begins`` are the measured ones."""

    def allocator_retries(self) -> int:
        """None: there is no allocator that frees its cache and tries again."""
        return 0

    def peaks(self) -> Peaks:
        """The peak since ``begin``."""
        return Peaks(resident=resident_peak())


def reset_resident_peak() -> str | None:
    """Set the resident set's high-water mark to its present size; gives the reason where the system refuses."""
    try:
        # proc(5): writing 5 resets the peak resident set size to the current one.
        Path("/proc/self/clear_refs").write_text("5")
    except OSError as error:
        return error.strerror or str(error)
    return None


def resident_peak() -> int:
    """High-water mark of the resident set in bytes: ``VmHWM`` of ``/proc/self/status``, else ``ru_maxrss``."""
    return _status_bytes("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def resident_bytes() -> int:
    """The resident set in bytes: ``VmRSS`` of ``/proc/self/status``, else its high-water mark."""
    return _status_bytes("VmRSS") or resident_peak()


def _status_bytes(field: str) -> int | None:
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def trim_heap() -> None:
    """Give back to the system what the C library's allocator keeps (glibc only)."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        pass
