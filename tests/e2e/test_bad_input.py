"""Everything that can be wrong with what a user gives: the cause, the next step and the exit code, nothing lost.

What goes wrong with a script or a machine that were given rightly: test_failures.py.
"""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autotune.records.configuration import Configuration
from autotune.records.facts import BatchControl
from autotune.records.plan import Plan
from autotune.store.database import open_store

from .conftest import MakeBundle
from .inside import run_inside
from .processes import SCRIPTS, run_autotune, run_command
from .told import check_told

BAD = SCRIPTS / "bad"
TRAINS = SCRIPTS / "loader_loop.py"
# One run of the search and no repetitions: enough to see what a trial's failure comes to.
SHORT = ("--max-trials", "2", "--repetitions", "1", "--time-budget", "60m")


# -- the script


def test_a_missing_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    done = run_autotune("run", "trian.py", folder=tmp_path)
    check_told(done, status=2, cause="there is no script 'trian.py'", next_step="did you mean train.py")
    assert not (tmp_path / ".autotune").exists()


def test_a_folder(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    done = run_inside("run", ".", folder=tmp_path)
    check_told(done, status=2, cause="'.' is a folder", next_step=r"train\.py")


def test_a_syntax_error(tmp_path: Path) -> None:
    done = run_inside("run", BAD / "syntax_error.py", folder=tmp_path)
    check_told(done, status=2, cause=r"syntax_error\.py, line 5: '\(' was never closed", next_step="mend the script")


def test_an_exception_in_the_script_shows_its_own_traceback_first(tmp_path: Path) -> None:
    done = run_inside("run", BAD / "raises.py", folder=tmp_path)
    check_told(done, status=1, cause="LookupError: no batch for step 3", next_step="Run the script by itself first")
    plain = run_command(sys.executable, str(BAD / "raises.py"), folder=tmp_path).errors
    assert plain in done.errors, "the traceback is not the one that plain Python shows"
    assert done.errors.index(plain) < done.errors.index("autotune: ")


def test_wrong_arguments_of_the_script_show_its_own_complaint(tmp_path: Path) -> None:
    done = run_inside("discover", SCRIPTS / "known_rate.py", "--", "--nosuch", folder=tmp_path)
    check_told(done, status=1, cause="exited with status 2 before its first training step", next_step="go after `--`")
    assert "error: unrecognized arguments: --nosuch" in done.errors


@pytest.mark.parametrize(
    ("script", "cause", "next_step"),
    [
        ("no_training.py", "no training step ran", "A training step is a backward"),
        ("two_steps.py", "the script ended after 2 training steps", r"needs about \d+ optimizer steps"),
        ("exits_without_a_word.py", "ended with status 7 and without a result in forward", "Run the script by itself"),
        ("oom_forward.py", "out of memory in forward", "one batch size that fits"),
        ("oom_backward.py", "out of memory in backward", "one batch size that fits"),
        ("oom_optimizer.py", "out of memory in optimizer", "one batch size that fits"),
        ("asks.py", "EOFError: EOF when reading a line", "no standard input.*as an argument"),
        ("gives_up.py", "exited with the message 'this recipe needs 64 GPUs' before its first", "last lines say why"),
        ("hears_of_child_late.py", "BrokenConnection: connection reset by peer", "Run the script by itself first"),
        (
            "misses_data.py",
            "FileNotFoundError.*data/train.bin",
            "was looked up in .*Start autotune in",
        ),
    ],
)
def test_a_script_that_cannot_be_measured(script: str, cause: str, next_step: str, tmp_path: Path) -> None:
    done = run_inside("discover", BAD / script, folder=tmp_path)
    check_told(done, status=1, cause=cause, next_step=next_step)
    logs = Path(done.errors.rstrip().rpartition("Its whole output is in ")[2])
    assert (logs / "stderr.log").exists()


@pytest.mark.slow
def test_a_hang_before_the_first_step_ends_at_the_start_timeout_and_shows_where(tmp_path: Path) -> None:
    done = run_inside("run", BAD / "hangs.py", "--start-timeout", "8s", "--", "stubborn", folder=tmp_path)
    check_told(done, status=1, cause="no training step ended within 8 s", next_step="--start-timeout")
    assert 'hangs.py", line 18 in <module>' in done.errors


# -- trials that fail where the baseline did not


def with_line(folder: Path, line: str) -> Path:
    """A script that does something more before each forward."""
    place = "loss = F.mse_loss(model(x), y)"
    source = TRAINS.read_text()
    assert source.count(place) == 1
    script = folder / "train.py"
    script.write_text("import torch\n" + source.replace(place, f"{line}\n        {place}"))
    shutil.copy(SCRIPTS / "toy.py", folder)
    return script


def test_running_out_of_memory_at_larger_batches_is_what_the_search_is_for(tmp_path: Path) -> None:
    script = (BAD / "oom_backward.py", "--", "--above", "16")
    done = run_inside("run", "--study", "s", "--batch-sizes", "16:32", *SHORT, *script, folder=tmp_path)
    assert done.status == 0, done.errors
    assert re.search(r"^ +\d  batch 32, [^:]*: out of memory in backward", done.errors, re.MULTILINE)
    assert re.search(rb"of 2 trials failed: \d out of memory\.", done.output)
    assert (tmp_path / "autotune-s" / "stack.json").exists()


@pytest.mark.slow
def test_host_memory_is_watched_and_the_limit_kept(tmp_path: Path) -> None:
    script = with_line(tmp_path, "hog = torch.ones(2**28) if len(x) > 12 else None  # 1 GiB")
    options = ("--memory-limit", "700MiB", "--batch-sizes", "16:16", *SHORT)
    done = run_autotune("run", "--study", "s", *options, script, folder=tmp_path)
    assert done.status == 0, done.errors
    # Whichever setting came first: in a run, what is believed to need least goes first.
    assert re.search(
        r"batch 16, [^:]*: out of memory: the resident set reached \S+ [MG]iB before its first step, "
        "the limit is 700 MiB",
        done.errors,
    )
    assert re.search(rb"(\d) of \d trials failed: \1 out of memory\.", done.output)


def test_a_limit_below_what_the_parameters_need_says_by_how_much(tmp_path: Path) -> None:
    done = run_inside("run", "--memory-limit", "10KiB", TRAINS, folder=tmp_path)
    check_told(
        done, status=1, cause=r"need 54\.4 KiB, 44\.4 KiB more than the limit of 10 KiB", next_step="--memory-limit"
    )


# -- options


def test_a_device_that_is_not_there_is_said_before_anything_is_written(tmp_path: Path) -> None:
    done = run_inside("run", "--devices", "7", TRAINS, folder=tmp_path)
    check_told(done, status=2, cause="there is no device 7", next_step="--devices takes indices")
    assert not (tmp_path / ".autotune").exists()


def test_an_interpreter_that_will_not_do_is_said_before_anything_is_written(tmp_path: Path) -> None:
    old = tmp_path / "python3.9"
    old.write_text("""#!/bin/sh\necho '{"version": [3, 9, 1], "torch": "2.4.0", "has_headers": true}'\n""")
    old.chmod(0o755)
    done = run_inside("run", "--python", old, TRAINS, folder=tmp_path)
    check_told(done, status=2, cause="is Python 3.9, which is too old", next_step="--python")
    done = run_inside("run", "--python", "/no/such/python", TRAINS, folder=tmp_path)
    check_told(done, status=2, cause="no interpreter '/no/such/python'", next_step="--python")
    assert not (tmp_path / ".autotune").exists()


# -- plans and bundles that somebody edited

EDITS: dict[str, tuple[Callable[[dict], object], str | None, int, str]] = {
    "a plan without a count": (lambda stack: None, '["gelu+:1"]', 2, "malformed plan 'gelu[+]:1'"),
    "a strategy that is none": (lambda stack: None, '["gelu+:9:-1"]', 2, "bad strategy 9"),
    "no JSON": (lambda stack: None, '["gelu+:1:-1"', 2, "not JSON"),
    "no list of plans": (lambda stack: None, '{"gelu+": 1}', 2, "expected a list of plan strings"),
    "another plan": (lambda stack: None, '["relu+:1:-1"]', 2, "name different plans"),
    "an unknown cluster": (
        lambda stack: stack.update(plans=["nosuch+:1:-1"]),
        '["nosuch+:1:-1"]',
        3,
        "the script has no cluster nosuch[+]:1; it has .*gelu[+]:1",
    ),
    "an unknown engine": (lambda stack: stack.update(engine="warp"), None, 2, "'warp' is none of"),
    "a newer version": (lambda stack: stack.update(version=99), None, 2, "has version 99"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_bundle_edited_into_nonsense_is_refused(edit: str, tmp_path: Path, make_bundle: MakeBundle) -> None:
    plan = Configuration("aot", (Plan("gelu+", 1, -1),))
    bundle = make_bundle(TRAINS, plan, control=BatchControl("none", reason="not asked"))
    change, mem_opt, status, cause = EDITS[edit]
    stack = json.loads((bundle / "stack.json").read_text())
    change(stack)
    (bundle / "stack.json").write_text(json.dumps(stack))
    if mem_opt is not None:
        (bundle / "mem_opt.json").write_text(mem_opt)

    done = run_inside("launch", bundle, TRAINS, folder=tmp_path)

    check_told(done, status=status, cause=cause, next_step="autotune|pip install|a plan is|in both files")
    assert b"done" not in done.output, "the script ran to its end all the same"


# -- the database


def newer(path: Path) -> None:
    with open_store(str(path)):
        pass
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE autotune_alembic_version SET version_num = '9999'")
        connection.execute("UPDATE autotune_about SET value = '9.9.9' WHERE key = 'autotune'")
    connection.close()


@pytest.mark.parametrize(
    ("storage", "make", "cause", "next_step"),
    [
        ("no/such/folder/x.db", lambda path: None, "no folder .*no/such/folder", "mkdir -p"),
        ("x.db", lambda path: path.mkdir(), "is a folder, not a database", "study.db"),
        ("x.db", lambda path: path.write_text("import torch\n" * 99), "is not an SQLite database", "--storage"),
        ("x.db", newer, "was written by autotune 9.9.9 .schema 9999", "pip install --upgrade"),
        ("mysql://somewhere/x", lambda path: None, "unknown kind of database 'mysql'", "sqlite:///"),
        ("postgresql://127.0.0.1:1/x", lambda path: None, "cannot be reached: .*refused", "that the server runs"),
    ],
)
def test_a_database_that_cannot_be_used(
    storage: str, make: Callable[[Path], object], cause: str, next_step: str, tmp_path: Path
) -> None:
    make(tmp_path / storage)
    done = run_inside("run", "--storage", storage, TRAINS, folder=tmp_path)
    check_told(done, status=2, cause=cause, next_step=next_step)
    assert not (tmp_path / ".autotune").exists(), "the script was run before the database was looked at"


# -- the disk


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """``mounted("size=400k")`` makes a file system of its own, where this process may."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(options: str) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        if subprocess.run(command, capture_output=True, timeout=30, check=False).returncode:
            pytest.skip("this process may not mount a file system")
        return folder

    yield mount
    subprocess.run(["umount", "--lazy", str(folder)], capture_output=True, timeout=30, check=False)


@pytest.mark.slow
def test_a_full_disk_keeps_what_was_finished_and_the_study_goes_on_when_there_is_room(
    mounted: Callable[..., Path],
) -> None:
    disk = mounted("size=16m")
    # Until a choice was tried once no search ends, however fast the machine is at the moment: here are two.
    options = ("--study", "s", "--batch-sizes", "8:16", "--allow", "foreach-optimizer,bf16", *SHORT)
    first = run_autotune("run", *options, "--max-trials", "1", TRAINS, folder=disk)
    assert first.status == 0, first.errors
    before = outcomes(disk)
    ballast = disk / "ballast"
    subprocess.run(["dd", "if=/dev/zero", f"of={ballast}", "bs=1k"], capture_output=True, timeout=60, check=False)

    full = run_autotune("resume", "s", "--max-trials", "3", folder=disk)

    check_told(full, status=1, cause="[Nn]o (room|space) left", next_step="make room")
    ballast.unlink()
    assert before.items() <= outcomes(disk).items()
    again = run_autotune("resume", "s", "--max-trials", "3", folder=disk)
    assert again.status == 0, again.errors
    assert before.items() < outcomes(disk).items()


def outcomes(folder: Path) -> dict[int, object]:
    with open_store(str(folder / ".autotune/studies.db"), create=False) as store:
        trials = store.open("s").record().trials
    assert all(trial.state == "finished" for trial in trials)
    return {trial.number: trial.outcome for trial in trials if trial.outcome is not None}


def test_a_read_only_folder(mounted: Callable[..., Path], tmp_path: Path) -> None:
    disk = mounted("size=1m,ro")
    done = run_autotune("run", TRAINS, folder=disk)
    check_told(done, status=2, cause="cannot make the folder .*Read-only file system", next_step="can write to")
    done = run_autotune("run", "--storage", tmp_path / "x.db", TRAINS, folder=disk)
    check_told(done, status=2, cause="cannot make the folder .*Read-only file system", next_step="can write to")
