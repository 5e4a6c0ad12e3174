"""The training process's side of the protocol without torch, for tests that start real processes.

A test writes a script of a few lines; ``run_script`` puts this module's names in front of it and starts it as worker.
In the script ``run`` is a ``WorkerSide`` on the run's directory.
"""

from __future__ import annotations

import os
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

from autotune.launch.port import Event, RunResult
from autotune.launch.process import ProcessLauncher
from autotune.machine.devices import Gpus
from autotune.machine.meters.run_meter import RunMeter
from autotune.records.codec import dumps, loads
from autotune.records.configuration import Configuration
from autotune.records.environment import Environment
from autotune.records.measurement import Measurement, Peaks
from autotune.records.outcome import Measured, Outcome, Phase
from autotune.records.progress import Progress
from autotune.records.run import Ended, Line, Request, Result
from tests.fakes.waiting import DEADLINE_S

_REPOSITORY = Path(__file__).resolve().parents[2]
_HEAD = f"""
import os, signal, subprocess, sys, time
sys.path.insert(0, {str(_REPOSITORY)!r})
from autotune.records.outcome import *
from tests.fakes.worker_side import *
run = WorkerSide(sys.argv[1])
"""

ENVIRONMENT = Environment("cpu", "a fake CPU", 2**34, 1, 1, "host", "Linux", "3.12", "2.13.0")


def measured(*step_times_s: float, resident: int | None = 2**20, **fields: object) -> Measured:
    """A measurement of steps of eight samples."""
    times = step_times_s or (0.1, 0.1, 0.1)
    values: dict[str, object] = {
        "step_times_s": times,
        "samples_per_step": (8,) * len(times),
        "peaks": Peaks(resident=resident),
        "warmup_steps": 2,
        "warmup_s": 0.2,
        "batch_size": 8,
        "calls_per_step": 1.0,
    }
    return Measured(Measurement(**{**values, **fields}))  # type: ignore[arg-type]


class WorkerSide:
    """Writes what a training process writes."""

    def __init__(
        self, directory: str | Path, *, rank: int = 0, num_processes: int = 1, device: str = "", process: int = 0
    ) -> None:
        self.process = process or os.getpid()
        self.directory = Path(directory)
        self.request = loads(Request, (self.directory / "request.json").read_text())
        self.rank = rank
        self.num_processes = num_processes
        self.device = device

    def progress(
        self, phase: Phase, *, index: int = 0, steps: int = 0, measuring_since_s: float = 0.0, marks: int = 0
    ) -> None:
        """Say where the process is."""
        numbers = (index, steps, self.rank, self.num_processes, self.process, time.monotonic())
        state = Progress(phase, *numbers, self.device, measuring_since_s, marks)
        (self.directory / f"progress-{self.process}").write_bytes(state.to_bytes())

    def write(self, data: bytes) -> None:
        """Append to ``results.jsonl`` in one write."""
        descriptor = os.open(self.directory / "results.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(descriptor, data)
        os.close(descriptor)

    def line(self, line: Line) -> None:
        """Append a line."""
        self.write((dumps(line) + "\n").encode())

    def result(self, index: int, outcome: Outcome | None = None) -> None:
        """A step, and the outcome of a configuration."""
        self.progress("optimizer", index=index, steps=index + 1)
        self.line(Result(index, outcome or measured(), ENVIRONMENT, self.process, self.rank))

    def ended(self, reason: str = "all configurations were measured") -> None:
        """The last line."""
        self.line(Ended(self.process, self.rank, reason))


def hang() -> None:
    """Do nothing, longer than any test waits."""
    time.sleep(600)


def request_for(number: int = 1, **fields: object) -> Request:
    """A request to measure so many configurations."""
    configurations = tuple(Configuration(batch_size=8 * (i + 1)) for i in range(number))
    return Request(
        **{"mode": "measure", "script": "/train.py", "arguments": (), "configurations": configurations, **fields}
    )  # type: ignore[arg-type]


def write_worker(folder: Path, script: str) -> Path:
    """Write ``script`` as a bootstrap."""
    worker = folder / "worker.py"
    worker.write_text(_HEAD + textwrap.dedent(script))
    return worker


def launcher_for(
    folder: Path,
    script: str,
    *,
    start_timeout_s: float = DEADLINE_S,
    trial_timeout_s: float = DEADLINE_S,
    grace_s: float = 0.5,
    meter_factory: Callable[[tuple[int, ...]], RunMeter] = lambda devices: RunMeter(),
    python: str = sys.executable,
    gpus: Callable[[], Gpus] = lambda: Gpus(()),
) -> ProcessLauncher:
    """A launcher whose worker is ``script``."""
    return ProcessLauncher(
        python=python,
        root=folder / "runs",
        working_directory=folder,
        start_timeout_s=start_timeout_s,
        trial_timeout_s=trial_timeout_s,
        grace_s=grace_s,
        meter_factory=meter_factory,
        gpus=gpus,
        worker=write_worker(folder, script),
    )


def run_script(
    folder: Path,
    script: str,
    *,
    request: Request | None = None,
    devices: tuple[int, ...] = (),
    on_event: Callable[[Event], None] = lambda event: None,
    cancel: threading.Event | None = None,
    **options: object,
) -> RunResult:
    """Run ``script`` as the worker of a run; see ``launcher_for`` for the options."""
    launcher = launcher_for(folder, script, **options)  # type: ignore[arg-type]
    return launcher.run(
        request or request_for(), devices=devices, on_event=on_event, cancel=cancel or threading.Event()
    )
