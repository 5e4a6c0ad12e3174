"""A run without processes: a script of what they would write, and a clock that only the supervision's looks move.

A script is a generator function. It gets a ``ScriptedWorker``, and each ``yield`` lets the supervision look once. Its
return value is the main process's return code.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from autotune.launch.ending import Patience
from autotune.launch.port import Event, RunResult
from autotune.launch.supervise import Supervision
from autotune.machine.meters.run_meter import RunMeter
from autotune.records.codec import dumps
from autotune.records.run import Request

from .memory_meter import FakeMeter
from .worker_side import WorkerSide, request_for

PID = 4711
Steps = Iterator[None]
Script = Callable[["ScriptedWorker"], Steps]


class Clock:
    """Seconds that pass where the supervision waits, and nowhere else."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Cancel(threading.Event):
    """An event for which nobody waits longer than the clock takes."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self._clock.now_s += timeout
        return self.is_set()


class ScriptedWorker(WorkerSide):
    """The training process; ``at_dump`` and ``at_terminate`` are what it does at SIGUSR1 and SIGTERM."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        super().__init__(directory, process=PID)
        self._clock = clock
        self.at_dump: Callable[[], object] = lambda: None
        self.at_terminate: Callable[[], object] = lambda: None
        # Of the training processes that are gone the return codes, None where nobody knows.
        self.ends: dict[int, int | None] = {}

    def another(self, rank: int, num_processes: int) -> WorkerSide:
        """Give another training process of the same run."""
        return WorkerSide(self.directory, rank=rank, num_processes=num_processes, process=PID + rank)

    def say(self, text: str) -> None:
        """Write a line to standard error."""
        with (self.directory / "stderr.log").open("a") as file:
            file.write(f"{text}\n")

    def wait(self, seconds: float) -> Steps:
        """Do nothing for so long."""
        end_s = self._clock() + seconds
        while self._clock() < end_s:
            yield

    def hang(self) -> Steps:
        """Do nothing, for ever."""
        while True:
            yield


class ScriptedProcessTree:
    """Stands in the place of ``launch.process_tree.ProcessTree``."""

    pid = PID

    def __init__(self, worker: ScriptedWorker, steps: Steps) -> None:
        self._worker, self._steps = worker, steps
        self._status: int | None = None

    def exited(self) -> bool:
        if self._status is None:
            try:
                next(self._steps)
            except StopIteration as ended:
                self._status = ended.value or 0
        return self._status is not None

    def members(self) -> tuple[int, ...]:
        return (PID,)

    def end_of(self, pid: int) -> tuple[bool, int | None]:
        return pid in self._worker.ends, self._worker.ends.get(pid)

    def dump_stacks(self, pids: Collection[int]) -> None:
        assert PID in pids
        self._worker.at_dump()

    def kill(self) -> int:
        if self._status is None:
            self._worker.at_terminate()
            self._status = -9
        return self._status


def supervise(
    folder: Path,
    script: Script,
    *,
    request: Request | None = None,
    start_timeout_s: float = 60.0,
    trial_timeout_s: float = 60.0,
    grace_s: float = 0.5,
    meter: RunMeter | None = None,
    on_event: Callable[[Event], None] = lambda event: None,
    cancelled_by: Callable[[Event], bool] = lambda event: False,
) -> RunResult:
    """Watch ``script`` as the launcher watches a run, end it and conclude; an event may cancel it."""
    directory = folder / "run"
    directory.mkdir()
    request = request or request_for()
    (directory / "request.json").write_text(dumps(request))
    clock = Clock()
    cancel = Cancel(clock)
    worker = ScriptedWorker(directory, clock)
    process_tree = ScriptedProcessTree(worker, script(worker))
    meter = meter or RunMeter(resident=FakeMeter())

    def follow(event: Event) -> None:
        on_event(event)
        if cancelled_by(event):
            cancel.set()

    meter.start()
    supervision = Supervision(
        process_tree,
        request,
        directory=directory,
        meter=meter,
        patience=Patience(start_timeout_s, trial_timeout_s, grace_s),
        on_event=follow,
        clock=clock,
    )
    ending = supervision.watch(cancel)
    result = supervision.conclude(ending, process_tree.kill())
    meter.close()
    return result
