"""Optuna's own tables in our database."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import sqlalchemy as sa

from ..errors import StorageError
from .connections import connect
from .location import Location

if TYPE_CHECKING:
    import optuna


class OptunaTables:
    """Opens Optuna's storage at first use, with connections of its own that ``close`` ends."""

    def __init__(self, location: Location, *, timeout_s: float) -> None:
        self._location = location
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

                self._storage = get_storage(self._create())
            return self._storage

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    def _create(self) -> optuna.storages.RDBStorage:
        """Create Optuna's tables; it looks and creates in two steps, so another process may come between."""
        from optuna.storages import RDBStorage

        # Optuna fills {SCHEMA_VERSION} into the URL with str.format.
        url = self._location.url.render_as_string(hide_password=False).replace("{", "{{").replace("}", "}}")
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                return RDBStorage(url, engine_kwargs={"pool": self._engine.pool})
            except (sa.exc.IntegrityError, sa.exc.OperationalError, sa.exc.ProgrammingError) as error:
                lost_the_race = isinstance(error, sa.exc.IntegrityError) or "already exists" in str(error)
                if not lost_the_race or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            except RuntimeError as error:  # another Optuna made them
                raise StorageError(f"Optuna's tables in {self._location}: {error}", hint="do as Optuna says") from None
