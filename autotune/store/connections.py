"""Locations of databases, and connections: how long they wait, and what is on disk when they have committed.

SQLite runs in WAL mode: readers (``autotune show``, a dashboard) and the writer do not block one another. Our own
connections commit with ``synchronous=FULL``, one fsync per commit, so that a finished trial outlives a power cut;
there are a few commits per trial, and a trial takes seconds. Optuna commits dozens of times per trial and its
connections use ``NORMAL``, which outlives the death of any process; after a power cut the database is intact, and what
Optuna may have lost since our last commit (which syncs everything before it) is what ``untold`` tells it again.
"""

from __future__ import annotations

import functools
import os
import re
import sqlite3
import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

import sqlalchemy as sa

from ..errors import StorageError

if TYPE_CHECKING:
    import psycopg
from ..records.printable import without_password

_FORMS = "write a file name (study.db), sqlite:///study.db, or postgresql://user:password@host/database"


@dataclass(frozen=True)
class Location:
    """The place of a database. ``path`` is the absolute path of an SQLite file, None for a server."""

    url: sa.URL
    path: Path | None

    def __str__(self) -> str:
        return str(self.path) if self.path is not None else self.shown_url

    @property
    def shown_url(self) -> str:
        """Return the URL without its passwords."""
        return without_password(self.url.render_as_string(hide_password=False))


def parse_location(text: str) -> Location:
    """Read a storage URL or the bare path of an SQLite file; StorageError says what is wrong with it.

    Relative paths become absolute ones, ``~`` the home folder, and ``postgresql://`` means psycopg.
    """
    if not text.strip():
        raise StorageError(f"an empty storage URL: {text!r}", hint=_FORMS)
    if not re.match(r"[A-Za-z][\w+.-]*:", text) and "://" not in text:
        return _file(text)
    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):
        raise StorageError(f"malformed storage URL {without_password(text)!r}", hint=_FORMS) from None
    backend = url.get_backend_name()
    shown = without_password(text)
    if backend == "sqlite":
        if url.drivername not in ("sqlite", "sqlite+pysqlite") or url.host or url.query:
            raise StorageError(f"{shown!r} is more than the URL of an SQLite file", hint=_FORMS)
        return _file(url.database or "")
    if backend in ("postgresql", "postgres"):
        if url.drivername not in ("postgresql", "postgres", "postgresql+psycopg"):
            raise StorageError(f"{shown!r} names another driver than psycopg", hint="write postgresql://...")
        if not url.database:
            raise StorageError(f"{shown!r} names no database", hint=_FORMS)
        return Location(url.set(drivername="postgresql+psycopg"), None)
    raise StorageError(f"unknown kind of database {backend!r} in {shown!r}: SQLite or PostgreSQL", hint=_FORMS)


def _file(name: str) -> Location:
    if name in ("", ":memory:"):
        raise StorageError(
            "a study in memory would be gone with the process: nothing could resume or read it",
            hint="name a file, for example study.db",
        )
    try:
        path = Path(name).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise StorageError(f"{name!r} is no file name: {error}", hint=_FORMS) from None
    return Location(sa.URL.create("sqlite", database=str(path)), path)


def connect(location: Location, *, timeout_s: float, synchronous: Literal["FULL", "NORMAL"]) -> sa.Engine:
    """Make an engine, which connects at its first use.

    Waiting for a lock or for a server that does not answer ends after ``timeout_s``.
    """
    if location.path is not None:
        # A dashboard is open for days and must see the file that is there: a kept connection sees a deleted one.
        pool = {"poolclass": sa.NullPool} if synchronous == "FULL" else {}
        creator = functools.partial(_sqlite, location, timeout_s, synchronous)
        return sa.create_engine(location.url, creator=creator, **pool)
    return _postgresql(location, timeout_s)


def _sqlite(location: Location, timeout_s: float, synchronous: str) -> sqlite3.Connection:
    """Open the file, which must exist: one that was deleted meanwhile is an error, not an empty database."""
    assert location.path is not None
    uri = f"file:{quote(os.fsencode(location.path))}?mode=rw"
    # The pool hands a connection to one thread at a time.
    connection = sqlite3.connect(uri, uri=True, timeout=timeout_s, check_same_thread=False)
    connection.execute(f"PRAGMA synchronous={synchronous}")
    return connection


def _postgresql(location: Location, timeout_s: float) -> sa.Engine:
    milliseconds = max(1000, round(timeout_s * 1000))
    arguments: dict[str, Any] = {
        "application_name": "autotune",
        "connect_timeout": max(2, round(timeout_s)),
        # A server that vanished without a word is noticed within the deadline, not after TCP's quarter of an hour.
        "keepalives_idle": 30,
        "tcp_user_timeout": milliseconds,
    }
    given = {name: value for name, value in arguments.items() if name not in location.url.query}
    try:
        # Trials are long and servers close idle connections: look before use.
        engine = sa.create_engine(location.url, connect_args=given, pool_pre_ping=True)
    except ImportError:
        raise StorageError(
            f"PostgreSQL at {location} needs the driver psycopg, which is not installed",
            hint="pip install 'autotune-memory[postgresql]'",
        ) from None

    @sa.event.listens_for(engine, "do_connect")
    def connect_bounded(_dialect: Any, _record: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        # Twice the time that a statement may wait for a lock: whoever has a lock answers within that.
        return _bounded(2 * milliseconds / 1000).connect(*arguments, **keywords)

    @sa.event.listens_for(engine, "connect")
    def limit_waiting(connection: Any, _record: Any) -> None:
        # Not by the start-up parameter "options", which connection poolers such as PgBouncer refuse.
        connection.execute(f"SET lock_timeout = {milliseconds}")
        connection.commit()

    return engine


def _bounded(seconds: float) -> type[psycopg.Connection[Any]]:
    """Make connections that are given up where the server takes a statement and does not answer.

    The kernel of a stopped or frozen server still takes what is sent to it, so ``tcp_user_timeout`` never passes.
    """
    import psycopg

    class Bounded(psycopg.Connection[Any]):
        def wait(self, gen: Generator[Any, Any, Any], *arguments: Any, **keywords: Any) -> Any:
            return super().wait(self._bounded(gen), *arguments, **keywords)

        def _bounded(self, generator: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
            """Pass a generator on, which psycopg resumes every tenth of a second even while nothing comes."""
            deadline_s = time.monotonic() + seconds
            try:
                waits_for = next(generator)
                while True:
                    ready = yield waits_for
                    if not ready and time.monotonic() > deadline_s:
                        self.pgconn.finish()
                        raise psycopg.OperationalError(f"the server has not answered for {seconds:g} s")
                    waits_for = generator.send(ready)
            except StopIteration as stop:
                return stop.value

    return Bounded


def use_write_ahead_log(location: Location, *, create: bool, timeout_s: float) -> None:
    """Put the SQLite file in WAL mode, which it then stays in; make the file if ``create``.

    The change needs the file for itself, which SQLite does not wait for.
    """
    assert location.path is not None
    uri = f"file:{quote(os.fsencode(location.path))}?mode={'rwc' if create else 'rw'}"
    deadline = time.monotonic() + timeout_s
    with closing(sqlite3.connect(uri, uri=True, timeout=timeout_s)) as connection:
        while True:
            try:
                connection.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
