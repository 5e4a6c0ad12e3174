"""What happens to trials when real processes die, stall, or come at the same time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace

import pytest
import sqlalchemy as sa
from optuna.trial import TrialState

from autotune.store.claims import Owner, _start_of
from autotune.store.database import open_store
from tests.fakes.store_samples import ENVIRONMENT, MEASURED, PLANNED, SPEC

pytestmark = pytest.mark.process


@pytest.fixture
def url(tmp_path):
    path = str(tmp_path / "study.db")
    with open_store(path) as store:
        store.create("first", SPEC)
    return path


class child:
    """A process with the study opened, that runs some lines and then waits for its end."""

    def __init__(self, url, lines):
        program = [
            "import os, sys, optuna, autotune.store.claims, autotune.store.database",
            "from tests.fakes.store_samples import *",
            f"study = autotune.store.database.open_store({url!r}).open('first')",
            textwrap.dedent(lines),
            "print('ready', flush=True)",
            "sys.stdin.read()",
        ]
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", "\n".join(program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ready(self):
        assert self.process.stdout.readline() == "ready\n"
        return self

    def kill(self):
        """Kill it and leave its exit status uncollected, as a container without an init does."""
        self.process.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)
        return self

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.process.kill()
        self.process.communicate()


def states(study):
    return [trial.state for trial in study.optuna.get_trials()]


def test_a_killed_process_loses_its_running_trial_and_nothing_else(url):
    lines = """
        study.recover()
        a, b, c = study.optuna.ask(), study.optuna.ask(), study.optuna.ask()
        study.begin(a.number, BASELINE, 'runs/0')
        study.finish(a.number, MEASURED, ENVIRONMENT)
        study.begin(b.number, PLANNED, 'runs/1')
    """
    with child(url, lines) as other, open_store(url) as store:
        other.ready()
        study = store.open("first")
        assert study.recover() == ()
        assert study.untold() == ()

        other.kill()

        assert [trial.number for trial in study.untold()] == [0]
        assert [trial.configuration for trial in study.recover()] == [PLANNED]
        assert states(study) == [TrialState.RUNNING, *[TrialState.FAIL] * 2, *[TrialState.WAITING] * 2]
        assert study.record().trials[0].outcome == MEASURED


@pytest.mark.parametrize(
    "cut_off_at",
    ["optuna.Study.get_trials", "optuna.Study.add_trial", "optuna.Study.tell", "autotune.store.claims.Claims.update"],
)
def test_a_process_killed_while_it_recovers_leaves_nothing_half_done(url, cut_off_at):
    with open_store(url, owner=replace(Owner.current(), process_start=1)) as store:
        dead = store.open("first")
        assert dead.begin(dead.optuna.ask().number, PLANNED, "runs/0")
    lines = f"""
        {cut_off_at} = lambda *_, **__: os._exit(9)
        study.recover()
    """
    with child(url, lines) as other, open_store(url) as store:
        assert other.process.wait(timeout=240) == 9
        study = store.open("first")
        assert [trial.number for trial in study.recover()] == [0]
        assert states(study) == [TrialState.FAIL, TrialState.WAITING]


def test_processes_that_resume_at_the_same_time_enqueue_each_trial_once(url):
    with open_store(url, owner=replace(Owner.current(), process_start=1)) as store:
        dead = store.open("first")
        for _ in range(5):
            assert dead.begin(dead.optuna.ask().number, PLANNED, "runs/0")
    with child(url, "study.recover()") as one, child(url, "study.recover()") as two, open_store(url) as store:
        one.ready()
        two.ready()
        assert states(store.open("first")) == [TrialState.FAIL] * 5 + [TrialState.WAITING] * 5


def test_a_heartbeat_keeps_a_far_process_s_trials(url):
    far = replace(Owner.current(), machine="another machine")
    with open_store(url, owner=far) as there, open_store(url) as here:
        remote, study = there.open("first"), here.open("first")
        assert remote.begin(remote.optuna.ask().number, PLANNED, "runs/0")
        silence(url)
        remote.heartbeat()
        assert study.recover() == ()
        silence(url)
        assert [trial.number for trial in study.recover()] == [0]
        assert not remote.finish(0, MEASURED, ENVIRONMENT)


def silence(url):
    """Let all heartbeats have been long ago."""
    engine = sa.create_engine(f"sqlite:///{url}", poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE autotune_owner SET heartbeat_at = 0"))


def test_this_process_is_running_and_a_later_one_of_its_number_is_another():
    assert Owner.current().is_running()
    assert not replace(Owner.current(), process_start=1).is_running()
    assert not replace(Owner.current(), process=2**22 + 1).is_running()


def test_a_killed_process_nobody_waited_for_is_not_running():
    with subprocess.Popen(["sleep", "60"]) as process:
        owner = replace(Owner.current(), process=process.pid, process_start=_start_of(process.pid))
        assert owner.is_running()
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not owner.is_running()


def test_containers_and_reboots_are_other_machines():
    here = Owner.current()
    assert here.is_local_to(Owner.current())
    assert not replace(here, machine="another").is_local_to(here)
    assert not replace(here, machine="").is_local_to(replace(here, machine=""))
