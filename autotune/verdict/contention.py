"""What is made of measurements while other programs kept the machine busy (``Measurement.contended``)."""

from __future__ import annotations

from collections.abc import Iterable

from ..records import Measurement

__all__ = ["ALONE", "alone_per_s", "was_busy"]

ALONE = 2.0
"""How many times as fast a contended measurement may be taken to be on a machine of its own.

Somebody else's share of a processor may be anything; a half is what one equal competitor takes. With less than that
the finals would be asked about settings that were far behind.
"""

# Other programs are told of if they were there in at least this share of measurements.
_WORTH_TELLING = 0.1


def alone_per_s(measurement: Measurement) -> float:
    """The most samples/s that a setting may have on a machine of its own."""
    return measurement.samples_per_s * (ALONE if measurement.contended else 1.0)


def was_busy(measured: Iterable[Measurement]) -> tuple[int, int] | None:
    """How many measurements other programs contended, of how many; None if too few did to be told."""
    contended = [one.contended for one in measured]
    count = sum(contended)
    return (count, len(contended)) if count and count >= _WORTH_TELLING * len(contended) else None
