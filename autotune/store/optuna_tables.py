"""Optuna's own tables in our database."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import sqlalchemy as sa

from ..errors import StorageError
from .connections import connect
from .location import Location
from .migrating import read_about, write_about

if TYPE_CHECKING:
    import optuna


_CHECKED = "optuna"  # key in the table about: the Optuna that last checked its tables, and their schema


class OptunaTables:
    """Opens Optuna's storage at first use, with connections of its own that ``close`` ends.

    Creating its tables and checking their schema imports Alembic's commands and takes longer than everything else
    about opening a study, so what was checked is noted, and done again only for another Optuna or another schema.
    """

    def __init__(self, location: Location, ours: sa.Engine, *, timeout_s: float) -> None:
        self._location = location
        self._ours = ours
        self._timeout_s = timeout_s
        self._engine = connect(location, timeout_s=timeout_s, synchronous="NORMAL")
        self._lock = threading.Lock()
        self._storage: optuna.storages.BaseStorage | None = None

    def storage(self) -> optuna.storages.BaseStorage:
        """Optuna's storage on this database; StorageError if its tables are for another version of Optuna."""
        with self._lock:
            if self._storage is None:
                # What Optuna makes of an RDBStorage itself: the same, with the finished trials kept in memory.
                from optuna.storages import get_storage

                self._storage = get_storage(self._open())
            return self._storage

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    def _open(self) -> optuna.storages.RDBStorage:
        import optuna

        with self._ours.connect() as connection:
            checked = read_about(connection, _CHECKED)
        version, _, schema = (checked or "").partition(" ")
        if version == optuna.__version__:
            storage = self._connect(tables_exist=True)
            if storage.get_current_version() == schema:
                return storage
        storage = self._create()
        self._check(storage)
        with self._ours.begin() as connection:
            write_about(connection, _CHECKED, f"{optuna.__version__} {storage.get_current_version()}")
        return storage

    def _connect(self, *, tables_exist: bool) -> optuna.storages.RDBStorage:
        from optuna.storages import RDBStorage

        # Optuna fills {SCHEMA_VERSION} into the URL with str.format.
        url = self._location.url.render_as_string(hide_password=False).replace("{", "{{").replace("}", "}}")
        return RDBStorage(
            url,
            engine_kwargs={"pool": self._engine.pool},
            skip_compatibility_check=True,  # _check does it, in our words
            skip_table_creation=tables_exist,
        )

    def _create(self) -> optuna.storages.RDBStorage:
        """Create Optuna's tables; it looks and creates in two steps, so another process may come between."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                return self._connect(tables_exist=False)
            except (sa.exc.IntegrityError, sa.exc.OperationalError, sa.exc.ProgrammingError) as error:
                lost_the_race = isinstance(error, sa.exc.IntegrityError) or "already exists" in str(error)
                if not lost_the_race or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def _check(self, storage: optuna.storages.RDBStorage) -> None:
        import optuna

        current, newest = storage.get_current_version(), storage.get_head_version()
        if current == newest:
            return
        older = current in storage.get_all_versions()
        raise StorageError(
            f"Optuna's tables in {self._location} have schema {current}, "
            f"the installed Optuna {optuna.__version__} works with {newest}",
            hint="optuna storage upgrade --storage URL" if older else "pip install --upgrade optuna",
        )
