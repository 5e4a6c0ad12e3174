"""What is made of measurements while other programs kept the machine busy (``Measurement.contended``)."""

from __future__ import annotations

from collections.abc import Iterable

from ..records import Measurement

__all__ = ["alone_per_s", "times_as_fast_alone", "was_busy"]

# What one equal competitor takes is a half of a processor; of what others do to caches, waiting tells nothing.
_AT_LEAST = 2.0
# A share of the time is not known well enough to tell more.
_AT_MOST = 20.0

# Other programs are told of if they were there in at least this share of measurements.
_WORTH_TELLING = 0.1


def times_as_fast_alone(measurement: Measurement) -> float:
    """How many times as fast a setting may be, at most, on a machine of its own."""
    if not measurement.contended:
        return 1.0
    return max(_AT_LEAST, 1 / max(1 / _AT_MOST, 1 - measurement.waited_share))


def alone_per_s(measurement: Measurement) -> float:
    """The most samples/s that a setting may have on a machine of its own."""
    return measurement.samples_per_s * times_as_fast_alone(measurement)


def was_busy(measured: Iterable[Measurement]) -> tuple[int, int] | None:
    """How many measurements other programs contended, of how many; None if too few did to be told."""
    contended = [one.contended for one in measured]
    count = sum(contended)
    return (count, len(contended)) if count and count >= _WORTH_TELLING * len(contended) else None
