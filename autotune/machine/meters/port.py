"""Interface of a memory meter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ...records.environment import DeviceReading


@dataclass(frozen=True)
class Neighbours:
    """The ``seconds`` for which other programs have used a device, in a span that did not begin before ``since_s``.

    ``since_s`` is by ``time.monotonic``; 0.0 where the start of the span is not known.
    """

    seconds: float = 0.0
    since_s: float = 0.0


class MemoryMeter(Protocol):
    """Samples the memory that one run takes in one place, what others hold there left out.

    ``start`` is called before the run's first process exists, ``close`` after its last one is gone.
    """

    contended: bool = False
    """Tell whether others held another amount of the place's memory at the latest sample than at the start."""
    neighbours: Neighbours = Neighbours()
    """Tell how long other programs used the place's processors, as far as the latest sample made it known."""
    problem: str = ""
    """Why the latest sample has no figure, or an unreliable one; empty if nothing is wrong."""
    reading: DeviceReading | None = None
    """Tell what the device was like at the latest sample; None where it was not looked at then, or is no GPU."""

    def start(self) -> None:
        """Note what others hold. RunError if the place cannot be read at all."""

    def sample(self, pids: Sequence[int]) -> int | None:
        """Return the bytes that the run, whose processes are ``pids``, holds now; None if nobody can tell now."""

    def close(self) -> None:
        """Give back what ``start`` took."""
