"""Folders that nobody would make for a training: what is outside of them stays as it is, or it is told.

What is put back after which change is in ``tests/unit/test_files.py``, what is sent to a cluster of such a folder in
``tests/unit/test_launch_archive.py``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.hostile_names import HOSTILE_NAMES

from .inside import run_inside
from .processes import SCRIPTS, Finished, run_autotune
from .test_bad_input import check_told, with_line
from .test_files import tree


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a script, beside one that is somebody else's."""
    folder = tmp_path / "mine"
    folder.mkdir()
    for name in ("toy.py", "loader_loop.py"):
        shutil.copy(SCRIPTS / name, folder)
    outside = tmp_path / "outside"
    (outside / "sub").mkdir(parents=True)
    for name in ("a", "b", "sub/c"):
        (outside / name).write_text("somebody's")
    return folder


# -- what autotune itself writes


def a_link(name: str, target: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        link = folder / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(folder.parent / "outside" / target, link.parent))

    return make


def a_pipe(name: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(folder / name)

    return make


def a_journal_from_elsewhere(folder: Path) -> None:
    kept = folder / ".autotune/kept"
    kept.mkdir(parents=True)
    entry = {"path": str(folder.parent / "outside/a"), "was": "absent"}
    (kept / "journal.jsonl").write_text(f'{{"folder": "/somewhere/else"}}\n{json.dumps(entry)}\n')


RUN = ("run", "--study", "s", "loader_loop.py")
SHOW = ("show", "s")
LINK = "is a link to .*outside.*, and autotune does not write through it"

REFUSED: dict[str, tuple[Callable[[Path], None], tuple[str, ...], str, str]] = {
    "our folder is somebody else's": (a_link(".autotune", ""), RUN, LINK, "an empty folder: that one contains 'a'"),
    "our folder dangles": (a_link(".autotune", "none"), RUN, LINK, "an empty folder: that one leads nowhere"),
    "our folder is a file": (lambda path: (path / ".autotune").touch(), RUN, "cannot make the folder", "write to"),
    "the database": (a_link(".autotune/studies.db", "new.db"), RUN, LINK, "remove it"),
    "the database, read": (a_link(".autotune/studies.db", "a"), SHOW, LINK, "remove it"),
    "the database is a pipe": (a_pipe(".autotune/studies.db"), SHOW, "is no plain file", "remove it"),
    "what git passes over": (a_link(".autotune/.gitignore", "new"), RUN, LINK, "remove it"),
    "all runs": (a_link(".autotune/runs", "sub"), RUN, LINK, "remove it"),
    "the study's runs": (a_link(".autotune/runs/s", "sub"), RUN, LINK, "remove it"),
    "a run": (a_link(".autotune/runs/s/discovery", "sub"), RUN, LINK, "remove it"),
    "what is kept": (a_link(".autotune/kept", "sub"), RUN, LINK, "remove it"),
    "the change log": (a_link(".autotune/kept/journal.jsonl", "a"), RUN, LINK, "remove it"),
    "a change log of another folder": (a_journal_from_elsewhere, RUN, "of runs in another folder, '/some", "remove it"),
    "the bundle": (a_link("autotune-s", "sub"), RUN, LINK, "--output DIR"),
    "the settings are a pipe": (a_pipe("autotune.toml"), RUN, "autotune.toml' is no plain file", "move it away"),
    "the project is a pipe": (a_pipe("pyproject.toml"), SHOW, "pyproject.toml' is no plain file", "move it away"),
    "the script is a pipe": (a_pipe("p.py"), ("run", "p.py"), "'p.py' is no plain file", "on a disk"),
    "the script is a loop": (
        lambda path: (path / "p.py").symlink_to("p.py"),
        ("run", "p.py"),
        "cannot read 'p.py': Too many levels of symbolic links",
        "permissions",
    ),
    "the script's name is too long": (lambda path: None, ("run", "x" * 300), "cannot read 'x*': File name", "name"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_would_write_elsewhere_or_wait_for_ever_is_refused_before_anything_runs(what: str, folder: Path) -> None:
    make, command, cause, next_step = REFUSED[what]
    make(folder)
    before = everything(folder.parent)

    done = run_inside(*command, folder=folder)

    status = 1 if "change log of another" in what else 2
    check_told(done, status=status, cause=cause, next_step=next_step)
    assert {name for name in before.items() ^ everything(folder.parent).items() if ".autotune" not in name[0]} == set()
    assert not list(folder.rglob("request.json")), "the script was run"


def everything(folder: Path) -> dict[str, object]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() and not path.is_symlink() else None
        for path in folder.rglob("*")
    }


def test_a_link_to_an_empty_folder_is_where_the_study_lives(folder: Path) -> None:
    (folder.parent / "scratch").mkdir()
    (folder / ".autotune").symlink_to("../scratch")

    for _ in range(2):
        done = run_inside("discover", "loader_loop.py", folder=folder)
        assert done.status == 0, done.errors

    assert {".gitignore", "runs"} <= {path.name for path in (folder.parent / "scratch").iterdir()}


# -- what the script writes


def hostile(folder: Path) -> None:
    """All of it at once."""
    links = {"file": "../outside/a", "folder": folder.parent / "outside", "dangling": "../outside/none", "loop": "loop"}
    for name, target in links.items():
        (folder / name).symlink_to(target)
    (folder / "hard").hardlink_to(folder.parent / "outside/b")
    os.mkfifo(folder / "pipe")
    for name in HOSTILE_NAMES.values():
        (folder / name).write_text("mine")
    with (folder / "huge.bin").open("wb") as file:
        file.truncate(4 * 2**30)  # no byte of it is on the disk
    (folder / "nobody").mkdir(mode=0)


WRITES = """
def write(names):
    import os, pathlib, shutil
    for name in ("file", "dangling", "hard", *names):
        open(name, "a").write("trial")
    open("folder/sub/c", "w").write("trial")
    pathlib.Path("folder/new").mkdir(exist_ok=True)
    shutil.rmtree("folder/sub")
    for name in ("loop", "pipe", "huge.bin"):
        if os.path.lexists(name):
            os.rename(name, name + "-moved")
    os.chmod("folder/b", 0o777)
"""


@pytest.mark.slow
def test_what_a_script_writes_in_such_a_folder_and_through_its_links_is_as_it_was(folder: Path) -> None:
    hostile(folder)
    (folder / "writes.py").write_text(WRITES)
    names = [*HOSTILE_NAMES.values()]
    script = with_line(folder, f"import writes; os.path.isdir('folder/sub') and writes.write({names!r})")
    script.write_text(f"import os\n{script.read_text()}")
    before = look(folder)

    done = run_autotune("discover", script, folder=folder)

    assert done.status == 0, done.errors
    assert look(folder) == before
    told = [line for line in done.errors.splitlines() if line.startswith(("Your script changes", "Your script makes"))]
    assert len(told) == 2, done.errors
    assert all(line.isprintable() for line in told)
    assert str(folder.parent / "outside") in told[0]


def look(folder: Path) -> dict[str, tuple[object, ...]]:
    """Contents, permissions and times, inside and outside; of the huge file the size alone."""
    huge = folder / "huge.bin"
    size = huge.stat().st_size if huge.exists() else None
    aside = folder.parent.with_name(f"{folder.parent.name}-huge")
    if size is not None:
        huge.rename(aside)
    try:
        found = {**tree(folder), **{f"outside/{name}": at for name, at in tree(folder.parent / "outside").items()}}
    finally:
        if size is not None:
            aside.rename(huge)
    return {name: at for name, at in found.items() if "__pycache__" not in name} | {"huge.bin": (size,)}


UNPRIVILEGED = ("setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner", "--inh-caps=-all")


def without_privileges(*command: str | Path, folder: Path) -> Finished:
    """A command whose user may do what permissions say, root too."""
    from .processes import autotune_command, run_command

    if os.getuid() == 0 and (
        shutil.which("setpriv") is None or subprocess.run([*UNPRIVILEGED, "true"], check=False).returncode
    ):
        pytest.skip("root can't give its privileges up here")
    prefix = UNPRIVILEGED if os.getuid() == 0 else ()
    return run_command(*prefix, *autotune_command(*command), folder=folder)


def test_a_folder_that_may_not_be_written_is_refused(folder: Path) -> None:
    folder.chmod(0o500)

    done = without_privileges("run", "loader_loop.py", folder=folder)

    check_told(done, status=2, cause="cannot make the folder .*Permission denied", next_step="you can write to")


@pytest.mark.slow
def test_closed_folders_and_files_are_put_back_or_told(folder: Path) -> None:
    (folder / "nobody").mkdir(mode=0)
    (folder / "closed").mkdir()
    for name in ("closed/mine", "log", "notes"):
        (folder / name).write_text("mine")
    script = with_line(
        folder,
        "open('log', 'a').write('x'); os.chmod('notes', 0o600); open('notes', 'a').write('x'); "
        "os.chmod('closed', 0o700); open('closed/mine', 'w').write('x'); open('closed/new', 'w').close(); "
        "os.chmod('closed', 0o500)",
    )
    script.write_text(f"import os\n{script.read_text()}")
    (folder / "log").chmod(0o200)
    (folder / "notes").chmod(0o400)
    (folder / "closed").chmod(0o500)
    before = tree(folder)

    done = without_privileges("discover", script, folder=folder)

    assert done.status == 0, done.errors
    after = tree(folder)
    after = {name: at for name, at in after.items() if "__pycache__" not in name}
    assert {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} == {"log"}
    assert "log was changed and not kept: Permission denied." in done.errors
