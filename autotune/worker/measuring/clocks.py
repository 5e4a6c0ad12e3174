"""Timing of steps on a GPU."""

from __future__ import annotations

from typing import Any

import torch

from ...metering.clocks import WallClock


class DeviceClock(WallClock):
    """Marks of time at step boundaries, without ever waiting for the device.

    A mark is an event in the device's current stream. ``step_times_s`` looks at those that the device has come to;
    who wants all of them synchronizes first. ``device`` is a CUDA index, None the current device.
    """

    def __init__(self, device: int | None = None) -> None:
        self._marks: list[Any] = []
        self._times_s: list[float] = []
        self._device = device

    def mark(self) -> None:
        """End a step and begin the next."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        self._marks.append(event)

    def step_times_s(self) -> list[float]:
        """Seconds between the marks, of the steps that the device has done."""
        # In the order of their stream: behind one that the device has not come to there is none that it has.
        for begin, end in zip(self._marks[len(self._times_s) :], self._marks[len(self._times_s) + 1 :], strict=False):
            if not (begin.query() and end.query()):
                break
            self._times_s.append(begin.elapsed_time(end) / 1e3)
        return list(self._times_s)
