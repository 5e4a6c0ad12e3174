"""Which files the dashboard reads: the logs of runs, and nothing that a database of somebody else's may name."""

from __future__ import annotations

import os

import pytest

from autotune.dashboard.reports import log_files, read_end


@pytest.fixture
def runs(tmp_path):
    folder = tmp_path / ".autotune" / "runs" / "study" / "run-1"
    folder.mkdir(parents=True)
    (folder / "stdout.log").write_text("out\n")
    (folder / "stderr.log").write_text("err\n")
    (folder / "request.json").write_text("{}")
    return folder


def test_a_run_has_two_logs(runs):
    assert [path.name for path in log_files(str(runs))] == ["stdout.log", "stderr.log"]
    assert [read_end(path) for path in log_files(str(runs))] == ["out\n", "err\n"]


@pytest.mark.parametrize(
    "place",
    [
        "",
        ".",
        "/",
        "/etc",
        "{}/../../../elsewhere",
        "{}/../run-1",
        ".autotune/runs/study/run-1",
        "{}\0",
        "/.autotune/runs",
    ],
)
def test_no_folder_but_that_of_a_run_is_looked_into(runs, tmp_path, place, monkeypatch):
    monkeypatch.chdir(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "stdout.log").write_text("not ours")
    assert log_files(place.format(runs)) == ()
    assert log_files(str(elsewhere)) == ()


def test_no_link_is_followed(runs, tmp_path):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "stdout.log").write_text("a password")
    (runs / "stdout.log").unlink()
    (runs / "stdout.log").symlink_to(secret / "stdout.log")
    assert [path.name for path in log_files(str(runs))] == ["stderr.log"]
    link = runs.parent / "link"
    link.symlink_to(secret)
    assert log_files(str(link)) == ()
    with pytest.raises(OSError, match="symbolic links"):
        read_end(runs / "stdout.log")  # it became one after it was looked at


def test_what_is_no_file_is_not_waited_for(runs):
    (runs / "stdout.log").unlink()
    os.mkfifo(runs / "stdout.log")
    assert [path.name for path in log_files(str(runs))] == ["stderr.log"]
    assert read_end(runs / "stdout.log") == ""


def test_of_a_long_log_the_last_whole_lines_are_read(runs):
    (runs / "stdout.log").write_text("".join(f"line {number}\n" for number in range(100_000)))
    read = read_end(runs / "stdout.log")
    assert len(read) <= 64 * 1024
    assert read.startswith("line ")
    assert read.endswith("line 99999\n")


def test_bytes_that_are_no_characters_are_shown_as_such(runs):
    (runs / "stdout.log").write_bytes(b"a\xff\n")
    assert read_end(runs / "stdout.log") == "a\ufffd\n"
