"""Ctrl-C once, twice, and SIGTERM: what is known is kept, nothing is left running, and the study goes on later."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from optuna.trial import TrialState

from autotune.records.study import StudyRecord
from autotune.store.database import open_store
from tests.benchmarks.kill import processes_of

from .processes import DEADLINE_S, SCRIPTS, autotune_command, run_autotune, variables

SCRIPT = SCRIPTS / "known_rate.py"
ARGUMENTS = ("--", "--period-s", "0.01", "--steps", "100000")
OPTIONS = (
    "--study",
    "stopped",
    "--batch-sizes",
    "16:64",
    "--max-trials",
    "5",
    "--repetitions",
    "1",
    "--time-budget",
    "60m",
)
DATABASE = ".autotune/studies.db"


class Controller:
    """An ``autotune`` at work; signals go to its whole process group, as a terminal sends them."""

    def __init__(self, *arguments: object, folder: Path) -> None:
        self.errors = folder / "stderr.log"
        with self.errors.open("wb") as errors:
            self._process = subprocess.Popen(
                autotune_command(*map(str, arguments)),
                cwd=folder,
                env=variables(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )

    def wait_for(self, pattern: str) -> None:
        """Wait until it has said something."""
        deadline = time.monotonic() + DEADLINE_S
        while not re.search(pattern, self.said, re.MULTILINE):
            assert self._process.poll() is None, self.said
            assert time.monotonic() < deadline, f"never said {pattern!r}:\n{self.said}"
            time.sleep(0.02)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.killpg(self._process.pid, number)

    def ended(self) -> int:
        """Its exit status."""
        return self._process.wait(timeout=DEADLINE_S)

    def kill(self) -> None:
        """End it if a test failed half way."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    @property
    def said(self) -> str:
        """What it has written to standard error so far."""
        return self.errors.read_text()


def wait_for_output(folder: Path) -> None:
    """Wait until the script in discovery has printed something."""
    deadline = time.monotonic() + DEADLINE_S
    while not any(log.stat().st_size for log in folder.glob(".autotune/runs/*/discovery/stdout.log")):
        assert time.monotonic() < deadline, "the script printed nothing"
        time.sleep(0.02)


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Controller]:
    """A study that has just finished the first trial of its search."""
    controller = Controller("run", SCRIPT, *OPTIONS, *ARGUMENTS, folder=tmp_path)
    try:
        controller.wait_for(r"^ +1 ")
        yield controller
    finally:
        controller.kill()


def stored(folder: Path) -> StudyRecord:
    with open_store(str(folder / DATABASE), create=False) as store:
        study = store.open("stopped")
        assert study.optuna.get_trials(deepcopy=False, states=(TrialState.RUNNING,)) == []
        return study.record()


def measured(record: StudyRecord) -> dict[int, object]:
    return {trial.number: trial.outcome for trial in record.trials if trial.outcome is not None}


@pytest.mark.slow
def test_ctrl_c_starts_nothing_new_exports_what_is_known_and_the_study_goes_on_later(
    study: Controller, tmp_path: Path
) -> None:
    study.send(signal.SIGINT)

    assert study.ended() == 130
    assert "Ctrl-C again stops now" in study.said
    assert "Search ended: It was interrupted." in study.said
    assert "to go on: autotune resume stopped" in study.said
    assert processes_of(tmp_path) == []
    assert (tmp_path / "autotune-stopped" / "stack.json").exists()
    before = stored(tmp_path)
    assert 2 <= len(measured(before)) <= 4, "the trial under way and those before it"
    assert all(trial.state == "finished" for trial in before.trials)

    resumed = run_autotune("resume", "stopped", folder=tmp_path)

    assert resumed.status == 0, resumed.errors
    assert "trials are done already" in resumed.errors
    assert "really runs your script" not in resumed.errors, "said once, at the first run"
    after = stored(tmp_path)
    assert measured(before).items() < measured(after).items()
    keys = [trial.configuration.key for trial in after.trials if trial.outcome is not None]
    assert len(keys) == len(set(keys)), "a configuration was measured twice"


@pytest.mark.slow
def test_ctrl_c_twice_stops_at_once_and_keeps_what_was_finished(study: Controller, tmp_path: Path) -> None:
    study.send(signal.SIGINT)
    study.wait_for("Ctrl-C again stops now")
    study.send(signal.SIGINT)

    assert study.ended() == 130
    assert "to go on: autotune resume stopped" in study.said
    assert "Traceback" not in study.said
    assert processes_of(tmp_path) == []
    record = stored(tmp_path)
    assert len(measured(record)) >= 2
    assert all(trial.state == "finished" for trial in record.trials)


@pytest.mark.slow
def test_sigterm_stops_at_once(study: Controller, tmp_path: Path) -> None:
    study.send(signal.SIGTERM)

    assert study.ended() == 130
    assert "to go on: autotune resume stopped" in study.said
    assert processes_of(tmp_path) == []
    assert len(measured(stored(tmp_path))) >= 2


@pytest.mark.slow
def test_ctrl_c_twice_ends_a_script_that_hangs_and_ignores_signals(tmp_path: Path) -> None:
    controller = Controller("run", SCRIPTS / "bad/hangs.py", "--", "stubborn", folder=tmp_path)
    try:
        controller.wait_for("Discovery: ")
        wait_for_output(tmp_path)
        controller.send(signal.SIGINT)
        controller.wait_for("Ctrl-C again stops now")
        controller.send(signal.SIGINT)

        assert controller.ended() == 130
        assert "autotune: discovery was stopped\n  next: " in controller.said
        assert "Traceback" not in controller.said
        assert processes_of(tmp_path) == []
    finally:
        controller.kill()
