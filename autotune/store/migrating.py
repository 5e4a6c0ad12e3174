"""Bring a database to the schema of this autotune, or refuse one that a newer autotune wrote."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from .. import __version__
from ..errors import StorageError
from . import schema
from .location import Location

if TYPE_CHECKING:
    from alembic.config import Config


_LOCK = 0x6175746F  # any number that nobody else locks in the same PostgreSQL database: "auto"
_WRITER = "autotune"  # key in the table about: the version that last changed the schema


def upgrade(engine: sa.Engine, location: Location) -> None:
    """Create or upgrade our tables, once, also when several processes open a database at the same time.

    Raises:
        StorageError: A newer autotune wrote the database.
    """
    with engine.connect() as connection:
        if _revision(connection) == schema.HEAD:
            return
    with _alone(engine) as connection:
        revision = _revision(connection)
        if revision == schema.HEAD:
            return
        # Imported late: a database that is up to date, the usual one, needs no Alembic.
        from alembic import command
        from alembic.script import ScriptDirectory

        config = configuration(connection)
        known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
        if revision is not None and revision not in known:
            writer = read_about(connection, _WRITER) or "a later version"
            raise StorageError(
                f"{location} was written by autotune {writer} (schema {revision}); "
                f"this is autotune {__version__} (schema {schema.HEAD})",
                hint="pip install --upgrade autotune-memory, or name another database with --storage",
            )
        command.upgrade(config, schema.HEAD)
        write_about(connection, _WRITER, __version__)


def configuration(connection: sa.Connection) -> Config:
    """Alembic's configuration for work on this connection."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    config.attributes["version_table"] = schema.VERSION_TABLE
    return config


def read_about(connection: sa.Connection, key: str) -> str | None:
    """Give a line of the table ``about``."""
    value: str | None = connection.scalar(sa.select(schema.about.c.value).where(schema.about.c.key == key))
    return value


def write_about(connection: sa.Connection, key: str, value: str) -> None:
    """Set a line of the table ``about``."""
    statement = schema.insert(connection, schema.about).values(key=key, value=value)
    connection.execute(statement.on_conflict_do_update(index_elements=["key"], set_={"value": value}))


def _revision(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table(schema.VERSION_TABLE):
        return None
    revision: str | None = connection.scalar(sa.text(f"SELECT version_num FROM {schema.VERSION_TABLE}"))  # noqa: S608
    return revision


@contextmanager
def _alone(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A transaction that no other process of ours is in at the same time."""
    with engine.begin() as connection:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        yield connection
