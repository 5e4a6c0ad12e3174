"""Make the tables of a database, bring those of revision 0004 up to date, or refuse those of another autotune."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from .. import __version__
from ..errors import StorageError
from . import schema
from .connections import Location

_LOCK = 0x6175746F  # any number that nobody else locks in the same PostgreSQL database: "auto"
_WRITER = "autotune"  # key in the table about: the version that made the tables

# From revision 0004, which had other words. A key of JSON has its quotes bare; those in a text are escaped.
_FROM_0004 = (
    "ALTER TABLE autotune_final RENAME TO autotune_confirmation",
    "ALTER TABLE autotune_repeat RENAME COLUMN final TO confirmation",
    "ALTER TABLE autotune_repeat RENAME COLUMN round TO repetition",
    """UPDATE autotune_study SET spec = replace(spec, '"finalist_rounds":', '"finalist_repetitions":')""",
    """UPDATE autotune_study SET verdict = replace(replace(replace(verdict, '"rounds":', '"repetitions":'),
        '"stage":"rounds"', '"stage":"confirmation"'), '"hopeless"', '"futile"')""",
    """UPDATE autotune_gate SET gate = replace(gate, '"rounds":', '"repetitions":')""",
)


def upgrade(engine: sa.Engine, location: Location) -> None:
    """Make our tables, or bring them up to date, once, also when several processes open a database at the same time.

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
        if revision == "0004":
            try:
                _bring_up_to_date(connection)
            except sa.exc.ProgrammingError as error:
                raise StorageError(
                    f"{location} has schema 0004 and could not be brought up to date: {error.orig}",
                    hint="open it once as the owner of its tables, as with `autotune studies --storage URL`",
                ) from error
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


def _bring_up_to_date(connection: sa.Connection) -> None:
    for statement in _FROM_0004:
        connection.exec_driver_sql(statement)
    # Revision 0004 stored the texts of sentences alone: they get the code that says nothing.
    query = sa.text("SELECT id, verdict FROM autotune_study WHERE verdict IS NOT NULL")
    for row in connection.execute(query).all():
        verdict = json.loads(row.verdict)
        verdict["reason"] = {"code": "", "text": verdict["reason"]}
        verdict["remarks"] = [{"code": "", "text": one} for one in verdict.get("remarks", ())]
        values = {"id": row.id, "verdict": json.dumps(verdict, separators=(",", ":"))}
        connection.execute(sa.text("UPDATE autotune_study SET verdict = :verdict WHERE id = :id"), values)
    connection.execute(sa.update(schema.revision).values(version_num=schema.HEAD))
    connection.execute(sa.update(schema.about).where(schema.about.c.key == _WRITER).values(value=__version__))


@contextmanager
def _alone(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Open a transaction that no other process of ours is in at the same time."""
    with engine.begin() as connection:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        yield connection
