"""Storage URLs and paths: what is accepted, and what is said about the rest."""

from __future__ import annotations

import os
import socket
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from autotune.errors import AutotuneError, StorageError
from autotune.store.connections import parse_location
from autotune.store.database import open_store
from tests.fakes.store_samples import SPEC


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("study.db", "{here}/study.db"),
        ("./a:b.db", "{here}/a:b.db"),
        ("folder/../study.db", "{here}/study.db"),
        ("~/study.db", "{home}/study.db"),
        ("sqlite:///study.db", "{here}/study.db"),
        ("sqlite:////tmp/study.db", "/tmp/study.db"),
        ("sqlite+pysqlite:////tmp/study.db", "/tmp/study.db"),
    ],
)
def test_a_file_is_named_by_path_or_url(monkeypatch, tmp_path, text, path):
    monkeypatch.chdir(tmp_path)
    expected = path.format(here=tmp_path.resolve(), home=Path.home().resolve())
    assert str(parse_location(text).path) == expected


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_postgresql_means_psycopg(scheme):
    location = parse_location(f"{scheme}://me@host:5433/studies?sslmode=require")
    assert location.path is None
    assert location.url.render_as_string() == "postgresql+psycopg://me@host:5433/studies?sslmode=require"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty storage URL"),
        ("sqlite:study.db", "malformed storage URL 'sqlite:study.db'"),
        ("://", "malformed"),
        ("postgresql://host:port/studies", "malformed"),
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        ("sqlite+aiosqlite:///study.db", "more than the URL of an SQLite file"),
        ("sqlite://host/study.db", "more than the URL of an SQLite file"),
        ("mysql://host/studies", "unknown kind of database 'mysql'"),
        ("postgresql+asyncpg://host/studies", "another driver than psycopg"),
        ("postgresql://host", "names no database"),
        ("~nobody-of-that-name/study.db", "is no file name"),
        ("a\0b", "is no file name"),
    ],
)
def test_what_cannot_be_meant_is_refused(text, message):
    with pytest.raises(StorageError, match=message) as caught:
        parse_location(text)
    assert caught.value.hint


@pytest.mark.parametrize(
    "text", ["mysql://me:secret@host/x", "postgresql://me:secret@host:port/x", "postgresql:/me:secret@host/x"]
)
def test_a_password_is_not_repeated(text):
    with pytest.raises(StorageError) as caught:
        parse_location(text)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["with space.db", "{braces} 100%.db", "a?b#c&d.db", "ünïcode.db"])
def test_any_file_name_works(tmp_path, name):
    with open_store(str(tmp_path / name)) as store:
        store.create("first", SPEC).optuna.ask()
    assert (tmp_path / name).exists()
    with open_store(store.url, create=False) as again:
        assert again.names() == ("first",)


def refusal(url, **options):
    with pytest.raises(AutotuneError) as caught:
        open_store(str(url), **options)
    assert caught.value.hint
    return f"{type(caught.value).__name__}: {caught.value}"


def test_a_folder_that_is_not_there_is_named(tmp_path):
    assert f"StorageError: no folder {tmp_path / 'not'}" in refusal(tmp_path / "not" / "study.db")


def test_a_folder_is_no_database(tmp_path):
    assert "is a folder" in refusal(tmp_path)


def test_a_file_that_is_not_there_is_not_made_for_reading(tmp_path):
    assert "StorageError: no database" in refusal(tmp_path / "study.db", create=False)
    assert list(tmp_path.iterdir()) == []


def test_a_file_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").touch()
    assert "no folder" in refusal(tmp_path / "file" / "study.db")


def test_a_name_that_is_too_long_is_refused(tmp_path):
    assert "StorageError" in refusal(tmp_path / ("x" * 300))


def test_a_file_that_is_something_else_is_refused(tmp_path):
    (tmp_path / "train.py").write_text("print('hello')\n" * 100)
    assert "is not an SQLite database" in refusal(tmp_path / "train.py")
    assert (tmp_path / "train.py").read_text().startswith("print")


def test_a_folder_in_which_no_file_can_be_made_is_refused():
    assert "StorageError: the database /proc/study.db cannot be opened" in refusal("/proc/study.db")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_file_is_refused(tmp_path):
    path = tmp_path / "study.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE something (id)")
    path.chmod(0o400)
    assert "StorageError" in refusal(path)


def test_a_locked_database_is_given_up_after_the_deadline(tmp_path):
    path = tmp_path / "study.db"
    open_store(str(path)).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with open_store(str(path), timeout_s=0.1) as store, pytest.raises(AutotuneError, match="stayed locked"):
            store.create("first", SPEC)


def test_a_new_database_locked_by_another_process_is_given_up_after_the_deadline(tmp_path):
    path = tmp_path / "study.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert "RunError: the database" in refusal(path, timeout_s=0.1)


@pytest.mark.parametrize(
    "url", ["postgresql://me@tenant:secret@host/x", "postgresql://host/x?user=me&password=secret&sslmode=require"]
)
def test_a_password_is_not_shown_wherever_the_url_has_it(url):
    location = parse_location(url)
    assert "secret" in location.url.render_as_string(hide_password=False)
    assert "***" in str(location)
    assert "secret" not in str(location)


def test_a_server_that_is_not_there_is_said_to_be_out_of_reach():
    # Port 1 on the loopback: nothing listens, the kernel refuses at once.
    said = refusal("postgresql://me:secret@127.0.0.1:1/studies", timeout_s=2.0)
    assert "StorageError: postgresql+psycopg://me:***@127.0.0.1:1/studies cannot be reached" in said


def test_a_server_that_never_answers_is_given_up_after_the_deadline():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert "cannot be reached" in refusal(f"postgresql://me@127.0.0.1:{port}/studies", timeout_s=0.1)


def test_a_missing_driver_names_the_extra_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StorageError, match="needs the driver psycopg") as caught:
        open_store("postgresql://me@127.0.0.1:1/studies")
    assert caught.value.hint == "pip install 'autotune-memory[postgresql]'"
