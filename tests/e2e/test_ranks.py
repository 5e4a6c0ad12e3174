"""What happens in a process that the script started is told as if it had happened in the script itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.records.configuration import Configuration
from autotune.records.outcome import Outcome, OutOfMemory, ScriptError, TimedOut

from .processes import SCRIPTS, measure

pytestmark = pytest.mark.slow  # test_end_to_end.py has ranks that train


def outcome_of(how: str, folder: Path, **options: float) -> Outcome | None:
    script = SCRIPTS / "bad" / "fails_in_rank.py"
    run = measure(script, how, configurations=(Configuration(),), folder=folder, **options)
    (outcome,) = run.result.outcomes
    return outcome


def test_an_exception_in_a_rank_is_the_scripts(tmp_path: Path) -> None:
    outcome = outcome_of("raises", tmp_path)

    assert isinstance(outcome, ScriptError)
    assert outcome.cause == "LookupError: no batch for rank 1"
    assert "in fail" in outcome.traceback


@pytest.mark.parametrize("how", ["out_of_memory", "wrapped"])
def test_a_rank_that_runs_out_of_memory_is_out_of_memory_in_its_phase(how: str, tmp_path: Path) -> None:
    outcome = outcome_of(how, tmp_path)

    assert isinstance(outcome, OutOfMemory)
    assert outcome.phase == "forward"
    assert outcome.cause.startswith("out of memory in forward: CUDA out of memory.")


def test_a_rank_that_leaves_without_a_word_is_told_by_the_process_that_started_it(tmp_path: Path) -> None:
    outcome = outcome_of("crashes", tmp_path)

    assert isinstance(outcome, ScriptError)
    assert "process 1 terminated with signal SIGSEGV" in outcome.cause


def test_a_rank_that_hangs_has_timed_out_and_shows_where(tmp_path: Path) -> None:
    outcome = outcome_of("hangs", tmp_path, trial_timeout_s=8.0)

    assert isinstance(outcome, TimedOut), outcome
    assert outcome.phase == "forward"
    (stderr,) = tmp_path.glob("runs/*/stderr.log")
    assert 'fails_in_rank.py", line' in stderr.read_text()
    assert outcome.cause.startswith("the trial was not measured within 8 s")
