"""What a node of a cluster finds that was left there by posts which are dead."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autotune.files.change_log import ChangeLog, Entry
from autotune.launch import node

NOBODY = 2**22 + 1  # more than any process's number


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    """A file that a run is said to have made, which is removed where the change log that says so is believed."""
    made = tmp_path / "made"
    made.write_text("by somebody")
    return made


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(node.tempfile, "gettempdir", lambda: str(folder))
    return folder


def leave(folder: Path, changed: Path) -> None:
    kept = folder / "own" / "kept"
    kept.mkdir(parents=True)
    ChangeLog(kept).append(Entry(str(changed), "absent"))
    os.utime(folder, (0, 0))


def test_what_a_dead_post_of_ours_left_is_put_back_and_removed(temporary, changed):
    folder = temporary / f"autotune-{os.getuid()}-{NOBODY}"
    leave(folder, changed)

    node._clear_stale()

    assert not changed.exists()
    assert not folder.exists()


def test_a_journal_that_another_user_put_there_is_not_believed(temporary, changed, monkeypatch):
    ours = os.getuid() + 1
    leave(temporary / f"autotune-{ours}-{NOBODY}", changed)
    monkeypatch.setattr(node.os, "getuid", lambda: ours)

    node._clear_stale()

    assert changed.exists()


def test_a_link_in_place_of_a_folder_is_not_followed(temporary, changed, tmp_path):
    leave(tmp_path / "elsewhere", changed)
    (temporary / f"autotune-{os.getuid()}-{NOBODY}").symlink_to(tmp_path / "elsewhere")
    os.utime(temporary / f"autotune-{os.getuid()}-{NOBODY}", (0, 0), follow_symlinks=False)

    node._clear_stale()

    assert changed.exists()
