"""Contention: the reading of measurements that say what a setting does at least, and not at most.

Other programs kept the machine busy then (``Measurement.contended``). Or the setting's kernels were not searched, which
its launch does, while those of the other setting were, or cannot be. Heat may slow down a round of one setting and not
that of another, and no figure tells by how much.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..records.measurement import Measurement

# What one equal competitor takes is a half of a processor; of what others do to caches, waiting tells nothing.
_AT_LEAST = 2.0
# A share of the time is not known well enough to tell more.
_AT_MOST = 20.0

# What searching for kernels brings at most, as a rule. A judgement.
_BY_KERNELS = 1.2

# Other programs are told of if they were there in at least this share of measurements.
_WORTH_TELLING = 0.1


def times_as_fast_alone(measurement: Measurement) -> float:
    """Return how many times as fast a setting may be, at most, on a machine of its own."""
    if not measurement.contended:
        return 1.0
    return max(_AT_LEAST, 1 / max(1 / _AT_MOST, 1 - measurement.waited_share))


def lacks_kernels(measurement: Measurement, beside: Measurement) -> bool:
    """Return whether a search for kernels may make a setting faster beside another one.

    That is where this setting has not had such a search, and the other has had one, or can have none.
    """
    return beside.kernels_searched and not measurement.kernels_searched


def may_be_faster(measurement: Measurement, beside: Measurement) -> bool:
    """Return whether a setting may be faster, beside another one, than it was measured."""
    return measurement.contended or lacks_kernels(measurement, beside)


def most_per_s(measurement: Measurement, beside: Measurement) -> float:
    """The most samples/s that a setting may have beside another: on a machine of its own, its kernels searched too."""
    by_kernels = _BY_KERNELS if lacks_kernels(measurement, beside) else 1.0
    return measurement.samples_per_s * times_as_fast_alone(measurement) * by_kernels


def was_busy(measured: Iterable[Measurement]) -> tuple[int, int] | None:
    """Return how many measurements other programs contended, of how many; None if too few did to be told."""
    contended = [one.contended for one in measured]
    count = sum(contended)
    return (count, len(contended)) if count and count >= _WORTH_TELLING * len(contended) else None


def was_throttled(measured: Iterable[Measurement]) -> tuple[int, int] | None:
    """Return how many measurements were throttled, and how many there are; None if none was.

    Throttled means that heat or the power supply held the GPU down meanwhile.
    """
    throttled = [one.conditions is not None and one.conditions.throttled_share > 0 for one in measured]
    return (sum(throttled), len(throttled)) if any(throttled) else None
