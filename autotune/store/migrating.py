"""Make the tables of a database, or refuse those of another autotune."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from .. import __version__
from ..errors import StorageError
from . import schema
from .connections import Location

_LOCK = 0x6175746F  # any number that nobody else locks in the same PostgreSQL database: "auto"
_WRITER = "autotune"  # key in the table about: the version that made the tables


def upgrade(engine: sa.Engine, location: Location) -> None:
    """Make our tables, once, also when several processes open a database at the same time.

    Raises:
        StorageError: Another autotune wrote the database, whose tables are others.
    """
    with engine.connect() as connection:
        if _revision(connection) == schema.HEAD:
            return
    with _alone(engine) as connection:
        revision = _revision(connection)
        if revision == schema.HEAD:
            return
        if revision is not None:
            version = connection.scalar(sa.select(schema.about.c.value).where(schema.about.c.key == _WRITER))
            writer = f"autotune {version}" if version else "another autotune"
            is_old = revision < schema.HEAD
            hint = "nothing reads it any more" if is_old else "pip install --upgrade autotune-memory"
            raise StorageError(
                f"{location} was written by {writer} (schema {revision}); "
                f"this is autotune {__version__} (schema {schema.HEAD})",
                hint=f"{hint}; or name another database with --storage",
            )
        schema.metadata.create_all(connection)
        connection.execute(sa.insert(schema.revision).values(version_num=schema.HEAD))
        connection.execute(sa.insert(schema.about).values(key=_WRITER, value=__version__))


def _revision(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table(schema.revision.name):
        return None
    return connection.scalar(sa.select(schema.revision.c.version_num))


@contextmanager
def _alone(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Open a transaction that no other process of ours is in at the same time."""
    with engine.begin() as connection:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        yield connection
