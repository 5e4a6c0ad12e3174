"""Where the time of a study goes: by stage, and by what its runs are at."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from autotune.files.changes import Changes
from autotune.launch.port import Event, RunResult
from autotune.records.configuration import Configuration
from autotune.records.outcome import Measured, Outcome, TimedOut
from autotune.records.run import Request
from autotune.records.study import StageTime, TimeSpent
from autotune.tuning.stopwatch import Stopwatch
from tests.fakes.landscape import measured

PLAIN = Configuration()


@dataclass
class Clock:
    """A clock that stands still until it is told to go on."""

    at_s: float = 100.0

    def __call__(self) -> float:
        return self.at_s


@dataclass
class Timed:
    """A launcher whose one run takes ``queued_s`` before it starts, then ``result_s`` to its outcome, then the rest."""

    clock: Clock
    outcome: Outcome | None
    queued_s: float = 1.0
    trained_s: float | None = 4.0
    result_s: float = 10.0
    rest_s: float = 2.0
    changes: Changes = field(default_factory=Changes)

    def run(
        self,
        request: Request,
        *,
        devices: tuple[int, ...],
        on_event: Callable[[Event], None],
        cancel: threading.Event,
        directory: Path | None = None,
    ) -> RunResult:
        self.clock.at_s += self.queued_s
        on_event(Event("started", 0, 0, "start", None, 0.0))
        self.clock.at_s += self.result_s
        on_event(Event("result", 0, 5, "optimizer", self.outcome, self.result_s))
        self.clock.at_s += self.rest_s
        return RunResult((self.outcome,), None, None, Path(), trained_after_s=self.trained_s, is_forked=True)


def told(stopwatch: Stopwatch, launcher: Any, stage: Any, mode: Any = "measure") -> StageTime:
    request = Request(mode, "train.py", (), (PLAIN,))
    timed = stopwatch.timed(launcher, stage)
    timed.run(request, devices=(), on_event=lambda event: None, cancel=threading.Event())
    return next(one for one in stopwatch.spent().stages if one.stage == stage)


@pytest.fixture
def warm() -> Measured:
    """Three seconds of warm-up, of which two compiled, and one second measured."""
    found = measured(10.0, 1, 2**20).measurement
    return Measured(replace(found, warmup_s=3.0, compile_s=2.0, step_times_s=(0.5, 0.5), samples_per_step=(5, 5)))


def test_a_run_is_taken_apart_and_its_parts_are_all_of_it(warm: Measured) -> None:
    clock = Clock()
    seen = told(Stopwatch(now=clock), Timed(clock, warm), "search")

    assert seen == StageTime("search", 1, 1, start_s=5.0, compile_s=2.0, warmup_s=1.0, measure_s=1.0, rest_s=4.0)
    assert seen.total_s == 13.0


def test_what_discovery_takes_after_its_measurement_is_the_description(warm: Measured) -> None:
    clock = Clock()
    seen = told(Stopwatch(now=clock), Timed(clock, warm), "discovery", "discover")

    assert (seen.describe_s, seen.rest_s) == (2.0, 2.0)


def test_a_proof_has_steps_and_no_measurement() -> None:
    clock = Clock()
    seen = told(Stopwatch(now=clock), Timed(clock, None), "proof", "verify")

    assert seen == StageTime("proof", 1, 1, start_s=5.0, measure_s=8.0)


def test_a_run_that_comes_to_no_training_call_has_only_started() -> None:
    clock = Clock()
    seen = told(Stopwatch(now=clock), Timed(clock, TimedOut("too long"), trained_s=None), "search")

    assert seen == StageTime("search", 1, 1, start_s=13.0)


def test_time_without_a_run_is_between_runs_and_sessions_add_up(warm: Measured) -> None:
    clock = Clock()
    stopwatch = Stopwatch(now=clock)
    clock.at_s += 3.0
    told(stopwatch, Timed(clock, warm), "search")
    clock.at_s += 4.0
    told(stopwatch, Timed(clock, warm), "search")
    clock.at_s += 0.5
    first = stopwatch.spent()

    assert (first.total_s, first.between_s) == (33.5, 7.5)
    assert first.between_s + sum(one.total_s for one in first.stages) == first.total_s
    later = Stopwatch(first, now=clock)
    told(later, Timed(clock, warm), "confirmation")
    both = later.spent()
    assert both.total_s == 46.5
    assert [(one.stage, one.runs) for one in both.stages] == [("search", 2), ("confirmation", 1)]


def test_a_run_that_raises_is_over_any_more() -> None:
    clock = Clock()
    stopwatch = Stopwatch(now=clock)

    class Failing(Timed):
        def run(self, request: Request, **options: Any) -> RunResult:
            self.clock.at_s += 2.0
            raise OSError

    with pytest.raises(OSError):
        told(stopwatch, Failing(clock, None), "search")
    clock.at_s += 5.0
    assert stopwatch.spent() == TimeSpent(7.0, 5.0, (StageTime("search", 1, start_s=2.0),))
