"""Names of any kind on the command line: a study of them runs, and what it shows can be pasted.

What each file makes of them is in ``tests/unit/test_hostile_names.py``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from autotune.cli.places import bundle_of
from tests.fakes.hostile_names import HOSTILE_NAMES

from .inside import run_inside
from .processes import SCRIPTS
from .told import check_told

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
# The folder's, the script's and the study's: among them they have what a shell, a terminal and a database may take
# for something else. Study names have to print.
COMBINED = [
    ("quotes", "right to left", "rich's markup"),
    pytest.param("a newline", "a shell's substitution", "SQL", marks=pytest.mark.slow),
    pytest.param("an escape sequence", "an option", "HTML", marks=pytest.mark.slow),
    pytest.param("as long as can be", "as many bytes as can be", None, marks=pytest.mark.slow),
]


def words_of(command: str, folder: Path) -> list[str]:
    """What a shell makes of a command that was shown."""
    assert command.isprintable()
    done = subprocess.run(["bash", "-c", f"printf '%s\\0' {command}"], cwd=folder, capture_output=True, check=True)
    return [os.fsdecode(word) for word in done.stdout.split(b"\0")[:-1]]


@pytest.mark.parametrize(("folder_name", "script_name", "study"), COMBINED)
def test_a_study_of_such_names_ends_in_a_command_that_can_be_pasted(
    folder_name: str, script_name: str, study: str | None, tmp_path: Path
) -> None:
    folder = tmp_path / HOSTILE_NAMES[folder_name]
    folder.mkdir()
    script = folder / f"{HOSTILE_NAMES[script_name]}.py"
    shutil.copy(SCRIPTS / "toy.py", folder)
    shutil.copy(SCRIPTS / "loader_loop.py", script)
    before = {path.name for path in folder.iterdir()}
    arguments = [*HOSTILE_NAMES.values()]
    named = ["--study", HOSTILE_NAMES[study]] if study else []

    done = run_inside("run", *OPTIONS, *named, f"./{script.name}", "--", *arguments, folder=folder)

    assert done.status in (0, 1), done.errors
    answer = done.output.decode()
    for line in (*answer.splitlines(), *done.errors.splitlines()):
        assert line.isprintable(), line
    shown = re.search(r"^Run it +(autotune .*)$", answer, re.MULTILINE)
    assert shown, answer
    (bundle,) = folder.glob("autotune-*")
    typed = f"./{script.name}" if script.name.startswith("-") else script.name
    assert words_of(shown[1], folder) == ["autotune", "launch", bundle.name, typed, "--", *arguments]
    assert {path.name for path in folder.iterdir()} - {"__pycache__"} == before | {".autotune", bundle.name}
    assert list(tmp_path.iterdir()) == [folder]
    if study:
        assert bundle.name == str(bundle_of(HOSTILE_NAMES[study], None))
        again = run_inside("show", HOSTILE_NAMES[study], folder=folder)
        assert again.status == 0, again.errors


@pytest.mark.parametrize(
    ("what", "cause", "next_step"),
    [
        ("a newline", "bad study name", "--study"),
        ("an option", "bad study name", "--study"),
        ("no UTF-8", "not valid Unicode", "name that is UTF-8"),
    ],
)
def test_a_study_name_that_is_none_is_refused_before_anything_runs(
    what: str, cause: str, next_step: str, tmp_path: Path
) -> None:
    shutil.copy(SCRIPTS / "loader_loop.py", tmp_path / "train.py")

    done = run_inside("run", f"--study={HOSTILE_NAMES[what]}", "train.py", folder=tmp_path)

    check_told(done, status=2, cause=cause, next_step=next_step)
    assert not list(tmp_path.glob(".autotune/runs/*"))


@pytest.mark.parametrize("what", ["script", "folder"])
def test_what_torch_cannot_compile_for_its_name_is_refused(what: str, tmp_path: Path) -> None:
    folder = tmp_path / (HOSTILE_NAMES["no UTF-8"] if what == "folder" else "plain")
    folder.mkdir()
    script = folder / (f"{HOSTILE_NAMES['no UTF-8']}.py" if what == "script" else "train.py")
    shutil.copy(SCRIPTS / "loader_loop.py", script)

    done = run_inside("run", script.name, folder=folder)

    check_told(done, status=2, cause="the name of .* is not UTF-8, and torch can't compile", next_step="rename")
    assert not (folder / ".autotune").exists()
