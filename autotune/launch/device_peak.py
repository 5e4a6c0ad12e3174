"""The peak of a trial on GPUs: what the meter saw from outside, held against what the training process knows."""

from __future__ import annotations

import dataclasses

from ..machine.meters.run_meter import Sample
from ..records.measurement import Measurement

_SHORT = "the meter saw less on the GPU than torch reserved, whose peaks were short or not all at once"
_FROM_CUDA = "what the run holds outside torch's allocator is CUDA's figure, in which other programs may be"
_UNKNOWN = "what the run holds outside torch's allocator is not known, and not in the peak"


class DevicePeak:
    """The peak of one trial on its GPUs, as the meter saw it.

    A meter may have no figure, for a time or at all, and it may have a wrong one. torch's allocator knows for certain
    how much it has reserved, so a figure below that is not the whole. Such a figure is left out, and CUDA's figure from
    the training process stands for it. Each irregularity becomes a note of the measurement.
    """

    def __init__(self) -> None:
        self._seen_bytes: int | None = None
        self._contended = False
        self._unread: list[str] = []
        self._doubts: list[str] = []

    def add(self, sample: Sample) -> None:
        """Take in a sample of the trial."""
        if sample.used_bytes is not None:
            self._seen_bytes = max(sample.used_bytes, self._seen_bytes or 0)
        self._contended = self._contended or sample.contended
        for kept, problem in ((self._unread, sample.unread), (self._doubts, sample.doubt)):
            if problem and problem not in kept:
                kept.append(problem)

    def complete(self, measurement: Measurement) -> Measurement:
        """The worker's measurement with the device's peak; ``peaks.reserved`` must be known.

        ``peaks.non_torch`` comes in as CUDA's figure of what the process holds outside torch's allocator, None if it
        could be another rank's.
        """
        reserved, from_cuda = measurement.peaks.reserved, measurement.peaks.non_torch
        assert reserved is not None
        seen, notes = self._seen_bytes, self._doubts
        unread = "; ".join(self._unread)
        if seen is None or seen < reserved:
            notes = [f"{_UNKNOWN if from_cuda is None else _FROM_CUDA}: {self._why_not(unread)}"]
            seen, outside = None, from_cuda
        elif unread:
            notes = [*notes, f"the peak may be higher: for a part of the trial the meter had no figure ({unread})"]
            outside = max(seen - reserved, from_cuda or 0)
        else:
            outside = seen - reserved
        return dataclasses.replace(
            measurement,
            peaks=dataclasses.replace(measurement.peaks, device=seen, non_torch=outside),
            contended=measurement.contended or self._contended,
            notes=(*measurement.notes, *notes),
        )

    def _why_not(self, unread: str) -> str:
        """Return why the meter's figure is left out."""
        if self._seen_bytes is not None:
            return _SHORT
        if unread:
            return f"the meter had no figure of the GPU ({unread}); `autotune doctor` shows what is found"
        return "the trial was over before the meter could look"
