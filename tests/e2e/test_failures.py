"""Twelve failures that people have, planted one by one: what they are told of the cause, and of what to do next.

``pytest -rP tests/e2e/test_failures.py`` prints what a user reads in each of them.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from autotune.store.database import open_store

from .inside import run_inside
from .processes import SCRIPTS, Finished, autotune_command, run_command
from .told import check_told

BAD = SCRIPTS / "bad"
TRAINS = SCRIPTS / "loader_loop.py"
# One run of the search and no more repetitions than there must be.
SHORT = ("--study", "s", "--max-trials", "2", "--repetitions", "1", "--time-budget", "60m")


def discover(script: str) -> Callable[[Path], Finished]:
    """``autotune discover`` with one of the bad scripts."""
    return lambda folder: run_inside("discover", BAD / script, folder=folder)


def hang(folder: Path) -> Finished:
    return run_inside("run", BAD / "hangs_in_step.py", "--trial-timeout", "4s", folder=folder)


def try_a_larger_batch(folder: Path) -> Finished:
    # Plans are tried first, at the script's own batch size.
    (folder / "mem_opt.json").write_text('["gelu+:1:-1"]')
    return run_inside("run", *SHORT, "--plans-from", "mem_opt.json", BAD / "picky.py", folder=folder)


def train_to_infinity(folder: Path) -> Finished:
    return run_inside("run", *SHORT, "--batch-sizes", "8:16", BAD / "nan_loss.py", folder=folder)


def have_no_torch(folder: Path) -> Finished:
    bare = folder / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    bare.chmod(0o755)
    return run_inside("run", "--python", bare, TRAINS, folder=folder)


def have_files_that_may_not_grow(kilobytes: int) -> Callable[[Path], Finished]:
    """As on a full disk; a shell sets the limit."""
    study = autotune_command("run", "--batch-sizes", "8:16", *SHORT, TRAINS)
    command = ("bash", "-c", f'ulimit -f {kilobytes}; exec "$@"', "bash", *study)
    return lambda folder: run_command(*command, folder=folder)


def have_a_locked_database(folder: Path) -> Finished:
    with open_store(str(folder / "x.db")):
        pass
    with locked(folder / "x.db"):
        return run_inside("run", "--storage", "x.db", TRAINS, folder=folder)


@contextlib.contextmanager
def locked(database: Path) -> Iterator[None]:
    """As by a program that never commits."""
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        yield


@dataclass(frozen=True)
class Failure:
    """What is planted, and what must be told: words of the cause and of the next step, and the exit code.

    With 0 there is an answer all the same, and the failure stands beside it. ``shows`` is further to be seen above.
    """

    plant: Callable[[Path], Finished]
    cause: str
    next_step: str
    status: int = 1
    shows: str = ""


FAILURES = {
    "a module is not installed": Failure(
        discover("misses_module.py"), "No module named 'no_such_layers'", f"Install no_such_layers for {sys.executable}"
    ),
    "the first step raises an exception": Failure(
        discover("misshapen.py"),
        r"RuntimeError: mat1 and mat2 shapes cannot be multiplied \(8x9 and 8x16\)",
        "Run the script by itself first",
        shows=r'misshapen\.py", line 10, in <module>',
    ),
    "larger batches do not fit the script": Failure(
        try_a_larger_batch,
        r"Trial \d \(batch \d+, .*\): RuntimeError: The size of tensor a \(\d+\) must match .* tensor b \(8\)",
        r"next: The error names 8, your own batch size, .*\{batch_size:8\}.* autotune show s --trial \d",
        status=0,
        shows=r"1 of \d trials failed: 1 script error\.",
    ),
    "something kills the process": Failure(
        discover("killed.py"), "kill.* in forward, after step 3", "memory watchdog that did it|Leave the host some room"
    ),
    "a library crashes": Failure(
        discover("segfault.py"),
        "killed by SIGSEGV in backward, after step 2",
        "The end of its log shows which line crashed. Run the script by itself",
        shows="Fatal Python error: Segmentation fault",
    ),
    "a step never ends": Failure(
        hang,
        "not measured within 4 s.*after step 4",
        "allow more with --trial-timeout. The end of its log shows where it hung",
        shows=r'hangs_in_step\.py", line 18 in <module>',
    ),
    "a process that loads data is killed": Failure(
        discover("loses_loader_worker.py"),
        "a worker process of a DataLoader died: ",
        "give the DataLoader fewer workers.*num_workers=0",
    ),
    "the script leaves half-way": Failure(
        discover("exits_half_way.py"),
        "exited with status 1 after 3 training steps",
        "Its last lines say why",
        shows="the checksum of the data is wrong",
    ),
    "the loss is not a number": Failure(
        train_to_infinity,
        "The loss of your unchanged script is NaN or infinite",
        "lower its learning rate or check its data before you train",
        status=0,
    ),
    "the interpreter has no torch": Failure(
        have_no_torch, "'.*/python' has no torch", "--python takes the path of a Python .* that has torch", status=2
    ),
    "the disk is full": Failure(
        have_files_that_may_not_grow(220),
        "reading or writing the database .*studies.db failed: disk I/O error",
        r".* has room, .*\(ulimit -f\), then run the same command again to go on: finished trials are stored",
    ),
    "another program locks the database": Failure(
        have_a_locked_database,
        "the database .*x.db stayed locked by another process",
        "`fuser -v .*/x.db` shows it.*run the same command again",
    ),
}
# A lock is waited for, and test_bad_input.py has a script that runs out of memory.
SLOW = {"another program locks the database", "larger batches do not fit the script"}


@pytest.mark.parametrize(
    "failure", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in FAILURES]
)
def test_a_failure_is_told_by_its_right_cause_and_with_the_next_step(failure: str, tmp_path: Path) -> None:
    planted = FAILURES[failure]

    done = planted.plant(tmp_path)

    answer = " ".join(done.output.decode().split())
    print(f"{failure}: exit code {done.status}", done.errors, done.output.decode(), sep="\n")  # noqa: T201  # for -rP
    assert re.search(planted.shows, done.errors + answer)
    if planted.status:
        check_told(done, status=planted.status, cause=planted.cause, next_step=planted.next_step)
    else:
        assert done.status == 0, done.errors
        assert re.search(planted.cause, answer), answer
        assert re.search(planted.next_step, answer), answer


def test_a_study_whose_first_file_may_not_grow_says_so_as_well(tmp_path: Path) -> None:
    done = have_files_that_may_not_grow(16)(tmp_path)

    check_told(done, status=1, cause="database .*(disk|full|I/O)", next_step="finished trials are stored")


@pytest.mark.slow
def test_the_command_that_a_failed_trial_names_shows_it_in_full(tmp_path: Path) -> None:
    answer = try_a_larger_batch(tmp_path).output.decode()

    command = re.search(r"autotune (show s --trial \d+)", answer)
    assert command, answer
    shown = run_inside(*command[1].split(), folder=tmp_path)
    assert shown.status == 0
    assert b"picky.py" in shown.output
    assert b"RuntimeError: The size of tensor a" in shown.output
