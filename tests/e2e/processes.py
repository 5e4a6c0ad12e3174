"""Starts scripts the three ways that are compared: plainly, in the worker, and through the command line.

Every process has a deadline, one thread, and nothing from this process's environment that changes how Python runs.
What a test is about is a fresh process. Runs that it only compares with, and those that ask for it (``may_fork``), come
from a process that has imported torch and its compiler, which is most of what a short run does.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from autotune.launch.port import RunResult
from autotune.launch.process import ProcessLauncher
from autotune.records.configuration import Configuration
from autotune.records.facts import BatchControl, Facts
from autotune.records.measurement import Measurement
from autotune.records.measuring import Measuring
from autotune.records.outcome import Measured
from autotune.records.run import Request
from tests.fakes.waiting import DEADLINE_S

from .warm import WarmPython

SCRIPTS = Path(__file__).parent / "scripts"
WARM_WORKER = Path(__file__).with_name("warm_worker.py")
WARM_LAUNCH = Path(__file__).with_name("warm_launch.py")

# Enough steps to see what is counted and applied; nobody looks at the rates.
QUICK = Measuring(max_warmup_steps=6, min_steps=6, max_steps=8, min_measure_s=0.0, max_measure_s=5.0)

# Compiling a script anew in every test would take minutes.
CACHES = Path(tempfile.gettempdir()) / f"autotune-tests-{os.getuid()}"

_LEFT_OUT = ("PYTHONPATH", "PYTHONWARNINGS", "PYTHONSAFEPATH")
_SET = {
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
    "CUDA_VISIBLE_DEVICES": "",  # these scripts train on the CPU wherever the tests run
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "COLUMNS": "200",
}


def variables(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a process."""
    kept = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
    kept.pop("PYTEST_CURRENT_TEST", None)  # so that the same server serves all tests
    return kept | _SET | dict(changes or {})


@dataclass(frozen=True)
class Finished:
    """A process that has ended; ``status`` is negative for a signal."""

    status: int
    output: bytes
    errors: str

    @property
    def losses(self) -> list[str]:
        """The losses it printed, every bit of them."""
        return losses_in(self.output)


def losses_in(output: bytes) -> list[str]:
    """The losses that a script's ``report`` printed."""
    return [line.split()[1].decode() for line in output.splitlines() if line.startswith(b"LOSS ")]


def without_notes(errors: str) -> str:
    """Standard error of ``launch`` without the line that tells which batch size the bundle sets."""
    kept = (
        line for line in errors.splitlines() if not line.startswith("autotune: note: the batch size is the bundle's")
    )
    return "\n".join(kept)


def run_plain(
    script: Path,
    *arguments: str,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    options: tuple[str, ...] = (),
) -> Finished:
    """``python script.py arguments`` in ``folder``."""
    return run_command(sys.executable, *options, str(script), *arguments, folder=folder, environment=environment)


def run_warm(script: Path, *arguments: str, folder: Path, environment: Mapping[str, str] | None = None) -> Finished:
    """Run a script as ``run_plain`` does, from a process that has imported torch; ``environment`` is all of it."""
    with tempfile.TemporaryDirectory(prefix="warm-") as logs:
        output, errors = (Path(logs, name) for name in ("output", "errors"))
        try:
            status = _warm_python().run(
                script, *arguments, folder=folder, output=output, errors=errors, environment=environment
            )
        except TimeoutError:
            _warm_python.cache_clear()  # it has ended
            raise
        return Finished(status, output.read_bytes(), errors.read_text(errors="replace"))


@functools.cache
def _warm_python() -> WarmPython:
    python = WarmPython(variables(), deadline_s=DEADLINE_S)
    atexit.register(python.close)
    return python


def run_autotune(
    *arguments: str | Path,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    deadline_s: float = DEADLINE_S,
) -> Finished:
    """``autotune arguments`` in ``folder``."""
    return run_command(*autotune_command(*arguments), folder=folder, environment=environment, deadline_s=deadline_s)


def autotune_command(*arguments: str | Path) -> tuple[str, ...]:
    """The command line of the installed program."""
    return (str(Path(sys.executable).with_name("autotune")), *map(str, arguments))


def run_command(
    *command: str, folder: Path, environment: Mapping[str, str] | None = None, deadline_s: float = DEADLINE_S
) -> Finished:
    """Run a command to its end."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=variables(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=deadline_s,
        check=False,
    )
    return Finished(done.returncode, done.stdout, done.stderr.decode(errors="replace"))


@dataclass(frozen=True)
class WorkerRun:
    """A run that has ended, as the controller sees it, and what the script printed in it."""

    result: RunResult
    output: bytes
    errors: str

    @property
    def losses(self) -> list[str]:
        """The losses it printed, every bit of them."""
        return losses_in(self.output)

    @property
    def facts(self) -> Facts:
        """What discovery found."""
        assert self.result.facts is not None, (self.result, self.errors)
        return self.result.facts

    def measurement(self, index: int = 0) -> Measurement:
        """The figures of a configuration, which must have been measured."""
        outcome = self.result.outcomes[index]
        assert isinstance(outcome, Measured), (outcome, self.errors)
        return outcome.measurement


def discover(script: Path, *arguments: str, folder: Path, may_fork: bool = False) -> WorkerRun:
    """A discovery run."""
    request = Request("discover", str(script), arguments, (Configuration(),), QUICK, may_fork=may_fork)
    return in_worker(request, folder=folder)


def measure(
    script: Path,
    *arguments: str,
    configurations: tuple[Configuration, ...],
    folder: Path,
    control: BatchControl | None = None,
    trial_timeout_s: float = DEADLINE_S,
    may_fork: bool = False,
) -> WorkerRun:
    """A run that measures configurations."""
    request = Request("measure", str(script), arguments, configurations, QUICK, control, may_fork=may_fork)
    return in_worker(request, folder=folder, trial_timeout_s=trial_timeout_s)


def in_worker(
    request: Request,
    *,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    trial_timeout_s: float = DEADLINE_S,
    python: str = sys.executable,
) -> WorkerRun:
    """Run a request as the controller does, in ``folder`` unless it may be forked."""
    if request.may_fork:
        launcher = warm_launcher()
        launcher._fork_refusal = ""  # what one script does is nothing to the next
    else:
        launcher = ProcessLauncher(
            python=python,
            root=folder / "runs",
            working_directory=folder,
            start_timeout_s=DEADLINE_S,
            trial_timeout_s=trial_timeout_s,
            variables=variables(environment),
            caches=CACHES,
        )
        launcher._servers.prepare = lambda _: None  # nothing comes after this run
    directory = folder / "runs" / uuid.uuid4().hex
    result = launcher.run(
        request, devices=(), on_event=lambda event: None, cancel=threading.Event(), directory=directory
    )
    output = (result.directory / "stdout.log").read_bytes()
    return WorkerRun(result, output, (result.directory / "stderr.log").read_text(errors="replace"))


@functools.cache
def warm_launcher() -> ProcessLauncher:
    """What forks its runs from processes that have imported torch and its compiler."""
    folder = Path(tempfile.mkdtemp(prefix="warm-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return ProcessLauncher(
        python=sys.executable,
        root=folder / "runs",
        working_directory=folder,
        start_timeout_s=DEADLINE_S,
        trial_timeout_s=DEADLINE_S,
        variables=variables(),
        worker=WARM_WORKER,
        caches=CACHES,
    )
