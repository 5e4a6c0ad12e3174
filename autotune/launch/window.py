"""Conditions of a GPU, and other programs' use of it, in the window of steps by which a trial is measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ..machine.meters.run_meter import Sample
from ..records.conditions import THROTTLING, DeviceConditions, DeviceReading, conditions_of
from ..records.measurement import CONTENDED_SHARE, Measurement
from ..records.progress import Progress
from ..records.units import format_share


class MeasuredWindow:
    """The meter's looks at the GPUs of one trial, as long as its training processes say that it is being measured.

    A window may begin anew: what was seen before then is of steps that do not count. Nor does what others did in a time
    that may have begun before the window.
    """

    def __init__(self) -> None:
        self._since_s = 0.0
        self._readings: list[DeviceReading] = []
        self._neighbours_s = 0.0

    def add(self, sample: Sample, before: Sequence[Progress], after: Sequence[Progress]) -> None:
        """Take in a sample that was taken between two looks at where the processes are."""
        since_s = _since_s(before)
        if not since_s or since_s != _since_s(after):
            return
        if since_s != self._since_s:
            self._since_s = since_s
            self._readings.clear()
            self._neighbours_s = 0.0
        if sample.reading is not None:
            self._readings.append(sample.reading)
        if sample.neighbours.since_s >= since_s:
            self._neighbours_s += sample.neighbours.seconds

    def complete(self, measurement: Measurement) -> Measurement:
        """The worker's measurement with what was seen; a note where the GPU was slowed down, or others used it."""
        conditions = conditions_of(self._readings)
        notes = [] if conditions is None else _throttling(conditions)
        lost = min(1.0, self._neighbours_s / sum(measurement.step_times_s))
        if lost > CONTENDED_SHARE:
            notes.append(f"other programs used the GPU for {format_share(lost)} of the measured time")
            waited = min(1.0, measurement.waited_share + lost)
            measurement = dataclasses.replace(measurement, contended=True, waited_share=waited)
        return dataclasses.replace(measurement, conditions=conditions, notes=(*measurement.notes, *notes))


def _since_s(training: Sequence[Progress]) -> float:
    """Return when the last of the processes began to measure; 0.0 while one does not."""
    began_s = [progress.measuring_since_s for progress in training]
    return max(began_s) if began_s and all(began_s) else 0.0


def _throttling(conditions: DeviceConditions) -> list[str]:
    if not conditions.throttled_share:
        return []
    why = " and ".join(limit.replace("_", " ") for limit in conditions.limits if limit in THROTTLING)
    share = format_share(conditions.throttled_share)
    return [f"the GPU slowed itself down ({why}) in {share} of the looks at it: cooler, it may be faster"]
