"""Failures at work, and what stays on disk."""

from __future__ import annotations

import itertools
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

import psycopg
import pytest
import sqlalchemy as sa

from autotune import pipeline
from autotune.errors import NotPermittedError, RunError, StorageError
from autotune.records.measurement import Peaks
from autotune.store import connections
from autotune.store.connections import parse_location
from autotune.store.database import open_store
from autotune.store.faults import translated
from tests.fakes.postgresql import postgresql_schema
from tests.fakes.store_samples import ENVIRONMENT, FACTS, MEASURED, PLANNED, SPEC
from tests.fakes.stored_study import store_study
from tests.fakes.study_record import study_record


@pytest.fixture
def path(tmp_path):
    return tmp_path / "study.db"


def limit_pages(monkeypatch, pages):
    """Let every new connection find the disk full at so many pages."""
    real = sqlite3.connect

    def connect(*arguments, **options):
        connection = real(*arguments, **options)
        connection.execute(f"PRAGMA max_page_count={pages}")
        return connection

    monkeypatch.setattr(sqlite3, "connect", connect)


def test_a_full_disk_while_opening_says_so(monkeypatch, path):
    limit_pages(monkeypatch, 10)
    with pytest.raises(RunError, match="no room left for the database") as caught:
        open_store(str(path))
    assert "make room" in caught.value.hint


def test_a_full_disk_at_work_loses_no_finished_trial(monkeypatch, path):
    with open_store(str(path)) as store:
        study = store.create("first", SPEC)
        assert study.begin(study.optuna.ask().number, PLANNED, "runs/0")
        assert study.finish(0, MEASURED, ENVIRONMENT)
    with closing(sqlite3.connect(path)) as connection:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
    with monkeypatch.context() as patch:
        limit_pages(patch, pages)
        with open_store(str(path)) as store, pytest.raises(RunError, match="no room left"):
            store.open("first").add_bundle("x" * 100_000)
    with open_store(str(path)) as store:
        assert store.open("first").record().trials[0].outcome == MEASURED


def test_a_failure_below_optuna_is_translated_under_the_guard(monkeypatch, path):
    with open_store(str(path)) as store:
        study = store.create("first", SPEC)
        trial = study.optuna.ask()
        store.close()
        limit_pages(monkeypatch, 1)
        with pytest.raises(RunError, match="no room left"), study.guard():
            trial.set_user_attr("note", "x" * 100_000)


def test_a_deleted_file_is_not_replaced_by_an_empty_one(path):
    with open_store(str(path)) as store:
        study = store.create("first", SPEC)
        store.close()
        for file in path.parent.iterdir():
            file.unlink()
        with pytest.raises(StorageError, match="cannot be opened"):
            study.record()
    assert not path.exists()


def test_a_study_deleted_with_optuna_s_tools_can_still_be_read(path):
    import optuna

    with open_store(str(path)) as store:
        store.create("first", SPEC)
    storage = optuna.storages.RDBStorage(f"sqlite:///{path}", engine_kwargs={"poolclass": sa.pool.NullPool})
    optuna.delete_study(study_name="first", storage=storage)
    with open_store(str(path)) as store:
        study = store.open("first")
        assert study.record().spec == SPEC
        with pytest.raises(StorageError, match="was deleted from Optuna's tables"):
            _ = study.optuna


def test_a_study_cut_off_between_optuna_s_half_and_ours_is_created_after_all(monkeypatch, path):
    with open_store(str(path)) as store:
        with monkeypatch.context() as patch:
            patch.setattr("autotune.store.schema.add", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                store.create("first", SPEC)
        assert store.names() == ()
        assert store.create("first", SPEC).optuna.study_name == "first"


class _ServerError(Exception):
    def __init__(self, message, sqlstate):
        super().__init__(message)
        self.sqlstate = sqlstate


class OperationalError(_ServerError):
    """Named as psycopg's."""


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (OperationalError("connection refused\nIs the server running?", None), StorageError, "cannot be reached"),
        (OperationalError("timeout expired", None), StorageError, "cannot be reached: timeout expired"),
        (OperationalError("could not extend file", "53100"), RunError, "out of room"),
        (OperationalError("canceling statement due to lock timeout", "55P03"), RunError, "stayed locked"),
        (_ServerError("permission denied for schema public", "42501"), StorageError, "does not permit"),
        (_ServerError("value too long", "22001"), RunError, "failed: value too long"),
    ],
)
def test_what_a_server_refuses_is_told_by_its_code(error, kind, said):
    location = parse_location("postgresql://me:secret@host/studies")
    with pytest.raises(kind, match=said) as caught, translated(location, opening=True):
        raise sa.exc.DBAPIError("SELECT 1", {}, error)
    assert caught.value.hint
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("state", [None, "08006", "57P01", "57P03"])
def test_a_server_that_stops_answering_ends_the_work_and_the_same_command_goes_on(state):
    location = parse_location("postgresql://me:secret@host/studies")
    with pytest.raises(RunError, match="does not answer any more: connection refused") as caught, translated(location):
        raise sa.exc.DBAPIError("SELECT 1", {}, OperationalError("connection refused\nIs it running?", state))
    assert "finished trials are stored" in caught.value.hint
    assert "run the same command again" in caught.value.hint


@pytest.mark.postgresql
def test_connections_that_the_server_has_ended_are_made_anew():
    """Servers end what is idle for long, and everything when they are started again."""
    with postgresql_schema() as place:
        own = sa.make_url(place.url).update_query_dict({"application_name": place.name})
        with open_store(own.render_as_string(hide_password=False)) as store:
            study = store.create("idle", SPEC)
            study.optuna.ask()
            ended = place.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = :name",
                name=place.name,
            )
            assert ended
            study.optuna.ask()
            assert len(study.optuna.get_trials()) == 2


@pytest.mark.postgresql
def test_who_may_only_read_looks_at_studies_and_exports_them(tmp_path):
    with postgresql_schema() as place:
        with open_store(place.url) as store:
            store_study(store, study_record(name="one"))
        with place.reader() as url, open_store(url) as store:
            study = store.open("one")
            assert study.record().verdict is not None
            assert (pipeline.export(study, tmp_path / "bundle") / "mem_opt.json").exists()
            with pytest.raises(NotPermittedError, match="does not permit this: permission denied for table"):
                study.set_facts(FACTS)


@pytest.mark.postgresql
def test_who_may_only_read_is_told_that_the_owner_has_to_bring_older_tables_up_to_date():
    with postgresql_schema() as place:
        open_store(place.url).close()
        place.execute("UPDATE autotune_alembic_version SET version_num = '0004'")
        place.execute("ALTER TABLE autotune_confirmation RENAME TO autotune_final")
        with place.reader() as url, pytest.raises(StorageError, match="has schema 0004 and could not be") as told:
            open_store(url)
    assert "as the owner of its tables" in told.value.hint


class _SqliteError(sqlite3.DatabaseError):
    def __init__(self, name):
        super().__init__("as SQLite put it")
        self.sqlite_errorname = name


def test_an_error_of_a_full_disk_is_told_as_no_room(path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=0))
    with pytest.raises(RunError, match="no room left") as caught, translated(parse_location(str(path))):
        raise sa.exc.DBAPIError("SELECT 1", {}, _SqliteError("SQLITE_IOERR_SHMSIZE"))
    assert "make room" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "kind", "said", "advised"),
    [
        ("SQLITE_BUSY_SNAPSHOT", RunError, "stayed locked by another process: as SQLite put it", "fuser -v {path}"),
        ("SQLITE_IOERR_FSYNC", RunError, r"reading or writing .* failed: as SQLite put it \(SQLITE_IOERR", "ulimit -f"),
        ("SQLITE_NOTADB", StorageError, "is not an SQLite database", "--storage"),
        ("SQLITE_CORRUPT_INDEX", StorageError, "is damaged: as SQLite put it", "sqlite3 {path} .recover"),
        ("SQLITE_READONLY_DBMOVED", StorageError, "cannot be written", "writable"),
        ("SQLITE_MISUSE", RunError, "failed: as SQLite put it", "SQLite's own"),
    ],
)
def test_what_sqlite_refuses_is_told_by_its_name(path, name, kind, said, advised):
    with pytest.raises(kind, match=said) as caught, translated(parse_location(str(path))):
        raise sa.exc.DBAPIError("SELECT 1", {}, _SqliteError(name))
    assert advised.format(path=path) in caught.value.hint


def test_a_failure_of_sqlalchemys_own_is_told_too(path):
    with pytest.raises(RunError, match="failed: QueuePool limit"), translated(parse_location("postgresql://host/db")):
        raise sa.exc.TimeoutError("QueuePool limit of size 5 reached")


@pytest.mark.parametrize("mode", ["rw", "ro"])
def test_a_database_that_turns_out_read_only_is_said_to_be(path, mode):
    open_store(str(path)).close()
    uri = f"file:{path}?mode={mode}"
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        if mode == "rw":
            connection.execute("PRAGMA query_only=1")
        with pytest.raises(StorageError, match="cannot be written"), translated(parse_location(str(path))):
            connection.execute("CREATE TABLE something (id)")


def test_a_transaction_that_broke_off_in_optuna_is_told_as_a_server_that_is_gone():
    with pytest.raises(RunError, match="does not answer any more"), translated(parse_location("postgresql://host/db")):
        raise sa.exc.PendingRollbackError("Can't reconnect until invalid transaction is rolled back")


def test_other_errors_pass_unchanged(path):
    with pytest.raises(KeyError), translated(parse_location(str(path))):
        raise KeyError(path)


def test_a_path_that_is_not_unicode_is_refused_by_name(path):
    with open_store(str(path)) as store, pytest.raises(StorageError, match="not valid Unicode"):
        store.create("first", SPEC).add_bundle("/out/\udcff")


def test_environments_are_stored_once(path):
    with open_store(str(path)) as store:
        study = store.create("first", SPEC)
        for _ in range(3):
            number = study.optuna.ask().number
            assert study.begin(number, PLANNED, "runs/0")
            assert study.finish(number, MEASURED, ENVIRONMENT)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM autotune_environment").fetchone() == (1,)
        query = "SELECT kind, samples_per_s, peak_bytes FROM autotune_trial JOIN trials ON trial_id = optuna_trial_id"
        assert connection.execute(query).fetchall() == [("measured", 32.0, 5 << 30)] * 3


def test_a_measurement_without_any_peak_is_stored_without_one(path):
    peakless = replace(MEASURED, measurement=replace(MEASURED.measurement, peaks=Peaks()))
    with open_store(str(path)) as store:
        study = store.create("first", SPEC)
        assert study.begin(study.optuna.ask().number, PLANNED, "runs/0")
        assert study.finish(0, peakless, ENVIRONMENT)
        assert study.record().trials[0].outcome == peakless
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT samples_per_s, peak_bytes FROM autotune_trial").fetchall() == [(32.0, None)]


def test_an_unknown_study_names_one_like_it_or_how_to_list_them(path):
    with open_store(str(path)) as store:
        for number in range(3):
            store.create(f"bert-{number}", SPEC)
        for name, hint in (("bert-9", "did you mean bert-"), ("zzz", "`autotune studies` lists")):
            with pytest.raises(StorageError) as caught:
                store.open(name)
            assert hint in caught.value.hint


def test_readers_and_a_writer_do_not_wait_for_one_another(path):
    with open_store(str(path)) as store:
        store.create("first", SPEC)
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("DELETE FROM autotune_study")
        with open_store(str(path), timeout_s=0.1) as store:
            assert store.open("first").record().name == "first"


def test_our_commits_reach_the_disk_and_optuna_s_need_not(path):
    with open_store(str(path)) as store:
        study = store.create("first", SPEC)
        with store._engine.connect() as ours, study._optuna_tables._engine.connect() as optunas:
            assert ours.exec_driver_sql("PRAGMA synchronous").scalar() == 2
            assert optunas.exec_driver_sql("PRAGMA synchronous").scalar() == 1
            assert ours.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"


def test_a_server_that_takes_a_statement_and_does_not_answer_is_given_up():
    finished = []
    connection = SimpleNamespace(pgconn=SimpleNamespace(finish=lambda: finished.append(True)))
    driven = connections._bounded(0.0)._bounded(connection, (one for one in itertools.repeat(1)))
    next(driven)
    with pytest.raises(psycopg.OperationalError, match="has not answered"):
        driven.send(0)
    assert finished


@pytest.mark.process
def test_reading_a_study_loads_neither_optuna_nor_alembic(path):
    with open_store(str(path)) as store:
        store.create("first", SPEC)
    program = f"""
import sys
from autotune.store.database import open_store
with open_store({str(path)!r}, create=False) as store:
    assert store.open(store.names()[0]).record().trials == ()
assert not {{"optuna", "alembic", "torch"}} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", program], check=True)
