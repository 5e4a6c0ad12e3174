"""Whatever a run does to files that were there, they are the same when no run is at work any more."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest

from autotune.errors import RunError
from autotune.files.backup import Backup
from autotune.files.backup_directory import BackupDirectory
from autotune.files.change_log import ChangeLog, Entry
from autotune.files.changes import Changes
from autotune.files.put_back import put_back
from tests.fakes.hostile_names import HOSTILE_NAMES

EMPTIES = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
ROOT = Path(__file__).resolve().parents[2]
HEAD = f"""
import os, shutil, sqlite3, stat, subprocess, sys, tempfile
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from autotune.files.backup import Backup, install_backup, note_training
Backup.heard.__cantrace__ = True  # else coverage, a tracer, sees nothing of what an audit hook does
install_backup(sys.argv[1])
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with files of a user's."""
    place = tmp_path / "place"
    (place / "out/old").mkdir(parents=True)
    for name in ("a", "b", "log", "out/old/one", "out/old/two", "out/last"):
        (place / name).write_text(f"{name}, as it was\n")
        os.utime(place / name, (1e9, 1e9))
    (place / "a").chmod(0o640)
    (place / "link").symlink_to("a")
    (place / "twin").hardlink_to(place / "b")
    _make_hostile(place)
    return place


def _make_hostile(place: Path) -> None:
    """Links out of the folder, what is no file, and names that nobody expects."""
    outside = place.parent / "outside"
    (outside / "sub").mkdir(parents=True)
    for path in (outside / "a", outside / "sub/b", *(place / name for name in LONG)):
        path.write_text(f"{path.name}, as it was\n")
        os.utime(path, (1e9, 1e9))
    links = {"file": outside / "a", "folder": "../outside", "dangling": "../outside/none", "loop": "loop", "here": "."}
    for name, target in links.items():
        (place / f"{name}-link").symlink_to(target)
    (place / "hard").hardlink_to(outside / "a")
    os.mkfifo(place / "pipe")


def around(place: Path) -> dict[str, tuple[object, ...]]:
    """What is in the folder and in the one that its links lead to."""
    return tree(place.parent)


def tree(folder: Path) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(folder.rglob("*")):
        if ".autotune" not in path.parts:
            about = path.lstat()
            content = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else ""
            when = about.st_mtime if path.is_file() and not path.is_symlink() else 0
            found[str(path.relative_to(folder))] = (content, stat.S_IMODE(about.st_mode), when)
    return found


def backups_of(place: Path) -> Path:
    folder = place / ".autotune/kept"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def run(place: Path, script: str) -> None:
    """Run a script as a run does, in a process of its own."""
    command = [sys.executable, "-c", HEAD + textwrap.dedent(script), str(backups_of(place))]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# As many bytes as a name may have, of one and of several bytes a letter.
LONG = ("y" * 255, "训" * 85)

WRITES = {
    "permissions": "os.chmod('a', 0o600); os.chmod('out', 0o700); os.fchmod(os.open('out/last', os.O_RDONLY), 0o777)",
    "permissions of what is then replaced": "os.chmod('a', 0o600); os.replace('b', 'a'); os.chmod('a', 0o777)",
    "permissions of what was renamed": "os.rename('a', 'c'); os.chmod('c', 0o600); os.utime('c')",
    "permissions of what is then changed": "os.chmod('a', 0o600); os.utime('a'); open('a', 'a').write('new')",
    "a folder closed": "Path('out/old/n').touch(); os.remove('out/old/one'); os.chmod('out/old', 0o500)",
    "times": "os.utime('a'); Path('out/last').touch(); os.utime('log', (5, 5))",
    "through a link to a file, emptied": "open('file-link', 'w').write('new')",
    "through a link to a file, added to": "open('file-link', 'a').write('new')",
    "through a link to a file, in place": "open('file-link', 'r+').write('new')",
    "through a hard link": "open('hard', 'a').write('new')",
    "through a link to a folder": "open('folder-link/a', 'a').write('x'); os.makedirs('folder-link/n/m')",
    "through a link to a folder, removed": "shutil.rmtree('folder-link/sub'); os.remove('folder-link/a')",
    "through a link to a folder, renamed": "os.rename('a', 'folder-link/n'); os.rename('folder-link/sub', 's')",
    "through a link that dangles": "open('dangling-link', 'w').write('new')",
    "through links to the folder itself": "open('here-link/here-link/a', 'w').write('new')",
    "links out replaced": "os.replace('b', 'file-link'); os.remove('folder-link'); os.mkdir('folder-link')",
    "a loop of links": "os.rename('loop-link', 'm'); Path('loop-link').touch()",
    "a pipe removed": "os.remove('pipe')",
    "a pipe renamed": "os.rename('pipe', 'other'); Path('pipe').write_text('a file')",
    "long names": f"for name in {LONG!r}: open(name, 'a').write('new')",
    "long names, replaced": f"for name in {LONG!r}: open(name, 'w').write('new')",
    "long names, removed": f"for name in {LONG!r}: os.remove(name)",
    "names of any kind": f"for name in {[*HOSTILE_NAMES.values()]!r}: Path(name).touch(); os.rename(name, name[:9])",
    "overwritten": "Path('a').write_text('new')",
    "overwritten through a link": "Path('link').write_text('new')",
    "overwritten by one of two names": "Path('twin').write_text('new')",
    "appended to": "open('log', 'a').write('more')",
    "changed in place": "f = open('a', 'r+'); f.write('new'); f.close()",
    "changed through os.open": "d = os.open('a', os.O_RDWR); os.pwrite(d, b'new', 0)",
    "cut": "os.truncate('a', 2)",
    "removed": "os.remove('a')",
    "a link removed and made anew": "os.remove('link'); os.symlink('b', 'link')",
    "replaced": "Path('n').write_text('new'); os.replace('n', 'a')",
    "renamed": "os.rename('a', 'moved')",
    "renamed and then written to": "os.rename('a', 'moved'); Path('moved').write_text('new')",
    "renamed and then appended to": "os.rename('a', 'moved'); open('moved', 'a').write('more')",
    "renamed in turn": "os.rename('a', 'c'); os.rename('b', 'a'); os.rename('c', 'b'); open('a', 'r+').write('x')",
    "a folder removed": "shutil.rmtree('out')",
    "a folder removed and made anew": "shutil.rmtree('out'); os.makedirs('out/new'); Path('out/last').write_text('n')",
    "a folder renamed and written into": "os.rename('out', 'gone'); Path('gone/last').write_text('new')",
    "a folder moved": "shutil.move('out', 'elsewhere')",
    "a file in the place of a folder": "shutil.rmtree('out'); Path('out').write_text('file')",
    "a folder in the place of a file": "os.remove('a'); os.mkdir('a'); Path('a/b').write_text('new')",
    "made": "Path('new').write_text('new'); os.makedirs('x/y'); Path('x/y/n').touch(); os.link('x/y/n', 'second')",
    "relative to an open folder": "d = os.open('out', 0); os.unlink('last', dir_fd=d); os.mkdir('n', dir_fd=d)",
    "from another folder": "os.chdir('out/old'); Path('../last').write_text('new'); Path('three').write_text('new')",
    "copied over": "shutil.copy2('b', 'a')",
    "a temporary file left behind": "tempfile.NamedTemporaryFile(dir='.', delete=False).write(b'new')",
    "a database": "c = sqlite3.connect('db'); c.execute('create table t (i)'); c.commit(); c.close()",
    "a folder made, filled and renamed": "os.makedirs('t/u'); Path('t/u/n').touch(); os.rename('t', 'v')",
    "made by another program": "os.mkdir('t'); os.system('touch t/n'); os.rename('t', 'v'); os.rename('v/n', 'm')",
    "removed from another program": "os.mkdir('t'); os.system('touch t/n'); shutil.rmtree('t'); Path('m').touch()",
    "a socket": "import socket; os.mkdir('t'); s = socket.socket(socket.AF_UNIX); s.bind('t/s')",
    "in a forked process": "\nif os.fork() == 0:\n    Path('a').write_text('new')\n    os._exit(0)\nos.wait()",
    "killed in the middle": "f = open('a', 'w'); f.write('new'); f.flush(); os.system('true'); os.remove('b')",
    "in threads": """
        import threading
        def write(number):
            for name in ("a", "b", "log", "out/last"):
                open(name, "a" if number % 2 else "w").write("new")
        threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    """,
}


@pytest.mark.process
@pytest.mark.parametrize("what", WRITES)
@pytest.mark.parametrize("moment", ["early", "training"])
def test_every_file_is_as_it_was(place: Path, what: str, moment: str) -> None:
    before = around(place)
    run(place, ("note_training()\n" if moment == "training" else "") + textwrap.dedent(WRITES[what]))
    assert around(place) != before, "the script has changed nothing: the test shows nothing"

    changes = put_back(backups_of(place))

    assert changes
    assert (changes.others, changes.unkept, changes.newer) == ([], {}, {})
    assert around(place) == before
    assert not list((place / ".autotune/kept").glob("aside/*"))


@pytest.mark.process
def test_what_was_opened_to_be_emptied_and_is_no_file_is_not_touched(place: Path) -> None:
    before = around(place)
    run(
        place,
        "os.close(os.open('pipe', os.O_RDWR | os.O_CREAT | os.O_TRUNC)); "
        "stat.S_ISFIFO(os.stat('pipe').st_mode) or sys.exit('another one')",
    )

    put_back(backups_of(place))

    assert around(place) == before


def test_a_file_with_a_long_name_that_somebody_else_has_replaced_keeps_what_fits_of_it(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["autotune.files.put_back"], "_SLACK_S", 0.0)
    backup = Backup(backups_of(place), {})
    for name in LONG:
        backup.heard("open", (str(place / name), "w", EMPTIES))
    (backups_of(place) / "alive").touch()
    time.sleep(0.1)
    for name in LONG:
        (place / name).write_text("three days of training")

    changes = BackupDirectory(backups_of(place)).recover()

    assert {path.removeprefix(f"{place}/") for path in changes.newer} == set(LONG)
    assert [Path(older).read_text() for older in changes.newer.values()] == [f"{name}, as it was\n" for name in LONG]


def test_what_a_journal_of_another_folder_names_is_left_alone(place: Path) -> None:
    backup = Backup(backups_of(place), {})
    backup.heard("open", (str(place / "new"), "w", EMPTIES))
    backup.heard("open", (str(place / "a"), "w", EMPTIES))
    (place / "new").write_text("of a run that is at work")
    copy = place.parent / "copy"
    shutil.copytree(backups_of(place), copy / "kept")

    with pytest.raises(RunError, match=f"is of runs in another folder, '{backups_of(place)}'") as told:
        BackupDirectory(copy / "kept").recover()

    assert str(copy / "kept") in told.value.hint
    assert (place / "new").read_text() == "of a run that is at work"
    assert (copy / "kept/journal.jsonl").exists()


def test_a_journal_that_says_nothing_of_where_it_was_written_is_left_alone(place: Path) -> None:
    line = json.dumps({"path": str(place / "a"), "was": "absent"})
    (backups_of(place) / "journal.jsonl").write_text(f"{line}\n")

    with pytest.raises(RunError, match="is of runs in another folder, and is not put back"):
        BackupDirectory(backups_of(place)).recover()

    assert (place / "a").exists()


def test_who_may_write_a_file_and_does_not_own_it_is_told_what_stays(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, **options: object) -> None:
        raise PermissionError(1, "Operation not permitted", path)

    backup = Backup(backups_of(place), {})
    backup.heard("os.utime", (str(place / "a"), None, None, -1))
    os.utime(place / "a")
    with monkeypatch.context() as patched:
        patched.setattr(os, "utime", refuse)
        changes = BackupDirectory(backups_of(place)).recover()

    assert changes.unkept == {
        str(place / "a"): "its permissions and time stay as they are now: Operation not permitted"
    }


def test_files_in_shared_memory_are_files(tmp_path: Path) -> None:
    backup = Backup(backups_of(tmp_path), {})
    for name in ("/dev/shm/autotune-test-none", "/dev/autotune-test-none"):
        backup.heard("open", (name, "w", EMPTIES))

    log = ChangeLog(backups_of(tmp_path))
    log.read()

    assert list(log.first) == ["/dev/shm/autotune-test-none"]


@pytest.mark.process
@pytest.mark.parametrize("how", ["w", "a", "r+"])
def test_a_thread_waits_until_another_has_kept_the_file(place: Path, how: str) -> None:
    before = tree(place)
    run(
        place,
        f"""
        import threading, time
        from autotune.files import backup
        ways = {{name: getattr(backup, name) for name in ("_move", "_copy")}}
        begun = threading.Event()
        def slowly(way):
            def act(*about):
                begun.set()
                time.sleep(0.3)
                way(*about)
            return act
        for name, way in ways.items():
            setattr(backup, name, slowly(way))
        def write():
            with open("a", {how!r}) as file:
                file.write("first")
        first = threading.Thread(target=write)
        first.start()
        assert begun.wait(10)
        open("a", "w").write("second")
        first.join()
        """,
    )
    assert tree(place) != before

    put_back(backups_of(place))

    assert tree(place) == before


# A process dies between noting a file and moving it, and the next one keeps it.
KEPT_BY_THE_SECOND = """
    import signal
    from autotune.files import backup
    if os.fork() == 0:
        backup._move = lambda *about: os.kill(os.getpid(), signal.SIGKILL)
        open("a", "w")
    os.wait()
    Path("a").write_text("second")
"""


@pytest.mark.process
def test_what_somebody_meant_to_keep_and_did_not_is_kept_by_the_next(place: Path) -> None:
    before = tree(place)
    run(place, KEPT_BY_THE_SECOND)
    assert tree(place) != before

    put_back(backups_of(place))

    assert tree(place) == before


@pytest.mark.process
def test_what_was_kept_at_the_second_try_is_not_kept_once_more(place: Path) -> None:
    """Guards the user's file against what a run has made of it: of several tries one has come about."""
    before = tree(place)
    run(place, KEPT_BY_THE_SECOND)
    run(place, "Path('a').write_text('third')\nPath('a').write_text('fourth')")

    put_back(backups_of(place))

    assert tree(place) == before


@pytest.mark.process
def test_a_place_that_cannot_take_a_file_is_passed_over_once(place: Path) -> None:
    before = tree(place)
    run(
        place,
        """
        from autotune.files import backup
        move = backup._move
        def refused(path, kept):
            if "aside" in kept:
                raise OSError(18, "another device")
            move(path, kept)
        backup._move = refused
        Path("a").write_text("first")
        Path("a").write_text("second")
        """,
    )

    put_back(backups_of(place))

    assert tree(place) == before


@pytest.mark.process
def test_what_fails_without_us_fails_with_us_and_changes_nothing(place: Path) -> None:
    before = tree(place)
    run(
        place,
        """
        for action in (
            lambda: open("a", "x"), lambda: open("nowhere/a", "w"), lambda: os.mkdir("out"), lambda: os.remove("none"),
            lambda: os.rename("none", "a"), lambda: os.rmdir("out"), lambda: open("out", "w"),
        ):
            try:
                action()
            except OSError:
                continue
            sys.exit("it should have failed")
        """,
    )
    assert tree(place) == before
    put_back(backups_of(place))
    assert tree(place) == before


@pytest.mark.process
def test_the_first_of_several_runs_says_what_was_there(place: Path) -> None:
    before = tree(place)
    for _ in range(3):
        run(place, "Path('a').write_text('new'); shutil.rmtree('out', ignore_errors=True); Path('n').touch()")

    put_back(backups_of(place))

    assert tree(place) == before


@pytest.mark.process
def test_data_that_is_made_and_read_before_training_stays_but_for_what_training_puts_beside_it(place: Path) -> None:
    run(
        place,
        """
        os.makedirs("data/raw"); Path("data/raw/x").write_text("x"); Path("data/index").write_text("i")
        Path("notes").write_text("n"); open("data/raw/x").read()
        os.mkdir("results")
        note_training()
        Path("data/checkpoint").write_text("c"); os.mkdir("data/folder"); Path("data/folder/f").touch()
        open("data/checkpoint").read()
        """,
    )

    changes = put_back(backups_of(place))

    assert changes is not None
    assert changes.data == [str(place / "data")]
    assert {name for name in tree(place) if "data" in name} == {"data", "data/raw", "data/raw/x", "data/index"}
    assert not (place / "notes").exists()
    assert not (place / "results").exists()


@pytest.mark.process
def test_nothing_is_put_back_while_a_process_of_a_run_lives(place: Path) -> None:
    before = tree(place)
    code = HEAD + "Path('a').write_text('new'); print('written', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(backups_of(place))]
    with subprocess.Popen(command, cwd=place, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert put_back(backups_of(place)) is None
        assert (place / "a").read_text() == "new"
        process.kill()

    assert put_back(backups_of(place))
    assert tree(place) == before


@pytest.mark.process
def test_what_was_written_after_a_run_had_died_is_somebody_elses(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "mine").write_text("three days of training")
    os.utime(place / "mine", (1e9, 1e9))
    run(place, "Path('a').write_text('trial'); Path('b').write_text('trial'); Path('n').touch(); os.mkdir('made')")
    monkeypatch.setattr(sys.modules["autotune.files.put_back"], "_SLACK_S", 0.0)
    (backups_of(place) / "alive").touch()
    time.sleep(0.1)
    for name in ("a", "made/weights"):
        (place / name).write_text("three days of training")
    (place / "mine").rename(place / "n")  # which keeps its time

    changes = BackupDirectory(backups_of(place)).recover()

    for name in ("a", "n", "made/weights"):
        assert (place / name).read_text() == "three days of training"
    assert Path(changes.newer[str(place / "a")]).read_text() == "a, as it was\n"
    assert (place / "b").read_text() == "b, as it was\n"
    assert changes.others == [str(place / "made/weights"), str(place / "n")]
    assert "a was changed by another program, and stays" in " ".join(changes.sentences(place))


@pytest.mark.process
def test_what_somebody_else_saves_where_a_run_has_made_folders_stays(place: Path) -> None:
    before = tree(place)
    run(
        place,
        """
        os.makedirs("out/new/deep"); Path("out/new/deep/n").touch(); os.remove("a"); os.mkdir("a"); Path("a/n").touch()
        os.mkdir("early"); Path("early/n").touch()
        note_training()
        os.rename("early", "late")
        """,
    )
    for name in ("out/new/deep/mine", "a/mine"):
        (place / name).write_text("another training")

    changes = put_back(backups_of(place))

    assert changes is not None
    assert changes.others == [str(place / "out/new/deep/mine")]
    assert (place / "out/new/deep/mine").read_text() == (place / "a/mine").read_text() == "another training"
    assert Path(changes.newer[str(place / "a")]).read_text() == "a, as it was\n"
    assert "out/new/deep/mine lies where your script has made something" in " ".join(changes.sentences(place))
    (place / "a/mine").unlink()
    (place / "a").rmdir()
    Path(changes.newer[str(place / "a")]).rename(place / "a")
    (place / "out/new/deep/mine").unlink()
    (place / "out/new/deep").rmdir()
    (place / "out/new").rmdir()
    assert tree(place) == before


@pytest.mark.process
def test_putting_back_may_be_ended_and_done_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tree(place)
    run(place, "shutil.rmtree('out'); Path('a').write_text('new'); os.remove('b'); Path('n').touch()")
    replace, done = os.replace, []

    def fails_at_the_third(source: str, target: str) -> None:
        done.append(target)
        if len(done) == 3:
            raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", fails_at_the_third)
        with pytest.raises(KeyboardInterrupt):
            put_back(backups_of(place))
    assert tree(place) != before

    put_back(backups_of(place))

    assert tree(place) == before


def test_a_line_that_a_loss_of_power_cut_off_is_passed_over(tmp_path: Path) -> None:
    log = ChangeLog(tmp_path)
    with log.turn():
        log.append(Entry("/a", "absent"))
    with (tmp_path / "journal.jsonl").open("ab") as file:
        file.write(b'{"path": "/b", "wa')
    with log.turn():
        log.append(Entry("/c", "absent"))

    read = ChangeLog(tmp_path)
    read.read()

    assert [entry.path for entry in read.entries] == ["/a", "/c"]


def test_a_file_that_was_noted_but_not_yet_moved_stays_where_it_is(place: Path) -> None:
    before = tree(place)
    log = ChangeLog(backups_of(place))
    with log.turn():
        log.append(Entry(str(place / "a"), "file", str(backups_of(place) / "aside/1-a")))

    put_back(backups_of(place))

    assert tree(place) == before


def test_caches_and_our_own_files_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    backup = Backup(backups_of(tmp_path), {"HF_HOME": str(tmp_path / "hub")})
    for name in ("hub/model", "home/.cache/x", ".autotune/runs/log", "src/__pycache__/a.pyc", "src/a.py"):
        backup.heard("open", (str(tmp_path / name), "w", os.O_WRONLY | os.O_CREAT | os.O_TRUNC))

    log = ChangeLog(backups_of(tmp_path))
    log.read()

    assert list(log.first) == [str(tmp_path / "src/a.py")]


@pytest.mark.parametrize("home", [".", ".."])
def test_a_cache_around_the_working_folder_leaves_its_own_folders_out_alone(
    place: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    monkeypatch.chdir(place)
    cache = (place / home).resolve()
    backup = Backup(backups_of(place), {"HF_HOME": str(cache), "TRITON_CACHE_DIR": str(cache)})
    for path in (place / "a", cache / "hub/model"):
        backup.heard("open", (str(path), "w", EMPTIES))

    log = ChangeLog(backups_of(place))
    log.read()

    assert list(log.first) == [str(place / "a")]


def test_a_large_file_is_moved_and_one_that_is_too_large_to_copy_is_pointed_out(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.files.backup._LARGEST_COPY_BYTES", 10)
    backup = Backup(backups_of(place), {})
    backup.heard("open", (str(place / "a"), "r+", os.O_RDWR))
    backup.heard("open", (str(place / "b"), "w", os.O_WRONLY | os.O_CREAT | os.O_TRUNC))

    (place / "a").write_text("changed")
    assert not (place / "b").exists(), "it is opened now, and made anew"
    changes = put_back(backups_of(place))
    assert changes is not None
    assert changes.put_back == [str(place / "b")]
    assert "a was changed and not kept: changed in place, and larger than" in changes.sentences(place)[-1]


def test_what_cannot_be_kept_is_not_changed_and_what_is_only_read_may_be_read(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    before, backup, known = tree(place), Backup(backups_of(place), {}), str(place / "known")
    backup.heard("open", (known, "w", EMPTIES))
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        for _ in range(2):  # whoever tries again must not get further
            for name, flags in (("a", EMPTIES), ("b", os.O_RDWR), ("new", EMPTIES)):
                with pytest.raises(OSError, match="autotune could not keep this file aside") as told:
                    backup.heard("open", (str(place / name), "w", flags))
                assert told.value.errno == errno.ENOSPC
        patched.setattr(sys, "stderr", None)
        backup.heard("open", (known, "r", os.O_RDONLY))

    assert tree(place) == before
    put_back(backups_of(place))
    assert tree(place) == before


def test_on_a_full_disk_no_file_is_changed_in_place(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: str, copy: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("autotune.files.backup._clone", full)
    backup = Backup(backups_of(place), {})
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            backup.heard("open", (str(place / "a"), "r+", os.O_RDWR))


def test_a_large_file_that_was_renamed_and_is_then_written_to_is_whole(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.files.backup._LARGEST_COPY_BYTES", 10)
    before, backup = tree(place), Backup(backups_of(place), {})
    for name in ("a", "b"):
        backup.heard("os.rename", (str(place / name), str(place / f"{name}-moved"), -1, -1))
        (place / name).rename(place / f"{name}-moved")
    (place / "a-moved").chmod(0o640)

    backup.heard("open", (str(place / "a-moved"), "w", EMPTIES))
    (place / "a-moved").write_text("new")
    with pytest.raises(OSError, match="larger than"):
        backup.heard("open", (str(place / "b-moved"), "r+", os.O_RDWR))

    assert not list(place.rglob("*moved.*"))
    put_back(backups_of(place))
    assert tree(place) == before


def test_no_copies_are_left_beside_a_large_file_that_is_opened_many_times(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.files.backup._LARGEST_COPY_BYTES", 10)
    before, backup = tree(place), Backup(backups_of(place), {})
    for _ in range(3):
        backup.heard("open", (str(place / "a"), "r+", os.O_RDWR))

    assert tree(place) == before
    assert not [path for path in backups_of(place).rglob("*") if "-a" in path.name]


def test_a_file_that_is_emptied_and_may_not_be_made_anew_stays_in_its_place(place: Path) -> None:
    before, backup = tree(place), Backup(backups_of(place), {})
    backup.heard("open", (str(place / "a"), "w", os.O_WRONLY | os.O_TRUNC))
    os.close(os.open(place / "a", os.O_WRONLY | os.O_TRUNC))

    put_back(backups_of(place))

    assert tree(place) == before


def test_names_that_do_not_print_are_told_so_that_they_do(tmp_path: Path) -> None:
    changes = Changes(put_back=[str(tmp_path / name) for name in HOSTILE_NAMES.values()])
    changes.unkept = {str(tmp_path / "\x1b[2J"): "why"}
    changes.newer = {str(tmp_path / "\x1b[2J"): "kept\udcff"}

    assert all(sentence.isprintable() for sentence in changes.sentences(tmp_path))


def test_data_that_a_script_made_for_itself_is_told_to_stay(tmp_path: Path) -> None:
    assert Changes(data=[str(tmp_path / "data")]).sentences(tmp_path) == [
        "Your script prepares data before it trains, and reads it: that stays."
    ]


def test_changes_are_told_by_the_users_own_folders(tmp_path: Path) -> None:
    changes = Changes(
        put_back=[str(tmp_path / name) for name in ("out/a", "out/b", "log")], removed=["/data/run"], data=[]
    )
    changes.add(Changes(put_back=[str(tmp_path / "log")], removed=[str(tmp_path / "new")]))

    assert changes.sentences(tmp_path) == [
        "Your script changes out/ (2 paths), log: put back as it was after each run.",
        "Your script makes /data/run, new: removed after each run.",
    ]
    assert Changes().sentences(tmp_path) == []


@pytest.mark.parametrize("name", ["pymp-6lgjb029/a", "tmpabcdefgh", "torchelastic_x0y1z2w3/none/0", "tmpx1y2z3a_.pt"])
def test_temporary_files_of_libraries_are_no_files_of_the_script(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    assert Changes(removed=[str(tmp_path / "tmp" / name)]).sentences(tmp_path / "elsewhere") == []
    assert Changes(removed=[str(tmp_path / "run" / name)]).sentences(tmp_path / "elsewhere")
    assert Changes(removed=[str(tmp_path / "tmp" / name)]).sentences(tmp_path / "tmp" / name.partition("/")[0])


CHOSEN = ["my-training", "run_20261128", "ckpt_step_100", "tmp_model_1", "checkpoint.pt", "tmp/a"]


@pytest.mark.parametrize("name", CHOSEN)
def test_names_that_a_script_has_chosen_are_told_in_the_temporary_folder_too(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    assert Changes(removed=[str(tmp_path / "tmp" / name)]).sentences(tmp_path)


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "temporary", "stays"),
    [("tmp_bcdefgh.ptx", ".", False), ("tmp_bcdefgh.ptx", "out", True), ("tmp_weights.pt", ".", True)],
)
def test_what_a_tool_writes_beside_a_temporary_file_is_not_put_back(
    name: str, temporary: str, stays: bool, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards Triton: ptxas writes its result, which is read and removed."""
    monkeypatch.setenv("TMPDIR", str(place / temporary))
    other = place / f"{name}.o"
    script = f"""
        import subprocess, tempfile
        assert tempfile.gettempdir() == {str(place / temporary)!r}
        Path({name!r}).write_text("new")
        subprocess.run(["sh", "-c", "echo 1 > {name}.o"], check=True)
        Path("{name}.o").unlink()
    """
    run(place, script)
    changes = BackupDirectory(backups_of(place)).recover()
    assert other.exists() == stays
    assert (str(other) in changes.put_back) == stays
    assert not (place / name).exists()


@pytest.mark.process
def test_what_cannot_be_put_back_now_is_put_back_by_the_next_command(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree(place)
    run(place, "Path('a').write_text('new')")

    def refuse(source: str, target: str) -> None:
        raise PermissionError(13, "Permission denied", target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", refuse)
        with pytest.raises(RunError, match=r"could be put back: .*Permission denied") as told:
            BackupDirectory(backups_of(place)).recover()
    assert str(backups_of(place)) in told.value.hint

    assert BackupDirectory(backups_of(place)).recover().put_back == [str(place / "a")]
    assert tree(place) == before


@pytest.mark.process
def test_runs_at_the_same_time_put_back_when_the_last_of_them_is_over(place: Path) -> None:
    before, backups, other = tree(place), BackupDirectory(backups_of(place)), BackupDirectory(backups_of(place))
    with other.run():
        with backups.run():
            run(place, "Path('a').write_text('new')")
        assert (place / "a").read_text() == "new", "the other may read it again"

    assert tree(place) == before
    assert other.changes.put_back == [str(place / "a")]
