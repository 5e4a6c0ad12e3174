"""What of a folder is sent to another machine, and what is refused before anything is."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.errors import UsageError
from autotune.launch import parcel
from autotune.launch.parcel import pack, unpack


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


def test_too_many_bytes_are_refused_before_they_are_read(folder: Path) -> None:
    with (folder / "data.bin").open("wb") as file:
        file.truncate(parcel.MOST_BYTES + 1)  # no byte of it is on the disk

    with pytest.raises(UsageError, match="more than the 100 MiB"):
        pack(folder)


def test_too_many_files_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parcel, "MOST_FILES", 20)
    for number in range(21):
        (folder / f"{number}.txt").touch()

    with pytest.raises(UsageError, match="more than the 20 files"):
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

    with pytest.raises(UsageError, match="more than the 10,000 files"):
        pack(folder)
    assert len(looked_at) <= parcel.MOST_FILES + 1
