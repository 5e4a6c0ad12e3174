"""Progress of a training process, in a small file that it maps and overwrites, and the controller reads at any time.

A mapped file (``progress-<pid>`` in the run's directory) survives any way a process can end. So the controller can say
"killed by SIGSEGV in backward of step 12" without a word from the process.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from .outcome import Phase

_FORM = struct.Struct("<4sHHIIIIIdd40s")
_MAGIC = b"ATP3"
_PHASES: tuple[Phase, ...] = ("start", "forward", "backward", "optimizer")


@dataclass
class Progress:
    """The progress of a process; rank and number of processes are torch.distributed's, 0 and 1 without it.

    A process changes its own several times a step, and copies would take a measurable part of a short one.
    """

    phase: Phase
    index: int  # of the configuration under way
    steps: int  # optimizer steps since the process began
    rank: int
    num_processes: int
    process: int
    updated_s: float  # `time.monotonic()` at the last completed step
    device: str = ""  # the UUID of the CUDA device as torch writes it, without NVML's prefix; empty on the CPU
    measuring_since_s: float = 0.0  # the begin of the window that the trial is measured by, 0.0 outside of it
    marks: int = 0  # how often the process has said where it is; ranks that train together say so alike

    SIZE = _FORM.size

    @property
    def trains(self) -> bool:
        """Return whether the process has come to its first training call."""
        return self.phase != "start" or self.steps > 0

    @property
    def place(self) -> tuple[int, int, int, int]:
        """Return how far the process has come: configuration, steps, phase of the step under way, marks; comparable."""
        return self.index, self.steps, _PHASES.index(self.phase), self.marks

    def to_bytes(self) -> bytes:
        """Return the file's contents, ``SIZE`` bytes."""
        phase = _PHASES.index(self.phase)
        numbers = (self.index, self.steps, self.rank, self.num_processes, self.process, self.marks % 2**32)
        times_s = (self.updated_s, self.measuring_since_s)
        return _FORM.pack(_MAGIC, phase, *numbers, *times_s, self.device.encode())

    @classmethod
    def from_bytes(cls, data: bytes) -> Progress | None:
        """Read the file's contents; None while the process has not written it yet."""
        if len(data) < _FORM.size:
            return None
        magic, phase, index, steps, rank, num_processes, process, marks, *rest = _FORM.unpack(data[: _FORM.size])
        updated_s, since_s, device = rest
        if magic != _MAGIC or phase >= len(_PHASES):
            return None
        name = device.rstrip(b"\0").decode(errors="replace")
        return cls(_PHASES[phase], index, steps, rank, num_processes, process, updated_s, name, since_s, marks)
