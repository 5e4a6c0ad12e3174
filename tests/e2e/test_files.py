"""Whatever a script had on disk before a study is the same after it, and its caches are its own."""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path

import pytest

from .processes import SCRIPTS, run_autotune, run_warm

SCRIPT = SCRIPTS / "checkpoints.py"
# Few runs: what they find is nothing to this test.
OPTIONS = (
    "--engine",
    "eager",
    "--batch-sizes",
    "8:16",
    "--max-trials",
    "1",
    "--repetitions",
    "1",
    "--time-budget",
    "60m",
)


def tree(folder: Path) -> dict[str, tuple[object, ...]]:
    """All that is in a folder but for our own: contents, permissions and times."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if name.startswith((".autotune", "autotune-", f"{SCRIPT.name}-")):
            continue
        about = path.lstat()
        content = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else None
        when = None if path.is_dir() or path.is_symlink() else about.st_mtime_ns
        found[name] = (content, stat.S_IMODE(about.st_mode), when)
    return found


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """A folder in which the script was run to its end, and that has other files of its user's."""
    (tmp_path / "child.txt").write_text("mine")
    with sqlite3.connect(tmp_path / "tracker.db") as tracker:
        tracker.execute("create table losses (step integer, loss real)")
    tracker.close()
    assert run_warm(SCRIPT, folder=tmp_path).status == 0
    (tmp_path / "child.txt").write_text("mine again")
    (tmp_path / "checkpoints/previous.pt").write_bytes(b"precious")
    (tmp_path / "losses.csv").chmod(0o640)
    os.utime(tmp_path / "losses.csv", (1e9, 1e9))
    return tmp_path


@pytest.mark.slow
def test_a_study_of_a_script_that_writes_checkpoints_leaves_every_file_as_it_was(trained: Path) -> None:
    before = tree(trained)

    study = run_autotune("run", SCRIPT, *OPTIONS, folder=trained)

    assert study.status in (0, 1), study.errors  # 1: one repetition proves nothing
    assert tree(trained) == before
    assert (trained / ".autotune/.gitignore").read_text() == "*\n"
    logs = [log.read_text() for log in trained.glob(".autotune/runs/*/*/stdout.log")]
    begun = {line for log in logs for line in log.splitlines() if line.startswith("BEGINS AT")}
    assert begun == {"BEGINS AT 256"}, "a trial went on from the checkpoint of another"
    assert study.errors.count("put back as it was after each run") == 1, study.errors
    assert "Your script changes checkpoints/ (" in study.errors


@pytest.mark.slow
def test_data_that_a_script_prepares_stays_and_nothing_else_that_it_makes(tmp_path: Path) -> None:
    study = run_autotune("discover", SCRIPT, folder=tmp_path)

    assert study.status == 0, study.errors
    assert set(tree(tmp_path)) == {"data", "data/train.pt"}
    assert "Your script prepares data before it trains, and reads it: that stays." in study.errors
