"""Storage URLs: what may be written, and what it means."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from ..errors import StorageError
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
        """The URL without its passwords."""
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
