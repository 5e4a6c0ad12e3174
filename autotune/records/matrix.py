"""The memory matrix: what the memory holds at the phases of a training step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

MemoryPhase = Literal["pre_forward", "post_forward", "pre_backward", "post_backward"]


@dataclass(frozen=True)
class PhaseMemory:
    """One row: the memory at a moment of a training step, in bytes; of several calls in a step the highest peak's.

    On CUDA ``allocated``, ``cached`` and ``inactive`` are those of torch's allocator on the model's device: bytes in
    tensors, bytes taken from the device, and bytes of split blocks that are neither in use nor can be given back. On
    CPU ``allocated`` is the resident set of the process, after the heap has given back what it can.
    ``max_...`` are the highest values since the first row. Parameters, gradients and buffers are the model's, each
    storage once; None where a log does not tell them.
    """

    phase: MemoryPhase
    step: int
    allocated: int
    max_allocated: int
    peak: int | None  # of `allocated` since the row before; None where the system cannot reset it
    parameters: int | None
    gradients: int | None
    buffers: int | None
    cached: int | None = None
    max_cached: int | None = None
    inactive: int | None = None
    max_inactive: int | None = None
    rank: int = 0

    def __str__(self) -> str:
        """Write the row as a line of ONNX Runtime's ORTModule (``_runtime_inspector.py``, 1.19), in whole MiB."""
        figures: tuple[tuple[str, int | None], ...] = (
            ("allocated", self.allocated),
            ("max allocated", self.max_allocated),
            ("cached", self.cached),
            ("max cached", self.max_cached),
            ("inactive", self.inactive),
            ("max inactive", self.max_inactive),
            ("param", self.parameters),
            ("grad", self.gradients),
            ("buffer", self.buffers),
        )
        written = " | ".join(f"{name}: {'n/a' if size is None else f'{size / 2**20:.0f}'}" for name, size in figures)
        return f"rank-{self.rank} step {self.step} memory (MiB) | phase: {self.phase} | {written}"


def highest(rows: Iterable[PhaseMemory]) -> PhaseMemory | None:
    """Return the row before which the memory was highest; None without peaks."""
    return max((row for row in rows if row.peak is not None), key=lambda row: row.peak or 0, default=None)
