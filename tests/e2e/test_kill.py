"""Kill -9 of the controller loses nothing that was finished, and leaves nothing behind."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.benchmarks.kill import kill_studies, processes_of
from tests.benchmarks.untouched import Report, kill_compilations, study_checkpoints
from tests.fakes.waiting import DEADLINE_S, becomes_true

from .processes import SCRIPTS, autotune_command, variables


@pytest.mark.slow
def test_a_study_whose_controller_is_killed_at_random_moments_loses_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    report = kill_studies(tmp_path, str(tmp_path / "killed.db"), times=4, seed=2, share_of_workers=0.0)

    assert report.good, report
    assert report.kills == 4
    assert report.stored >= 3, "it was never killed in the search: the test shows nothing"


@pytest.mark.slow
def test_kills_in_the_middle_of_compilations_leave_the_users_caches_and_the_plain_script_alone(tmp_path: Path) -> None:
    report = Report()
    kill_compilations(tmp_path, report, times=3, seed=1)

    assert report.good, report
    assert report.kills == 3


@pytest.mark.slow
def test_studies_whose_controller_is_killed_leave_every_file_as_it_was(tmp_path: Path) -> None:
    report = Report()
    study_checkpoints(tmp_path, report, times=4, seed=1)

    assert report.good, report
    assert (report.studies, report.killed_studies) == (4, 1)


@pytest.mark.parametrize("moment", [pytest.param("discovery", marks=pytest.mark.slow), "trial"])
def test_no_process_of_a_run_outlives_its_controller(moment: str, tmp_path: Path) -> None:
    script, arguments = {
        "discovery": ("bad/hangs.py", ("stubborn",)),
        "trial": ("known_rate.py", ("--period-s", "0.005", "--steps", "100000")),
    }[moment]
    command = autotune_command("run", "--study", "killed", SCRIPTS / script, "--", *arguments)
    with (tmp_path / "stderr.log").open("wb") as errors:
        process = subprocess.Popen(
            command, cwd=tmp_path, env=variables(), stdin=subprocess.DEVNULL, stdout=errors, stderr=errors
        )
    logs = {"discovery": "discovery/stdout.log", "trial": "trial-0001/stdout.log"}
    log = tmp_path / ".autotune/runs/killed" / logs[moment]
    becomes_true(lambda: log.exists() and log.stat().st_size > 0)
    at_work = processes_of(log.parent.parent)
    process.kill()
    process.wait(timeout=DEADLINE_S)

    assert at_work, "the script was not running: the test shows nothing"
    assert becomes_true(lambda: not processes_of(log.parent.parent)), processes_of(log.parent.parent)
