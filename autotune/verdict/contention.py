"""Contention: measurements that say what a setting does at least, and not at most.

Other programs kept the machine busy then (``Measurement.contended``). Or the setting's kernels were not searched, as
its launch does it, while those of the other setting were, or cannot be.
"""

from __future__ import annotations

from ..records.measurement import Measurement

# What one equal competitor takes is a half of a processor; of what others do to caches, waiting tells nothing.
_AT_LEAST = 2.0
# A share of the time is not known well enough to tell more.
_AT_MOST = 20.0

# What searching for kernels brings at most, as a rule. A judgement.
_BY_KERNELS = 1.2


def times_as_fast_alone(measurement: Measurement) -> float:
    """Return how many times as fast a setting may be, at most, on a machine of its own."""
    if not measurement.contended:
        return 1.0
    return max(_AT_LEAST, 1 / max(1 / _AT_MOST, 1 - measurement.waited_share))


def lacks_kernels(measurement: Measurement, beside: Measurement) -> bool:
    """Return whether a search for kernels may make a setting faster beside one that had it, or can have none."""
    return beside.kernels_searched and not measurement.kernels_searched


def may_be_faster(measurement: Measurement, beside: Measurement) -> bool:
    """Return whether a setting may be faster, beside another one, than it was measured."""
    return measurement.contended or lacks_kernels(measurement, beside)


def most_per_s(measurement: Measurement, beside: Measurement) -> float:
    """Return the most samples/s that a setting may have beside another, on its own machine, with kernels searched."""
    by_kernels = _BY_KERNELS if lacks_kernels(measurement, beside) else 1.0
    return measurement.samples_per_s * times_as_fast_alone(measurement) * by_kernels
