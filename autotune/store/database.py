"""The store in an SQLite file or a PostgreSQL database."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from typing import Self

import sqlalchemy as sa

from .. import __version__
from ..errors import StorageError, did_you_mean
from ..records.gate import PastGate
from ..records.printable import shell_word
from ..records.study import StudySpec
from . import migrating, optuna_tables, schema
from .claims import Claims, Owner
from .connections import Location, connect, parse_location, use_write_ahead_log
from .faults import translated
from .optuna_tables import OptunaTables
from .study import Study, version_of

_MAX_NAME = 200


class Store:
    """A database of studies, which ``open_store`` opens; a context manager that closes it.

    ``url`` says where it is, for people: without a password.
    """

    def __init__(self, location: Location, *, create: bool, timeout_s: float, grace_s: float, owner: Owner) -> None:
        self._location = location
        self.url = location.shown_url
        self._grace_s = grace_s
        self._owner = owner
        with translated(location, opening=True):
            if location.path is not None:
                _check_file(location, create=create)
                use_write_ahead_log(location, create=create, timeout_s=timeout_s)
            self._engine = connect(location, timeout_s=timeout_s, synchronous="FULL")
            self._optuna = OptunaTables(location, timeout_s=timeout_s)
            try:
                migrating.upgrade(self._engine, location)
            except BaseException:
                self.close()
                raise

    def create(self, name: str, spec: StudySpec) -> Study:
        """Create a study; StorageError if there is one of that name."""
        if not name or len(name) > _MAX_NAME or not name.isprintable() or name != name.strip() or name[0] == "-":
            raise StorageError(
                f"bad study name {name!r}: 1 to {_MAX_NAME} printable characters, no dash before them and no space "
                "around them",
                hint="choose another one with --study",
            )
        with self._guard():
            if name in self:
                raise _exists(name)
            storage = self._optuna.storage()
            optuna_tables.create_study(name, storage)
            row = {
                "optuna_study_id": storage.get_study_id_from_name(name),
                "name": name,
                "spec": spec,
                "created_at": time.time(),
                "autotune": __version__,
            }
            with self._engine.begin() as connection:
                if not schema.add(connection, schema.study, row):
                    raise _exists(name)
            return self.open(name)

    def open(self, name: str) -> Study:
        """Open a study; StorageError naming similar ones if there is none of that name."""
        with self._guard():
            with self._engine.connect() as connection:
                row = connection.execute(sa.select(schema.study).where(schema.study.c.name == name)).one_or_none()
            if row is None:
                hint = did_you_mean(name, self.names()) or "`autotune studies` lists those that are there"
                raise StorageError(f"no study {name!r} in {self._location}", hint=hint)
            claims = Claims(self._engine, row.id, self._owner, self._grace_s)
            return Study(row, claims, engine=self._engine, optuna_tables=self._optuna, location=self._location)

    def names(self) -> tuple[str, ...]:
        """Return the names of all studies, oldest first."""
        with self._guard(), self._engine.connect() as connection:
            return tuple(connection.scalars(sa.select(schema.study.c.name).order_by(schema.study.c.id)))

    def __contains__(self, name: str) -> bool:
        with self._guard(), self._engine.connect() as connection:
            query = sa.select(schema.study.c.id).where(schema.study.c.name == name)
            return connection.scalar(query) is not None

    def version(self) -> str:
        """Return a text that is another one whenever anything of a study or a gate is; cheap."""
        with self._guard(), self._engine.connect() as connection:
            return version_of(connection)

    def add_gate(self, gate: PastGate) -> None:
        """Keep what a gate said."""
        speed, memory = gate.gauge("speed"), gate.gauge("memory")
        row = {
            "held_at": gate.held_at,
            "script_name": gate.script_name,
            "script_sha256": gate.script_sha256,
            "configuration": gate.configuration,
            "answer": gate.gate.answer,
            "samples_per_s": None if speed is None else speed.now,
            "speed_change": None if speed is None else speed.change,
            "peak_bytes": None if memory is None else round(memory.now),
            "memory_change": None if memory is None else memory.change,
            "gate": gate.gate,
        }
        with self._guard(), self._engine.begin() as connection:
            connection.execute(sa.insert(schema.gate).values(row))

    def gates(self, script_name: str | None = None, configuration: str | None = None) -> tuple[PastGate, ...]:
        """Return what gates said, oldest first; of all, or of a setting (its key) on scripts of that name."""
        table = schema.gate
        wanted = {"script_name": script_name, "configuration": configuration}
        which = [table.c[name] == value for name, value in wanted.items() if value is not None]
        query = sa.select(table).where(*which).order_by(table.c.id)
        with self._guard(), self._engine.connect() as connection:
            rows = connection.execute(query).all()
        return tuple(
            PastGate(row.held_at, row.script_name, row.script_sha256, row.configuration, row.gate) for row in rows
        )

    def _guard(self) -> AbstractContextManager[None]:
        return translated(self._location)

    def close(self) -> None:
        """Close all connections."""
        self._optuna.close()
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def open_store(
    url: str, *, create: bool = True, timeout_s: float = 15.0, grace_s: float = 120.0, owner: Owner | None = None
) -> Store:
    """Open a database of studies, and make its tables if it has none.

    Args:
        url: ``sqlite:///FILE``, the bare path of a file, or ``postgresql://user:password@host/database``.
        create: Make the SQLite file if it is not there. Commands that only read pass False, so that a mistyped name
            is an error and not an empty database.
        timeout_s: How long to wait for a locked database, or for a server.
        grace_s: How long an owner on another machine may be silent before its trials are taken over.
        owner: Who begins trials; this process unless told otherwise.

    Raises:
        StorageError: The URL or what it names cannot be used.
        RunError: The database is locked, or no room is left.
    """
    location = parse_location(url)
    return Store(location, create=create, timeout_s=timeout_s, grace_s=grace_s, owner=owner or Owner.current())


def _check_file(location: Location, *, create: bool) -> None:
    """Say what SQLite would only call "unable to open database file"."""
    path = location.path
    assert path is not None
    try:
        is_folder, has_folder, is_there = path.is_dir(), path.parent.is_dir(), path.exists()
    except OSError as error:
        raise StorageError(f"{path} cannot be looked at: {error.strerror}", hint="name another file") from None
    if is_folder:
        raise StorageError(f"{path} is a folder, not a database", hint=f"name a file in it, as in {path / 'study.db'}")
    if not create and not is_there:
        raise StorageError(
            f"no database {path}",
            hint="go to the folder where `autotune run` was started, or name the database with --storage",
        )
    if not has_folder:
        raise StorageError(
            f"no folder {path.parent} for the database {path.name!r}", hint=f"mkdir -p {shell_word(str(path.parent))}"
        )


def _exists(name: str) -> StorageError:
    return StorageError(f"study {name!r} exists already", hint="resume it, or choose another name with --study")
