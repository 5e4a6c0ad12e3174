"""A trial of a model: a session is made and run until its times are known."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from ..metering.host import ResidentMemory, reset_resident_peak, resident_bytes, resident_peak
from ..metering.results import ProgressFile
from ..metering.trial_meter import TrialMeter, Window
from ..records.inference import InferenceMoment, InferencePhase
from ..records.measurement import Measurement, MemorySplit, Peaks
from ..records.measuring import Measuring
from ..records.session import Session
from ..records.units import format_bytes
from .feeds import Feed
from .gpu import Gpu
from .model import Model
from .session import Runner


class PhasedMemory(ResidentMemory):
    """Peaks of everything since the first ``begin``; ``end`` ends a phase.

    ``gpu`` is what the model runs on; None for the CPU. ``free_before`` are the bytes that the GPU had free before this
    process began; None where nobody told.
    """

    def __init__(self, gpu: Gpu | None = None, free_before: int | None = None) -> None:
        super().__init__()
        self.gpu = gpu
        self._free_before = free_before
        self._highest = 0
        self.moments: list[InferenceMoment] = []

    def begin(self) -> None:
        """Begin, once: what measures the steps does it again."""
        if not self.moments:
            super().begin()
            self.end("before")

    def held(self) -> int:
        """Return the bytes that are held now: of the GPU where the model runs on one, else of the resident set."""
        if self.gpu is None:
            return resident_bytes()
        free = self.gpu.free_bytes()
        before = self.gpu.memory_bytes if self._free_before is None else self._free_before
        return 0 if free is None else max(0, before - free)

    def end(self, phase: InferencePhase) -> None:
        """Note what is held now, and what was the most since the phase before; of a GPU both are what is held."""
        held = self.held()
        # The kernel counts the peak a little later than what is held.
        peak = held if self.gpu is not None else max(held, resident_peak())
        self._highest = max(self._highest, peak)
        self.moments.append(InferenceMoment(phase, held, peak))
        # Where the system refuses, peaks are those since the start; the first refusal is among the notes.
        reset_resident_peak()

    def peaks(self) -> Peaks:
        """Return the highest of all phases.

        Nothing of a GPU is in torch's allocator. So all is outside of it, where the controller, which looks between
        phases as well, puts its own figure.
        """
        if self.gpu is not None:
            return Peaks(reserved=0, non_torch=max(self._highest, self.held()), resident=resident_peak())
        return Peaks(resident=max(self._highest, resident_peak()))


# Sixty steps, which is as many as a trial takes, are then the half of a second that it takes at the least.
_LEAST_STEP_S = 0.01
_FIRST_PASSES = 3
# So many runs of other shapes, the same ones in every trial, so that none has grown further by being faster; fewer only
# where they take longer than this and than a measurement. The memory is read between so many.
_OTHERS = 200
_LEAST_OTHERS_S = 2.0
_OTHERS_BETWEEN = 10
# Memory that has grown by less than this share in the second half of them is taken to stay.
_STILL_GROWING = 0.02


class Trial:
    """A trial of one configuration in this process, from its session on.

    The memory's peak includes what loading and preparing the weights takes: whoever serves the model needs that much.
    """

    def __init__(
        self, path: Path, model: Model, settings: Session, progress: ProgressFile, memory: PhasedMemory
    ) -> None:
        self._model, self._progress, self.memory = model, progress, memory
        self._on_gpu = memory.gpu is not None
        memory.begin()
        progress.update(phase="start")
        self.runner = Runner(path, settings, on_gpu=self._on_gpu)
        self.memory.end("load")

    def measure(
        self, feeds: tuple[Feed, ...], others: Iterator[Feed], batch_size: int, measuring: Measuring
    ) -> Measurement:
        """Run other shapes as they may come, then the same ones step by step until it was measured enough.

        Speed is that of the steps. Memory is that of all of it: an arena grows with shapes that it has not seen, and
        most where small ones come before large ones. So what comes in an order of our own comes later.
        """
        note = self._run_others(others, measuring)
        self._run_each(feeds)
        self.memory.end("first run")
        # A run that has returned has waited for the GPU, so there is nothing left to wait for.
        meter = TrialMeter(measuring, memory=self.memory, synchronize=(lambda: None) if self._on_gpu else None)
        meter.begin()
        self._progress.update(phase="forward")
        passes = self._passes(feeds)
        window = Window(samples=batch_size * passes * len(feeds), calls=1, batch_size=None)
        is_done = False
        while not is_done:
            self._progress.update(phase="forward")
            for _ in range(passes):
                self._run_each(feeds)
            self._progress.update(phase="optimizer", steps=meter.steps + 1)
            is_done = meter.step(window, compiled=False)
            self._progress.update(measuring_since_s=meter.measuring_since_s)
        self.memory.end("steady")
        split = MemorySplit(parameters=self._model.weight_bytes, gradients=0, optimizer_state=0, buffers=0)
        return meter.measurement(split=split, notes=[note] if note else [])

    def _run_each(self, feeds: Iterable[Feed]) -> None:
        for feed in feeds:
            self.runner.run(feed)

    def _run_others(self, others: Iterator[Feed], measuring: Measuring) -> str:
        """Run other shapes; says by how much memory still grew at the end, empty where it did not."""
        began_s = time.perf_counter()
        most_s, held = max(measuring.max_measure_s, _LEAST_OTHERS_S), []
        for number, feed in enumerate(islice(others, _OTHERS), start=1):
            self.runner.run(feed)
            if number % _OTHERS_BETWEEN == 0:
                held.append(self.memory.held())
                self._progress.update(phase="forward")
                if time.perf_counter() - began_s >= most_s:
                    break
        if not held:
            return ""
        self.memory.end("other shapes")
        grown = held[-1] - held[len(held) // 2]
        if grown <= _STILL_GROWING * held[-1]:
            return ""
        runs = _OTHERS_BETWEEN * (len(held) - 1 - len(held) // 2)
        return f"memory still grew at the end, by {format_bytes(grown)} in {runs} runs of other shapes"

    def _passes(self, feeds: tuple[Feed, ...]) -> int:
        """Return how often a step runs each feed: a step has to be long enough for the clock."""
        taken_s = []
        for _ in range(_FIRST_PASSES):
            began_s = time.perf_counter()
            self._run_each(feeds)
            taken_s.append(time.perf_counter() - began_s)
            if taken_s[-1] >= _LEAST_STEP_S:
                return 1
        return max(1, math.ceil(_LEAST_STEP_S / max(min(taken_s), 1e-6)))
