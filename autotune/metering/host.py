"""This process and its machine: the resident set and its peak, the processor, the end with the controller."""

from __future__ import annotations

import contextlib
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
    """Write all stacks to file 2, which is ``stderr.log``, at a crash or at the controller's SIGUSR1."""
    faulthandler.enable(file=2, all_threads=True)
    faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)


def processor_name() -> str:
    """Return the name of the processor's model."""
    return _field("/proc/cpuinfo", "model name") or platform.processor() or platform.machine()


def driver_version(path: Path = Path("/proc/driver/nvidia/version")) -> str | None:
    """Return the version of the GPU's driver by the kernel's module; None where it is not known."""
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
        """Count from here: the steps from now on are measured."""

    def measuring_began_earlier(self) -> None:
        """Count from the first ``measuring_begins``, as no other steps come."""

    def allocator_retries(self) -> int:
        """Return 0: no allocator frees its cache and tries again."""
        return 0

    def peaks(self) -> Peaks:
        """Return the peak since ``begin``."""
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
    """Return the peak of the resident set in bytes: ``VmHWM`` of ``/proc/self/status``, else ``ru_maxrss``."""
    return _status_bytes("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def resident_bytes() -> int:
    """Return the resident set in bytes: ``VmRSS`` of ``/proc/self/status``, else its peak."""
    return _status_bytes("VmRSS") or resident_peak()


def _status_bytes(name: str) -> int | None:
    value = _field("/proc/self/status", name)
    return None if value is None else int(value.split()[0]) * 1024


def _field(path: str, name: str) -> str | None:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return None
    fields = (line.partition(":") for line in lines)
    return next((value.strip() for key, _, value in fields if key.strip() == name), None)


def trim_heap() -> None:
    """Give back to the system what the allocator of the heap keeps (glibc's and tcmalloc only)."""
    for give_back in ("malloc_trim", "MallocExtension_ReleaseFreeMemory"):
        with contextlib.suppress(OSError, AttributeError):
            getattr(ctypes.CDLL(None), give_back)(0)
