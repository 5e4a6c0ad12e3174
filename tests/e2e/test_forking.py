"""Which scripts' trials are forked from a process that has imported torch, and a study whose trials are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.benchmarks.kill import processes_of

from .processes import SCRIPTS, discover, run_autotune, run_plain


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("loader_loop.py",), ""),
        (("ddp.py",), ""),
        pytest.param(("ddp.py", "2"), "the script trains in processes that it starts", marks=pytest.mark.slow),
    ],
)
def test_discovery_says_whether_trials_may_be_forked(arguments: tuple[str, ...], reason: str, tmp_path: Path) -> None:
    script, *others = arguments
    assert discover(SCRIPTS / script, *others, folder=tmp_path).facts.fork_refusal == reason


@pytest.fixture
def sets_threads(tmp_path: Path) -> Path:
    """A script that says how many threads torch has, and decides on that before it imports torch."""
    script = tmp_path / "project" / "train.py"
    script.parent.mkdir()
    source = (SCRIPTS / "loader_loop.py").read_text().replace("report(loss)", "print(torch.get_num_threads())")
    script.write_text(
        f"import os, sys\nos.environ['OMP_NUM_THREADS'] = '2'\nsys.path.append({str(SCRIPTS)!r})\n{source}"
    )
    return script


def threads_of(script: Path, folder: Path) -> set[bytes]:
    """How many threads it has as ``python train.py``: no more than there are processors."""
    return said(run_plain(script, folder=folder).output)


def said(output: bytes) -> set[bytes]:
    """What a script printed in its steps; whether it came to its end is another question."""
    return set(output.split()) - {b"done"}


@pytest.mark.slow
def test_a_script_that_sets_its_threads_before_it_imports_torch_is_not_forked(
    sets_threads: Path, tmp_path: Path
) -> None:
    run = discover(sets_threads, folder=tmp_path)

    assert run.facts.fork_refusal == "the script sets OMP_NUM_THREADS before it imports torch"
    assert said(run.output) == threads_of(sets_threads, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("is_forked", [True, False])
def test_a_study_comes_to_an_answer_with_forked_trials_as_with_fresh_ones(
    is_forked: bool, sets_threads: Path, tmp_path: Path
) -> None:
    script = SCRIPTS / "loader_loop.py" if is_forked else sets_threads
    options = ("--study", "forked", "--max-trials", "2", "--repetitions", "1", "--time-budget", "60m", "--json")

    run = run_autotune("run", script, *options, folder=tmp_path)

    assert run.status == 0, run.errors
    points = json.loads(run.output)["points"]
    assert len(points) >= 2
    assert all(point["figures"] for point in points), points
    runs = tmp_path / ".autotune/runs/forked"
    assert (runs / "trial-0001").is_dir()
    # It is started with discovery, which then says whether anything may come out of it.
    assert (runs / "fork-server/stderr.log").read_text() == ""
    if is_forked:
        assert b"fresh process" not in run.output
    else:
        assert said((runs / "trial-0001/stdout.log").read_bytes()) == threads_of(script, tmp_path)
    assert processes_of(tmp_path) == []
