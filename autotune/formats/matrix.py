"""The memory matrix in a log: one line for each phase of a step.

::

    rank-0 step 1 memory (MiB) | phase: pre_forward | allocated: 5331 | max allocated: 9039 | ... | buffer: 8

``str`` of a ``PhaseMemory`` writes this. Release 1.16 wrote ``[0/8] step 1`` for rank 0 of 8, and no figures of the
model's parameters. Source: onnxruntime/training/ortmodule/_runtime_inspector.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import get_args

from ..records.matrix import MemoryPhase, PhaseMemory
from .lines import Line

_ROW = re.compile(r"(?:rank-(\d+)|(\d+)/\d+\]) step (\d+) memory \((.*?)\)\s*\|(.*)")
_MIB = 2**20


def read_matrix(lines: Iterable[Line]) -> Iterator[PhaseMemory]:
    """Read every line of a memory matrix; FormatError names one that is malformed.

    Sizes are exact to a MiB, as they were written; ``peak`` is not in the log.
    """
    for line in lines:
        if row := _ROW.search(line.text):
            if row[4] != "MiB":
                raise line.malformed(f"expected sizes in MiB, got {row[4]!r}")
            yield _phase(line, int(row[1] or row[2]), int(row[3]), row[5])


def _phase(line: Line, rank: int, step: int, cells: str) -> PhaseMemory:
    named = {name.strip(): value.strip() for name, _, value in (cell.partition(":") for cell in cells.split("|"))}

    def size(name: str) -> int | None:
        text = named.get(name, "n/a")
        if text == "n/a":
            return None
        if not text.isdecimal():
            raise line.malformed(f"{name!r} is no whole number: {text!r}")
        return int(text) * _MIB

    def required(name: str) -> int:
        found = size(name)
        if found is None:
            raise line.malformed(f"{name!r} is missing")
        return found

    phase = named.get("phase", "")
    for known in get_args(MemoryPhase):
        if phase == known:
            return PhaseMemory(
                phase=known,
                step=step,
                allocated=required("allocated"),
                max_allocated=required("max allocated"),
                peak=None,
                parameters=size("param"),
                gradients=size("grad"),
                buffers=size("buffer"),
                cached=size("cached"),
                max_cached=size("max cached"),
                inactive=size("inactive"),
                max_inactive=size("max inactive"),
                rank=rank,
            )
    raise line.malformed(f"expected a phase, one of {', '.join(get_args(MemoryPhase))}, got {phase!r}")
