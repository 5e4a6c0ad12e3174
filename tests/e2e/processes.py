"""Starts scripts the three ways that are compared: plainly, in the worker, and through the command line.

Every process has a deadline, one thread, and nothing from this process's environment that changes how Python runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from autotune.launch import ProcessLauncher, RunResult
from autotune.records import BatchControl, Configuration, Facts, Measured, Measurement, Measuring, Request

SCRIPTS = Path(__file__).parent / "scripts"
DEADLINE_S = 240.0

# Enough steps to see what is counted and applied; nobody looks at the rates.
QUICK = Measuring(max_warmup_steps=6, min_steps=6, max_steps=8, min_measure_s=0.0, max_measure_s=5.0)

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


def run_plain(
    script: Path,
    *arguments: str,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    options: tuple[str, ...] = (),
) -> Finished:
    """``python script.py arguments`` in ``folder``."""
    return run_command(sys.executable, *options, str(script), *arguments, folder=folder, environment=environment)


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


def discover(script: Path, *arguments: str, folder: Path, control: BatchControl | None = None) -> WorkerRun:
    """A discovery run."""
    request = Request("discover", str(script), arguments, (Configuration(),), QUICK, control)
    return in_worker(request, folder=folder)


def measure(
    script: Path,
    *arguments: str,
    configurations: tuple[Configuration, ...],
    folder: Path,
    control: BatchControl | None = None,
    trial_timeout_s: float = DEADLINE_S,
) -> WorkerRun:
    """A run that measures configurations."""
    request = Request("measure", str(script), arguments, configurations, QUICK, control)
    return in_worker(request, folder=folder, trial_timeout_s=trial_timeout_s)


def in_worker(
    request: Request,
    *,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    trial_timeout_s: float = DEADLINE_S,
    python: str = sys.executable,
) -> WorkerRun:
    """Run a request as the controller does; the script's working directory is ``folder``."""
    launcher = ProcessLauncher(
        python=python,
        root=folder / "runs",
        working_directory=folder,
        start_timeout_s=DEADLINE_S,
        trial_timeout_s=trial_timeout_s,
        variables=variables(environment),
    )
    result = launcher.run(request, device=None, on_event=lambda event: None, cancel=threading.Event())
    output = (result.directory / "stdout.log").read_bytes()
    return WorkerRun(result, output, (result.directory / "stderr.log").read_text(errors="replace"))
