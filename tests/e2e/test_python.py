"""The Python functions in real processes: a bundle in a loop of one's own and in a trial, and a study interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.records.configuration import Configuration
from autotune.records.facts import BatchControl
from autotune.records.outcome import Measured
from autotune.records.plan import parse_plans
from autotune.records.run import Request
from tests.benchmarks.kill import processes_of

from .conftest import MakeBundle
from .inside import run_inside
from .processes import QUICK, SCRIPTS, Finished, in_worker, run_plain, run_warm, variables

SCRIPT = SCRIPTS / "applies_bundle.py"
GELUS = parse_plans(["gelu+:1:-1"])
OVERRULED = "Nothing was applied: autotune runs this process, and its own setting is what runs."


def told(run: Finished) -> str:
    """The script's last line."""
    return run.output.decode().splitlines()[-1]


def test_a_loop_of_one_s_own_trains_as_without_the_bundle(make_bundle: MakeBundle, tmp_path: Path) -> None:
    plans, none = (
        make_bundle(SCRIPT, Configuration(engine, plans, batch_size=16), name=name)
        for name, engine, plans in (("plans", "aot", GELUS), ("none", "eager", ()))
    )
    run = run_plain(SCRIPT, str(plans), folder=tmp_path)
    plain = run_warm(SCRIPT, str(none), folder=tmp_path)
    assert run.status == plain.status == 0, run.errors
    assert told(run) == "BATCH 16 OVERRULED False CONFIRMED True"
    assert len(run.losses) == 128
    assert run.losses == plain.losses


@pytest.mark.slow
def test_a_trial_s_own_setting_wins_and_says_so(make_bundle: MakeBundle, tmp_path: Path) -> None:
    bundle = make_bundle(SCRIPT, Configuration("aot", parse_plans(["nosuch+:1:-1"]), batch_size=16))
    configuration = Configuration("aot", GELUS, batch_size=32)
    control = BatchControl("function")
    request = Request("measure", str(SCRIPT), (str(bundle),), (configuration,), QUICK, control, may_fork=True)
    run = in_worker(request, folder=tmp_path)
    (outcome,) = run.result.outcomes
    assert isinstance(outcome, Measured), outcome
    assert outcome.measurement.batch_size == 32
    assert OVERRULED in run.errors


def test_a_launched_script_has_the_setting_that_it_is_launched_with(make_bundle: MakeBundle, tmp_path: Path) -> None:
    launched = make_bundle(
        SCRIPT, Configuration("aot", GELUS, batch_size=32), control=BatchControl("function"), name="one"
    )
    other = make_bundle(SCRIPT, Configuration("aot", parse_plans(["nosuch+:1:-1"]), batch_size=16), name="other")
    run = run_inside("launch", launched, SCRIPT, "--", other, folder=tmp_path)
    assert run.status == 0, run.errors
    assert told(run) == "BATCH 32 OVERRULED True CONFIRMED False"
    assert OVERRULED in run.errors


def test_a_script_that_is_tuned_tunes_nothing(tmp_path: Path) -> None:
    request = Request("measure", str(SCRIPTS / "tunes_itself.py"), (), (Configuration(),), QUICK, may_fork=True)
    run = in_worker(request, folder=tmp_path)
    assert isinstance(run.result.outcomes[0], Measured), run.errors
    assert b"REFUSED autotune.tune was called in a process that autotune runs itself" in run.output


# -- a study that is interrupted

_TUNING = """
import sys
import autotune
try:
    tuned = autotune.tune(
        sys.argv[1], ["--period-s", "0.01", "--steps", "100000"], study="stopped", batch_sizes=(16, 64), max_trials=5,
        repetitions=1, time_budget="60m",
    )
except KeyboardInterrupt:
    print("INTERRUPTED", flush=True)
else:
    print("FOUND", tuned.answer, tuned.baseline.batch_size, tuned.study, flush=True)
"""


class Caller:
    """A Python process that tunes a script, in a group of its own."""

    def __init__(self, folder: Path) -> None:
        self._errors = folder / "stderr.log"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _TUNING, str(SCRIPTS / "known_rate.py")],
                cwd=folder,
                env=variables({"OF_A_TEST_IN": str(folder)}),  # what is left over of it is found by this
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )

    def wait_for(self, text: str) -> None:
        """Wait until the study has said something."""
        deadline = time.monotonic() + 300
        while text not in self.said:
            assert self._process.poll() is None, self.said
            assert time.monotonic() < deadline, f"never said {text!r}:\n{self.said}"
            time.sleep(0.05)

    @property
    def said(self) -> str:
        """Its standard error so far."""
        return self._errors.read_text(errors="replace")

    def send(self, number: signal.Signals) -> None:
        """Send its whole group a signal, as terminals and notebooks do."""
        os.killpg(self._process.pid, number)

    def printed(self) -> str:
        """What it prints until it ends."""
        output, _ = self._process.communicate(timeout=300)
        return output.decode()


@pytest.fixture
def caller(tmp_path: Path) -> Iterator[Caller]:
    """A caller; nothing is left of it and its study."""
    called = Caller(tmp_path)
    yield called
    if called._process.poll() is None:
        called.send(signal.SIGKILL)
        called.printed()


@pytest.mark.slow
def test_the_first_interruption_gives_what_is_known(caller: Caller, tmp_path: Path) -> None:
    caller.wait_for("Searching ")
    caller.send(signal.SIGINT)
    printed = caller.printed()
    assert printed.startswith("FOUND "), (printed, caller.said)
    assert printed.endswith(" 16 stopped\n")
    assert "finishing what runs" in caller.said


def test_the_second_interruption_is_raised_and_nothing_runs_on(caller: Caller, tmp_path: Path) -> None:
    caller.wait_for("Discovery: ")
    caller.send(signal.SIGINT)
    caller.wait_for("finishing what runs")
    caller.send(signal.SIGINT)
    assert caller.printed() == "INTERRUPTED\n", caller.said
    assert not processes_of(tmp_path)


def test_a_caller_that_is_killed_leaves_no_study_at_work(caller: Caller, tmp_path: Path) -> None:
    caller.wait_for("Discovery: ")
    caller.send(signal.SIGKILL)
    caller.printed()
    deadline = time.monotonic() + 60
    while processes_of(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not processes_of(tmp_path)
