"""How long steps take on a GPU."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["DeviceClock"]


class DeviceClock:
    """Marks of time at step boundaries, without stopping the device at each of them.

    A mark is an event in the device's current stream; ``step_times_s`` waits for the last one. ``device`` is a CUDA
    index, None the current device.
    """

    def __init__(self, device: int | None = None) -> None:
        self._marks: list[Any] = []
        self._device = device

    def __len__(self) -> int:
        return max(0, len(self._marks) - 1)

    def mark(self) -> None:
        """End a step and begin the next."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        self._marks.append(event)

    def step_times_s(self) -> list[float]:
        """Seconds between the marks."""
        pairs = list(zip(self._marks, self._marks[1:], strict=False))
        if pairs:
            self._marks[-1].synchronize()
        return [begin.elapsed_time(end) / 1e3 for begin, end in pairs]
