"""Identity of the process that runs a trial, and a check of whether it still runs."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True)
class Owner:
    """A process, told apart from every other one, also from a later one that got the same number.

    ``machine`` is the kernel's boot id and the pid namespace: what a process number is unique in. Containers on one
    host differ in it, and so does a host before and after a reboot; it is empty where the kernel does not say.
    ``process_start`` is in clock ticks since boot. ``hostname`` is for people.
    """

    machine: str
    hostname: str
    process: int
    process_start: int

    @classmethod
    def current(cls) -> Owner:
        """Describe this process."""
        process = os.getpid()
        return cls(_machine(), socket.gethostname(), process, _start_of(process) or 0)

    def is_local_to(self, other: Owner) -> bool:
        """Return whether the two see the same process numbers, so that one can look whether the other lives."""
        return bool(self.machine) and self.machine == other.machine

    def is_running(self) -> bool:
        """Return whether this process runs, for an owner that is local to the caller."""
        return _start_of(self.process) == self.process_start


def _machine() -> str:
    try:
        boot_id = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = (_PROC / "self/ns/pid").readlink()
    except OSError:
        return ""
    return f"{boot_id} {namespace}"


def _start_of(process: int) -> int | None:
    """The start time in clock ticks since boot; None if there is no such process, or only its exit status is left.

    A killed process whose parent does not wait for it (common in containers without an init) stays in /proc as a
    zombie; it runs nothing any more. Source: proc_pid_stat(5), fields 3 and 22; the command name before them may hold
    spaces and parentheses.
    """
    try:
        fields = (_PROC / str(process) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])
