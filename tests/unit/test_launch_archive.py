"""What of a folder is sent to another machine, and what is refused before anything is."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.errors import UsageError
from autotune.launch import archive
from autotune.launch.archive import pack, unpack
from tests.fakes.hostile_names import HOSTILE_NAMES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    (folder / "package").mkdir(parents=True)
    (folder / "train.py").write_text("print('training')")
    (folder / "package" / "model.py").write_text("size = 3")
    return folder


def _arrives(folder: Path, tmp_path: Path) -> Path:
    there = tmp_path / "there"
    there.mkdir()
    unpack(pack(folder), there)
    return there


def test_what_is_in_the_folder_arrives(folder: Path, tmp_path: Path) -> None:
    (folder / "latest.py").symlink_to("package/model.py")

    there = _arrives(folder, tmp_path)

    assert (there / "train.py").read_text() == "print('training')"
    assert (there / "latest.py").read_text() == "size = 3"


@pytest.mark.parametrize("named", ["mine", "link"])
def test_a_folder_is_sent_by_any_name_of_it(
    folder: Path, tmp_path: Path, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.chdir(tmp_path)

    assert (_arrives(Path(named), tmp_path) / "package/model.py").read_text() == "size = 3"


def test_caches_versions_and_virtual_environments_stay(folder: Path, tmp_path: Path) -> None:
    for name in (".git", ".autotune", "__pycache__", "env"):
        (folder / name).mkdir()
        (folder / name / "pyvenv.cfg").write_text("")

    assert sorted(path.name for path in _arrives(folder, tmp_path).iterdir()) == ["package", "train.py"]


@pytest.mark.parametrize("target", ["../elsewhere.bin", "/etc/hostname"])
def test_a_link_that_leads_out_of_the_folder_is_refused(folder: Path, target: str) -> None:
    (folder / "data").symlink_to(target)

    with pytest.raises(UsageError, match=r"data' is a link to .* which leads out") as caught:
        pack(folder)
    assert "--cluster-files shared" in caught.value.hint


def filled(path: Path, size: int) -> None:
    """A file of that size, of which no byte is on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)


def one_file(folder: Path) -> None:
    filled(folder / "data/raw/train.bin", 4 * 2**30)
    filled(folder / "data/index", 50 * 2**20)


def a_folder_of_files(folder: Path) -> None:
    for number in range(90):
        filled(folder / f"data/part-{number % 9}/{number}.bin", 10 * 2**20)


def several_folders(folder: Path) -> None:
    for number, size in enumerate((40, 60, 50)):
        filled(folder / f"run-{number}/last.pt", size * 2**20)


def files_in_a_folder(folder: Path) -> None:
    for number in range(40):
        filled(folder / f"images/{number % 4}/{number}.png", 0)


def files_beside_the_script(folder: Path) -> None:
    for number in range(40):
        filled(folder / f"{number}.png", 0)


@pytest.mark.parametrize(
    ("fill", "told"),
    [
        (one_file, "more than the 100 MiB that are sent: 4.05 GiB, 4 GiB of them in 'data/raw/train.bin'"),
        (a_folder_of_files, "more than the 100 MiB that are sent: 900 MiB, 900 MiB of them in 'data'"),
        (several_folders, "more than the 100 MiB that are sent: 150 MiB, 60 MiB of them in 'run-1/last.pt'"),
        (files_in_a_folder, "more than the 20 files that are sent: 48 files, 44 files of them in 'images'"),
        (files_beside_the_script, "more than the 20 files that are sent: 43 files$"),
    ],
)
def test_too_much_is_refused_with_what_to_move_away_first(
    folder: Path, fill: Callable[[Path], None], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MOST_FILES", 20 if "files" in told else 1000)
    fill(folder)

    with pytest.raises(UsageError, match=told) as caught:
        pack(folder)
    assert "with data elsewhere" in caught.value.hint


def test_nobody_waits_for_millions_of_files_to_be_counted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_FILES", 20)
    monkeypatch.setattr(archive, "_LOOK_S", 0.0)
    files_in_a_folder(folder)

    with pytest.raises(UsageError, match="more than the 20 files that are sent: at least 0 files"):
        pack(folder)


@pytest.mark.slow
def test_a_hundred_thousand_files_are_refused_before_all_are_looked_at(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[Path] = []
    for number in range(100_000):
        (folder / f"{number}.txt").touch()
    look = Path.lstat
    monkeypatch.setattr(Path, "lstat", lambda path: (looked_at.append(path), look(path))[1])
    monkeypatch.setattr(archive, "_LOOK_S", 0.0)

    with pytest.raises(UsageError, match="more than the 10,000 files"):
        pack(folder)
    assert len(looked_at) <= archive.MOST_FILES + 1


def test_names_of_any_kind_arrive(folder: Path, tmp_path: Path) -> None:
    for name in HOSTILE_NAMES.values():
        (folder / name).write_text(name, errors="surrogateescape")

    there = _arrives(folder, tmp_path)

    assert {name for name in HOSTILE_NAMES.values() if (there / name).exists()} == set(HOSTILE_NAMES.values())


def test_links_that_lead_nowhere_or_to_themselves_arrive_as_they_are(folder: Path, tmp_path: Path) -> None:
    links = {"loop": "loop", "here": ".", "dangling": "nowhere"}
    for name, target in links.items():
        (folder / name).symlink_to(target)

    there = _arrives(folder, tmp_path)

    assert {name: str((there / name).readlink()) for name in links} == links


def test_a_pipe_stays(folder: Path, tmp_path: Path) -> None:
    os.mkfifo(folder / "pipe")

    assert sorted(path.name for path in _arrives(folder, tmp_path).iterdir()) == ["package", "train.py"]


def test_a_file_that_is_removed_meanwhile_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(path: Path) -> os.stat_result:
        raise FileNotFoundError(2, "No such file or directory", str(path))

    monkeypatch.setattr(Path, "lstat", gone)

    with pytest.raises(UsageError, match=r"cannot send .*package': No such file or directory"):
        pack(folder)


@pytest.fixture
def old_tarfile(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is in Python before 3.11.4."""
    monkeypatch.delattr(tarfile, "data_filter", raising=False)


def _archive(name: str, linkname: str = "") -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz") as archive:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = (tarfile.SYMTYPE, linkname) if linkname else (tarfile.REGTYPE, "")
        archive.addfile(member)
    return written.getvalue()


@pytest.mark.usefixtures("old_tarfile")
def test_a_parcel_arrives_under_an_older_python(folder: Path, tmp_path: Path) -> None:
    (folder / "latest.py").symlink_to("package/model.py")

    assert (_arrives(folder, tmp_path) / "latest.py").read_text() == "size = 3"


@pytest.mark.usefixtures("old_tarfile")
@pytest.mark.parametrize(
    ("name", "leads_to"), [("../out", ""), ("/tmp/out", ""), ("in", "../out"), ("in", "/etc/passwd")]
)
def test_nothing_comes_to_lie_outside_under_an_older_python(tmp_path: Path, name: str, leads_to: str) -> None:
    (tmp_path / "there").mkdir()

    with pytest.raises(tarfile.TarError, match="does not stay"):
        unpack(_archive(name, leads_to), tmp_path / "there")

    assert [path.name for path in tmp_path.rglob("*")] == ["there"]
