"""Claims of processes on trials. Rows change hands by conditional updates, so that of several takers one succeeds."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from ..records.configuration import Configuration
from . import schema

_PROC = Path("/proc")


@dataclass(frozen=True)
class Owner:
    """A process, told apart from every other one, also from a later one that got the same number.

    ``machine`` is the kernel's boot id and the pid namespace: what a process number is unique in. Containers on one
    host differ in it, and so does a host before and after a reboot; it is empty where the kernel does not say.
    ``process_start`` is in clock ticks since boot. ``hostname`` is for people.
    """

    machine: str
    hostname: str
    process: int
    process_start: int

    @classmethod
    def current(cls) -> Owner:
        """Describe this process."""
        process = os.getpid()
        return cls(_machine(), socket.gethostname(), process, _start_of(process) or 0)

    def is_local_to(self, other: Owner) -> bool:
        """Return whether the two see the same process numbers, so that one can look whether the other lives."""
        return bool(self.machine) and self.machine == other.machine

    def is_running(self) -> bool:
        """Return whether this process runs, for an owner that is local to the caller."""
        return _start_of(self.process) == self.process_start


def _machine() -> str:
    try:
        boot_id = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = (_PROC / "self/ns/pid").readlink()
    except OSError:
        return ""
    return f"{boot_id} {namespace}"


def _start_of(process: int) -> int | None:
    """Return the start time in clock ticks since boot; None if there is no such process, or it is a zombie.

    Source: proc_pid_stat(5), fields 3 and 22; the command name before them may hold spaces and parentheses.
    """
    try:
        fields = (_PROC / str(process) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


class Claims:
    """The trials of one study that this process (``owner``) holds, and may take from dead ones."""

    def __init__(self, engine: sa.Engine, study_id: int, owner: Owner, grace_s: float) -> None:
        self._engine = engine
        self._study_id = study_id
        self._owner = owner
        self._grace_s = grace_s
        self._owner_id: int | None = None

    def register(self) -> int:
        """Announce this process, once; give its row's id."""
        if self._owner_id is None:
            key = {"study_id": self._study_id, **asdict(self._owner)}
            with self._engine.begin() as connection:
                values = key | {"registered_at": time.time(), "heartbeat_at": _now(connection)}
                insert = schema.insert(connection, schema.owner).values(values)
                beat = {"heartbeat_at": insert.excluded.heartbeat_at}
                connection.execute(insert.on_conflict_do_update(index_elements=list(key), set_=beat))
                same = [schema.owner.c[name] == value for name, value in key.items()]
                owner_id: int = connection.execute(sa.select(schema.owner.c.id).where(*same)).scalar_one()
            self._owner_id = owner_id  # now that it is committed
        return self._owner_id

    def heartbeat(self) -> None:
        """Write that this process lives."""
        owner_id = self.register()
        with self._engine.begin() as connection:
            beat = {"heartbeat_at": _now(connection)}
            connection.execute(sa.update(schema.owner).where(schema.owner.c.id == owner_id).values(beat))

    def insert(
        self, number: int, optuna_trial_id: int, *, configuration: Configuration | None, run_directory: str = ""
    ) -> bool:
        """Claim a trial that has no row yet; False if it has one by now."""
        values = {"configuration": configuration, "run_directory": run_directory, "state": "running", "told": False}
        with self.transaction() as connection:
            return self.add(connection, number, optuna_trial_id, **values)

    def add(self, connection: sa.Connection, number: int, optuna_trial_id: int, **values: Any) -> bool:
        """Write the first row of a trial, in a ``transaction``, as ours; False if it has one by now."""
        row = {
            "study_id": self._study_id,
            "number": number,
            "optuna_trial_id": optuna_trial_id,
            "owner_id": self._owner_id,
            "recovered": False,
            "started_at": time.time(),
        }
        return schema.add(connection, schema.trial, row | values)

    @contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """Open a transaction for ``update`` and what belongs with it."""
        self.register()  # in a transaction of its own: SQLite has one writer at a time
        with self._engine.begin() as connection:
            yield connection

    def update(self, connection: sa.Connection, number: int, **values: Any) -> bool:
        """Write to a running trial, in a ``transaction``, if it is ours; False if it is not."""
        held = (*self._owned(), schema.trial.c.number == number, schema.trial.c.state == "running")
        return connection.execute(sa.update(schema.trial).where(*held).values(values)).rowcount == 1

    def owned(self, *which: sa.ColumnElement[bool]) -> set[int]:
        """Return the numbers of those trials that are ours."""
        with self.transaction() as connection:
            return set(connection.scalars(sa.select(schema.trial.c.number).where(*self._owned(), *which)))

    def take(self, *which: sa.ColumnElement[bool]) -> set[int]:
        """Make those trials of dead owners ours; return the numbers of those that no other process took first."""
        self.register()
        with self._engine.connect() as connection:
            dead = self._owners(connection, alive=False)
            conditions = [schema.trial.c.study_id == self._study_id, *which]
            query = sa.select(schema.trial.c.number, schema.trial.c.owner_id).where(*conditions)
            found = connection.execute(query).all()
        taken = set()
        for number, owner_id in found:
            still = [*conditions, schema.trial.c.number == number, schema.trial.c.owner_id == owner_id]
            if owner_id in dead:
                with self._engine.begin() as connection:
                    statement = sa.update(schema.trial).where(*still).values(owner_id=self._owner_id)
                    if connection.execute(statement).rowcount == 1:
                        taken.add(number)
        return taken

    def take_unbegun(self, running: Mapping[int, float], optuna_trial_id: Callable[[int], int]) -> set[int]:
        """Claim the trials that Optuna gave out and nobody began, where no live process can be about to.

        ``running`` has the numbers of the trials that run in Optuna, and when they were given out, by the asker's
        clock. ``optuna_trial_id`` gives Optuna's id of a number.
        """
        with self._engine.connect() as connection:
            query = sa.select(schema.trial.c.number).where(schema.trial.c.study_id == self._study_id)
            unbegun = running.keys() - set(connection.scalars(query))
            alive = self._owners(connection, alive=True)
        return {
            number
            for number in unbegun
            if not any(self._may_have_asked(row, running[number]) for row in alive.values())
            and self.insert(number, optuna_trial_id(number), configuration=None)
        }

    def _may_have_asked(self, row: sa.Row[Any], asked_at: float) -> bool:
        """Return whether a living process may be about to begin a trial that was given out at that time.

        A process registers before it asks. The clock of another machine may be off: its process has the grace period to
        begin, and later ``insert`` tells it that the trial is gone.
        """
        if _owner(row).is_local_to(self._owner):
            return bool(row.registered_at <= asked_at)
        return time.time() - asked_at <= self._grace_s

    def is_anybody_alive(self) -> bool:
        """Return whether a live process, this one or another, has announced itself."""
        with self._engine.connect() as connection:
            return bool(self._owners(connection, alive=True))

    def begin_confirmation(self) -> int | None:
        """Claim the next confirmation; None while a live process is at one, or takes it first."""
        me = self.register()
        with self._engine.connect() as connection:
            alive = self._owners(connection, alive=True)
            mine = schema.confirmation.c.study_id == self._study_id
            rows = connection.execute(sa.select(schema.confirmation).where(mine)).all()
        if any(row.owner_id in alive and row.owner_id != me and not row.ended for row in rows):
            return None
        number = 1 + max((row.number for row in rows), default=0)
        values = {"study_id": self._study_id, "number": number, "owner_id": me, "ended": False}
        with self.transaction() as connection:
            return number if schema.add(connection, schema.confirmation, values) else None

    def end_confirmation(self, number: int) -> None:
        """Give up a confirmation."""
        confirmation = schema.confirmation.c
        with self.transaction() as connection:
            ours = (
                confirmation.study_id == self._study_id,
                confirmation.owner_id == self._owner_id,
                confirmation.number == number,
            )
            connection.execute(sa.update(schema.confirmation).where(*ours).values(ended=True))

    def _owners(self, connection: sa.Connection, *, alive: bool) -> dict[int, sa.Row[Any]]:
        now = _now(connection)
        rows = connection.execute(sa.select(schema.owner).where(schema.owner.c.study_id == self._study_id)).all()
        return {row.id: row for row in rows if self._is_alive(row, now) is alive}

    def _is_alive(self, row: sa.Row[Any], now: float) -> bool:
        owner = _owner(row)
        if owner == self._owner:
            return True
        if owner.is_local_to(self._owner):
            return owner.is_running()
        return bool(now - row.heartbeat_at <= self._grace_s)

    def _owned(self) -> tuple[sa.ColumnElement[bool], ...]:
        return schema.trial.c.study_id == self._study_id, schema.trial.c.owner_id == self._owner_id


def _owner(row: sa.Row[Any]) -> Owner:
    return Owner(row.machine, row.hostname, row.process, row.process_start)


def _now(connection: sa.Connection) -> float:
    """Return seconds since the epoch by the clock that all users of the database share."""
    if connection.dialect.name == "sqlite":
        return time.time()
    return float(connection.execute(sa.select(sa.extract("epoch", sa.func.clock_timestamp()))).scalar_one())
