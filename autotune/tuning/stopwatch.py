"""Times of a study's runs, by stage and by the activity of each run; see ``records/study.py``."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from ..files.changes import Changes
from ..launch.port import Event, Launcher, RunResult
from ..records.outcome import Measured
from ..records.run import Request
from ..records.study import Stage, StageTime, TimeSpent


class Stopwatch:
    """Runs from its making to the verdict; ``timed`` launchers tell it of their runs. Methods are safe for threads."""

    def __init__(self, before: TimeSpent | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._before = before or TimeSpent()
        self.now_s = now
        self._began_s = now()
        self._stages: dict[Stage, StageTime] = {}
        self._lock = threading.Lock()
        self._at_work = 0
        self._idle_since_s = self._began_s
        self._between_s = 0.0

    def timed(self, launcher: Launcher, stage: Stage) -> Launcher:
        """Return the same launcher, whose runs count for a stage."""
        return _Timed(self, launcher, stage)

    def spent(self) -> TimeSpent:
        """Return what was spent up to now."""
        with self._lock:
            now_s = self.now_s()
            idle_s = 0.0 if self._at_work else now_s - self._idle_since_s
            own = TimeSpent(now_s - self._began_s, self._between_s + idle_s, tuple(self._stages.values()))
        return self._before + own

    def run_begins(self) -> float:
        """Note that a run is at work; return the time."""
        with self._lock:
            now_s = self.now_s()
            if not self._at_work:
                self._between_s += now_s - self._idle_since_s
            self._at_work += 1
            return now_s

    def run_ended(self, came_to: StageTime) -> None:
        """Note that one has ended, with what it took."""
        with self._lock:
            self._at_work -= 1
            if not self._at_work:
                self._idle_since_s = self.now_s()
            self._stages[came_to.stage] = self._stages.get(came_to.stage, StageTime(came_to.stage)) + came_to


class _Timed:
    def __init__(self, stopwatch: Stopwatch, launcher: Launcher, stage: Stage) -> None:
        self._stopwatch, self._launcher, self._stage = stopwatch, launcher, stage

    @property
    def changes(self) -> Changes:
        return self._launcher.changes

    def run(
        self,
        request: Request,
        *,
        devices: tuple[int, ...],
        on_event: Callable[[Event], None],
        cancel: threading.Event,
        directory: Path | None = None,
    ) -> RunResult:
        watch = self._stopwatch
        began_s = watch.run_begins()
        result: RunResult | None = None
        queued_s = measured_at_s = None

        def note(event: Event) -> None:
            nonlocal queued_s, measured_at_s
            if queued_s is None:
                queued_s = max(0.0, watch.now_s() - began_s - event.at_s)
            if event.kind == "result":
                measured_at_s = watch.now_s() - began_s
            on_event(event)

        try:
            result = self._launcher.run(request, devices=devices, on_event=note, cancel=cancel, directory=directory)
            return result
        finally:
            took_s = watch.now_s() - began_s
            watch.run_ended(_came_to(self._stage, request, result, took_s, queued_s or 0.0, measured_at_s))


def _came_to(
    stage: Stage,
    request: Request,
    result: RunResult | None,
    took_s: float,
    queued_s: float,
    measured_at_s: float | None,
) -> StageTime:
    """Return what a run that took so long was at; ``queued_s`` is how long it was not even started."""
    is_forked = result is not None and result.is_forked
    trained_s = None if result is None else result.trained_after_s
    start_s = took_s if trained_s is None else min(took_s, queued_s + trained_s)
    left_s = took_s - start_s
    outcomes = () if result is None else result.outcomes
    found = [one.measurement for one in outcomes if isinstance(one, Measured)]
    compile_s = sum(one.compile_s for one in found)
    warmup_s = sum(max(0.0, one.warmup_s - one.compile_s) for one in found)
    measure_s = left_s if request.mode == "verify" else sum(sum(one.step_times_s) for one in found)
    describe_s = 0.0
    if request.mode == "discover" and measured_at_s is not None and trained_s is not None:
        describe_s = max(0.0, took_s - max(measured_at_s, start_s))
    rest_s = max(0.0, left_s - compile_s - warmup_s - measure_s - describe_s)
    return StageTime(
        stage, 1, int(is_forked), start_s, compile_s, warmup_s, measure_s, describe_s=describe_s, rest_s=rest_s
    )
