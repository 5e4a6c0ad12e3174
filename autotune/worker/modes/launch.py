"""Running a script to its own end with a bundle applied."""

from __future__ import annotations

import multiprocessing.util
import sys
from dataclasses import replace

from ...metering.trial_meter import Window
from ...records import Peaks
from ..applied import AppliedConfiguration
from ..hooks.hooked_script import HookedScript
from ..measuring.peaks import MemoryWatch
from ..metrics import MetricsFile, StepMetrics
from ..process import TrainingProcess
from .base import Mode

__all__ = ["LaunchMode"]

_REFUSED = 3


class LaunchMode(Mode):
    """Judges the first step only: a script is not trained with anything but what the bundle says.

    Where metrics were asked for, the process of rank 0 counts its steps for them.
    """

    def __init__(self, process: TrainingProcess, script: HookedScript, applied: AppliedConfiguration) -> None:
        super().__init__(process, script, applied)
        self._metrics: StepMetrics | None = None
        self._memory: MemoryWatch | None = None
        self._highest_held_bytes = 0

    def process_began(self) -> None:
        """Begin the metrics."""
        process, self._metrics = self._process, None  # a process that was forked from one that counts has its own rank
        if process.request.metrics is None or process.rank != 0:
            return
        self._memory = MemoryWatch(process.device)
        self._memory.follow()
        metrics = StepMetrics(
            MetricsFile(process.request.metrics), num_processes=process.num_processes, peaks=self._peaks
        )
        # Runs at the end of processes that multiprocessing has forked too, and not in those forked from this one.
        multiprocessing.util.Finalize(None, metrics.end, exitpriority=0)
        self._metrics = metrics

    def step(self, window: Window) -> None:
        """Refuse to go on, after the first step, if the bundle could not be applied."""
        if self._process.steps == 1:
            self._judge(window)
        if self._metrics is not None:
            self._metrics.step(window.samples)

    def _judge(self, window: Window) -> None:
        failure = self._applied.problem() or self._applied.batch_problem(window.batch_size, window.micro_batches)
        if failure is not None:
            sys.stderr.write(f"autotune: the bundle cannot be applied to this script: {failure.cause}\n")
            sys.stderr.write("  next: `autotune run` on this script writes a bundle for it\n")
            sys.stderr.flush()
            self._process.refuse(_REFUSED)

    def _peaks(self) -> Peaks:
        assert self._memory is not None
        process, peaks = self._process, self._memory.peaks()
        held = process.held_bytes()
        if held is None:
            return peaks
        self._highest_held_bytes = max(self._highest_held_bytes, held)
        return replace(peaks, device=self._highest_held_bytes)
