"""The databases of ``tests/databases``, as an older autotune left them, in SQLite or in PostgreSQL."""

from __future__ import annotations

import datetime as dt
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import sqlalchemy as sa

from autotune.store import schema
from autotune.store.opening import open_store

KEPT = Path(__file__).resolve().parents[1] / "databases"
SCHEMAS = sorted(path.stem for path in KEPT.glob("*.sql"))
_FOLDER = "/home/user/project"


def put_sqlite(revision, folder):
    """Make the file of a schema in a folder, where its studies' scripts are then; gives its path."""
    for script in KEPT.glob("*.py"):
        shutil.copy(script, folder)
    path = folder / "study.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((KEPT / f"{revision}.sql").read_text().replace(_FOLDER, str(folder)))
    return str(path)


def put_postgresql(revision, folder, url, monkeypatch):
    """The same in PostgreSQL: tables by that schema's own migrations, rows as in the file; gives the URL."""
    source = sa.create_engine(f"sqlite:///{put_sqlite(revision, folder)}", poolclass=sa.NullPool)
    with monkeypatch.context() as patched:
        patched.setattr(schema, "HEAD", revision)
        with open_store(url) as store:
            store._optuna.storage()
    target = sa.create_engine(url, poolclass=sa.NullPool)
    tables = sa.MetaData()
    tables.reflect(target)
    with source.connect() as old, target.begin() as new:
        for table in reversed(tables.sorted_tables):
            new.execute(table.delete())
        for table in tables.sorted_tables:
            rows = [dict(row._mapping) for row in old.execute(sa.text(f'SELECT * FROM "{table.name}"'))]
            if rows:
                new.execute(table.insert(), [_as_typed(row, table) for row in rows])
            for column in table.columns:
                if column.autoincrement is True and rows:
                    sequence = sa.func.pg_get_serial_sequence(table.name, column.name)
                    new.execute(sa.select(sa.func.setval(sequence, max(row[column.name] for row in rows))))
    return url


def _as_typed(row, table):
    """SQLite has neither booleans nor times."""
    typed = {bool: bool, dt.datetime: dt.datetime.fromisoformat}

    def value(name):
        kind = typed.get(table.columns[name].type.python_type)
        return row[name] if kind is None or row[name] is None else kind(row[name])

    return {name: value(name) for name in row}


def rows_of(url):
    """All rows of all tables, as text."""
    engine = sa.create_engine(url if "://" in url else f"sqlite:///{url}", poolclass=sa.NullPool)
    tables = sa.MetaData()
    tables.reflect(engine)
    with engine.connect() as connection:
        return {
            name: sorted(str(tuple(row)) for row in connection.execute(sa.select(table)))
            for name, table in tables.tables.items()
        }
