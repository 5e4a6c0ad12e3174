"""A trial of a model: a session is made and run until its times are known."""

from __future__ import annotations

import math
import time
from pathlib import Path

from ..metering.resident import ResidentMemory
from ..metering.results import ProgressFile
from ..metering.trial_meter import TrialMeter, Window
from ..records import Measurement, Measuring, MemorySplit, Session
from .feeds import Feed
from .model import Model
from .session import Runner

__all__ = ["Trial"]

# Sixty steps, which is as many as a trial takes, are then the half of a second that it takes at the least.
_LEAST_STEP_S = 0.01
_FIRST_ROUNDS = 3


class Trial:
    """One configuration in this process.

    The memory's peak is that of everything from before the session is made, so what loading and preparing the weights
    takes is in it: whoever serves the model needs that much.

    Args:
        path: the model's file.
        model: what it says.
        settings: how its session is made.
        progress: where steps are told.
    """

    def __init__(self, path: Path, model: Model, settings: Session, progress: ProgressFile) -> None:
        self._path, self._model, self._settings, self._progress = path, model, settings, progress
        self._memory = ResidentMemory()
        self.steps = 0

    def begin(self) -> Runner:
        """Make the session."""
        self._memory.begin()
        self._progress.update(phase="start")
        return Runner(self._path, self._settings)

    def measure(self, runner: Runner, feeds: tuple[Feed, ...], batch_size: int, measuring: Measuring) -> Measurement:
        """Run it step by step until it was measured enough."""
        meter = TrialMeter(measuring, memory=_AsItIs(self._memory))
        meter.begin()
        self._progress.update(phase="forward")
        rounds = self._rounds(runner, feeds)
        calls = rounds * len(feeds)
        window = Window(samples=batch_size * calls, calls=1, batch_size=None)
        while True:
            self._progress.update(phase="forward")
            for _ in range(rounds):
                for feed in feeds:
                    runner.run(feed)
            self.steps += 1
            self._progress.update(phase="optimizer", steps=self.steps)
            if meter.step(window, compiled=False):
                break
        split = MemorySplit(parameters=self._model.weight_bytes, gradients=0, optimizer_state=0, buffers=0)
        return meter.measurement(split=split, notes=[])

    def _rounds(self, runner: Runner, feeds: tuple[Feed, ...]) -> int:
        """How often a step runs each feed: so often that it takes a while, or the clock would be what is measured."""
        taken_s = []
        for _ in range(_FIRST_ROUNDS):
            began_s = time.perf_counter()
            for feed in feeds:
                runner.run(feed)
            taken_s.append(time.perf_counter() - began_s)
        return max(1, math.ceil(_LEAST_STEP_S / max(min(taken_s), 1e-6)))


class _AsItIs(ResidentMemory):
    """The peak since the session was begun, which the meter does not reset."""

    def __init__(self, begun: ResidentMemory) -> None:
        super().__init__()
        self.notes = begun.notes

    def begin(self) -> None:
        """Leave it."""
