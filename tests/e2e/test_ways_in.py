"""Scripts that are not a file with a name: a module of a package, and what `torchrun` and `accelerate` start."""

from __future__ import annotations

import importlib.util
import json
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from .inside import run_inside
from .processes import SCRIPTS, run_autotune, run_command


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder above a package, with what a launcher may start beside it."""
    shutil.copytree(SCRIPTS / "package", tmp_path / "package", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("toy.py", "ranks.py", "loader_loop.py"):
        shutil.copy(SCRIPTS / name, tmp_path)
    return tmp_path


@pytest.mark.slow
def test_a_module_of_a_package_is_tuned_and_launched_as_python_runs_it(folder: Path) -> None:
    options = (
        "--study",
        "s",
        "--batch-sizes",
        "8:8",
        "--max-trials",
        "1",
        "--repetitions",
        "1",
        "--time-budget",
        "60m",
    )
    done = run_autotune("run", *options, "--json", "-m", "package.train", "--", "4", folder=folder)
    assert done.status == 0, done.errors

    document = json.loads(done.output)
    assert document["verdict"]["answer"], "it was searched, and not only discovered"
    command = document["launch"]["command"]
    assert command == "autotune launch autotune-s -m package.train -- 4"
    # The study in the database knows the module as well, and so does the bundle.
    assert json.loads(run_inside("show", "s", "--json", folder=folder).output)["settings"]["module"] == "package.train"
    assert "autotune launch autotune-s -m package.train -- 4" in (folder / "autotune-s/README.txt").read_text()
    launched = run_autotune(*shlex.split(command)[1:], folder=folder)
    plain = run_command(sys.executable, "-m", "package.train", "4", folder=folder)
    assert (plain.status, launched.status) == (0, 0), launched.errors
    assert launched.output == plain.output


def test_a_module_is_found_from_a_folder_of_its_own_as_well(folder: Path) -> None:
    done = run_inside("discover", "--scratch", "-m", "package.train", "--", "4", folder=folder)
    assert done.status == 0, done.errors


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "num_processes"),
    [
        ("torchrun --standalone --nproc-per-node 2 ranks.py", 2),
        pytest.param(
            "accelerate launch --num_processes 1 --cpu loader_loop.py",
            1,
            marks=[
                pytest.mark.slow,
                pytest.mark.skipif(not importlib.util.find_spec("accelerate"), reason="accelerate is not installed"),
            ],
        ),
    ],
)
def test_what_a_launcher_starts_is_measured(command: str, num_processes: int, folder: Path) -> None:
    done = run_autotune("discover", "--json", "--", *command.split(), folder=folder)
    assert done.status == 0, done.errors
    found = json.loads(done.output)
    assert found["baseline"]["measurement"]["num_processes"] == num_processes
    assert found["batch_size"] == 8


@pytest.mark.slow
def test_what_a_rank_fails_of_before_it_trains_is_told_and_not_that_one_has_failed(folder: Path) -> None:
    (folder / "early.py").write_text("import torch\n\ndef prepare():\n    raise LookupError('no data')\n\nprepare()\n")
    command = ("torchrun", "--standalone", "--nproc-per-node", "2", "early.py")
    done = run_autotune("discover", "--", *command, folder=folder)
    assert done.status == 1
    assert "autotune: the unmodified script could not be measured: LookupError: no data" in done.errors
    assert "in prepare" in done.errors
    assert "ChildFailedError" not in done.errors


def test_a_notebook_is_refused_with_the_way_to_make_a_script_of_it(folder: Path) -> None:
    (folder / "train.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    done = run_autotune("run", "train.ipynb", folder=folder)
    assert done.status == 2
    assert "'train.ipynb' is a notebook" in done.errors
    assert "jupyter nbconvert --to script train.ipynb" in done.errors
    assert not (folder / ".autotune").exists()
