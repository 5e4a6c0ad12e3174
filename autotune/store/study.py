"""One study in an SQL database."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa

from ..records.codec import to_json
from ..records.configuration import Configuration
from ..records.environment import Environment
from ..records.facts import Facts
from ..records.outcome import Measured, Outcome
from ..records.study import Repeat, StudyRecord, StudySpec, Trial, Verdict
from . import optuna_tables, schema
from .claims import Claims
from .connections import Location
from .faults import translated
from .optuna_tables import OptunaTables

if TYPE_CHECKING:
    from optuna import Study as OptunaStudy


Unstored = tuple[Outcome, Environment | None]
"""What a trial came to, and where, as long as it is not in the database."""

# Rows are added, and these of their columns are filled in later.
_COUNTED: tuple[tuple[sa.Table, tuple[str, ...]], ...] = (
    (schema.trial, ("configuration", "outcome", "environment_id")),
    (schema.repeat, ()),
    (schema.bundle, ()),
)


def version_of(connection: sa.Connection, study_id: int | None = None, *more: object) -> str:
    """Return a text that is another one when a study has changed, or any study or gate, or what is added."""
    study = schema.study.c
    texts = [sa.type_coerce(study[name], sa.Text) for name in ("spec", "facts", "verdict")]
    # Facts are long, and are replaced by others once at most.
    query = sa.select(study.id, study.created_at, texts[0], sa.func.length(texts[1]), texts[2]).order_by(study.id)
    found = [list(row) for row in connection.execute(_only(query, study.id, study_id))]
    for table, columns in _COUNTED:
        counts = sa.select(sa.func.count(), *(sa.func.count(table.c[name]) for name in columns)).select_from(table)
        found.append(list(connection.execute(_only(counts, table.c.study_id, study_id)).one()))
    if study_id is None:
        found.append([connection.scalar(sa.select(sa.func.count()).select_from(schema.gate))])
    return hashlib.sha256(json.dumps([*found, *more]).encode()).hexdigest()[:16]


def _only(
    query: sa.Select[*tuple[Any, ...]], column: sa.ColumnElement[int], study_id: int | None
) -> sa.Select[*tuple[Any, ...]]:
    return query if study_id is None else query.where(column == study_id)


P = ParamSpec("P")
T = TypeVar("T")


def _translated(method: Callable[Concatenate[Study, P], T]) -> Callable[Concatenate[Study, P], T]:
    @functools.wraps(method)
    def guarded(study: Study, /, *arguments: P.args, **keywords: P.kwargs) -> T:
        with study.guard():
            return method(study, *arguments, **keywords)

    return guarded


class Study:
    """One study, usable from several threads. Every writing method has committed when it returns.

    A trial is named by Optuna's number. The trials that a process began are its own until it finishes or releases
    them, or until it is dead. ``name`` is unique in the database. ``spec`` is what the study was asked for, as last set
    here.
    """

    def __init__(
        self, row: sa.Row[Any], claims: Claims, *, engine: sa.Engine, optuna_tables: OptunaTables, location: Location
    ) -> None:
        self._row = row
        self._engine = engine
        self._optuna_tables = optuna_tables
        self._location = location
        self.name: str = row.name
        self.spec: StudySpec = row.spec
        self._claims = claims
        self._lock = threading.Lock()
        self._optuna: OptunaStudy | None = None

    @property
    def optuna(self) -> OptunaStudy:
        """Optuna's study of the same name, loaded at first use: maximize ``samples_per_s``, minimize ``peak_bytes``."""
        with self._lock, self.guard():
            if self._optuna is None:
                self._optuna = optuna_tables.load_study(self.name, self._optuna_tables.storage())
            return self._optuna

    def guard(self) -> AbstractContextManager[None]:
        """Turn database failures in the block into StorageError and RunError, for code that calls ``optuna``."""
        return translated(self._location)

    @_translated
    def record(self) -> StudyRecord:
        """Read everything, trials in the order of their numbers."""
        mine = schema.study.c.id == self._row.id
        with self._engine.connect() as connection:
            row = connection.execute(sa.select(schema.study).where(mine)).one()
            trials = self._trials(connection)
            repeats = connection.execute(_of(schema.repeat, self._row.id).order_by(schema.repeat.c.id)).all()
            bundles = connection.execute(_of(schema.bundle, self._row.id).order_by(schema.bundle.c.id)).all()
            # Last: an environment is committed with the first trial or repeat that refers to it.
            environments = self._environments(connection, {item.environment_id for item in (*trials, *repeats)})
        return StudyRecord(
            name=row.name,
            spec=row.spec,
            created_at=row.created_at,
            autotune=row.autotune,
            facts=row.facts,
            trials=tuple(_trial(item, environments) for item in trials),
            repeats=tuple(
                Repeat(
                    configuration=item.configuration,
                    repetition=item.repetition,
                    outcome=item.outcome,
                    environment=environments.get(item.environment_id),
                    run_directory=item.run_directory,
                    confirmation=item.confirmation,
                )
                for item in repeats
            ),
            verdict=row.verdict,
            bundles=tuple(item.path for item in bundles),
        )

    @_translated
    def version(self) -> str:
        """Return a text that is another one whenever ``record`` is, and whenever ``is_running`` is; cheap."""
        is_running = self.is_running()
        with self._engine.connect() as connection:
            return version_of(connection, self._row.id, is_running)

    @_translated
    def is_running(self) -> bool:
        """Return whether a live process works on it."""
        return self._claims.is_anybody_alive()

    def set_spec(self, spec: StudySpec) -> None:
        """Replace the spec: the study goes on with another budget."""
        self._set(spec=spec)
        self.spec = spec

    def set_facts(self, facts: Facts) -> None:
        """Store what discovery found, in place of earlier facts."""
        self._set(facts=facts)

    def set_verdict(self, verdict: Verdict) -> None:
        """Store the answer, in place of an earlier one."""
        self._set(verdict=verdict)

    @_translated
    def _set(self, /, **values: Any) -> None:
        with self._engine.begin() as connection:
            connection.execute(sa.update(schema.study).where(schema.study.c.id == self._row.id).values(values))

    def add_bundle(self, path: str) -> None:
        """Note that a bundle was written to ``path``."""
        self._add(schema.bundle, {"study_id": self._row.id, "path": path, "written_at": time.time()})

    @_translated
    def begin_confirmation(self) -> int | None:
        """Number a new confirmation, ours until ``end_confirmation``; None while a live process measures one."""
        return self._claims.begin_confirmation()

    @_translated
    def end_confirmation(self, number: int) -> None:
        """Note that nothing more will be measured in a confirmation of this process."""
        self._claims.end_confirmation(number)

    def add_repeat(self, repeat: Repeat) -> None:
        """Store one re-measured finalist or baseline, of a confirmation of this process."""
        values = {
            "study_id": self._row.id,
            "confirmation": repeat.confirmation,
            "repetition": repeat.repetition,
            "configuration": repeat.configuration,
            "run_directory": repeat.run_directory,
            "finished_at": time.time(),
            **_outcome_columns(repeat.outcome),
        }
        self._add(schema.repeat, values, repeat.environment)

    @_translated
    def _add(self, table: sa.Table, values: dict[str, Any], environment: Environment | None = None) -> None:
        with self._engine.begin() as connection:
            refers = {} if environment is None else {"environment_id": _environment_id(connection, environment)}
            connection.execute(sa.insert(table).values(values | refers))

    @_translated
    def begin(self, number: int, configuration: Configuration, run_directory: str) -> bool:
        """Claim a trial that Optuna has just given out; False if it was begun already: ask for another one.

        Optuna can give one enqueued trial to two askers: on SQLite it has no row locks.
        """
        optuna_trial_id = self._optuna_trial_id(number)
        return self._claims.insert(number, optuna_trial_id, configuration=configuration, run_directory=run_directory)

    @_translated
    def add_trial(
        self,
        number: int,
        configuration: Configuration,
        outcome: Outcome,
        environment: Environment | None,
        run_directory: str,
        *,
        took_s: float = 0.0,
    ) -> bool:
        """Store a trial that was measured before Optuna knew of it, finished and told; False if it is there already.

        ``took_s`` is how long it took. It is one write, so that no crash leaves the trial half there.
        """
        optuna_trial_id = self._optuna_trial_id(number)
        now = time.time()
        with self._claims.transaction() as connection:
            return self._claims.add(
                connection,
                number,
                optuna_trial_id,
                configuration=configuration,
                run_directory=run_directory,
                state="finished",
                told=True,
                started_at=now - took_s,
                finished_at=now,
                environment_id=_environment_id(connection, environment),
                **_outcome_columns(outcome),
            )

    @_translated
    def heartbeat(self) -> None:
        """Say that this process lives, for all the trials it owns.

        Only other machines go by it; they take trials over whose owner was silent for the grace period.
        """
        self._claims.heartbeat()

    @_translated
    def finish(self, number: int, outcome: Outcome, environment: Environment | None) -> bool:
        """Store the outcome of a trial of this process, before Optuna is told.

        False, storing nothing, if the trial is finished or was taken over: Optuna must not be told.
        """
        with self._claims.transaction() as connection:
            # The trial first: its row is locked, or found lost, before anything else is written.
            values = {"state": "finished", "finished_at": time.time(), **_outcome_columns(outcome)}
            if not self._claims.update(connection, number, **values):
                return False
            reference = {"environment_id": _environment_id(connection, environment)}
            connection.execute(sa.update(schema.trial).where(*self._is(number)).values(reference))
            return True

    @_translated
    def untold(self) -> tuple[Trial, ...]:
        """Give the trials that are finished here and still running in Optuna, left by this process or dead ones.

        They belong to the caller now: tell Optuna, then ``mark_told``.
        """
        done = (schema.trial.c.state == "finished", sa.not_(schema.trial.c.told))
        self._claims.take(*done)
        numbers = self._claims.owned(*done)
        if not numbers:
            return ()
        running = optuna_tables.running_trials(self.optuna)
        for number in numbers - running.keys():  # told, and cut off before that was noted
            self.mark_told(number)
        return self._read(numbers & running.keys())

    @_translated
    def mark_told(self, number: int) -> None:
        """Note that Optuna knows the outcome."""
        with self._engine.begin() as connection:
            connection.execute(sa.update(schema.trial).where(*self._is(number)).values(told=True))

    @_translated
    def release(self, number: int) -> None:
        """Give back a running trial of this process that was not reached: its configuration is enqueued again."""
        if number in self._claims.owned(schema.trial.c.state == "running"):
            self._requeue(number)

    @_translated
    def recover(self, unstored: Callable[[Trial], Unstored | None] | None = None) -> tuple[Trial, ...]:
        """Fail the running trials whose owner is dead and enqueue their configurations again; give those trials.

        A trial of which ``unstored`` knows the outcome, as its owner could not store it, is finished with that instead,
        and not listed. Trials that a dead process was given and had not begun are enqueued again and not listed.

        Each trial is recovered exactly once, however many processes do this at the same time, and wherever an earlier
        attempt was cut off. Call this before the first ``ask``: it also announces this process.
        """
        lost = self._claims.take(schema.trial.c.state == "running")
        lost |= self._claims.take_unbegun(optuna_tables.running_trials(self.optuna), self._optuna_trial_id)
        for trial in self._read(lost):
            known = unstored(trial) if unstored else None
            if known is not None and self.finish(trial.number, *known):
                lost.remove(trial.number)
        for number in sorted(lost):
            self._requeue(number)
        return self._read(lost)

    def _requeue(self, number: int) -> None:
        """Enqueue a trial that we hold again. Ours is marked last, so that a crash here is found and gone on from."""
        optuna_tables.requeue(self.optuna, number)
        values = {"state": "finished", "finished_at": time.time(), "recovered": True, "told": True}
        with self._claims.transaction() as connection:
            self._claims.update(connection, number, **values)

    def _optuna_trial_id(self, number: int) -> int:
        storage = self._optuna_tables.storage()
        return storage.get_trial_id_from_study_id_trial_number(self._row.optuna_study_id, number)

    def _is(self, number: int) -> tuple[sa.ColumnElement[bool], ...]:
        return schema.trial.c.study_id == self._row.id, schema.trial.c.number == number

    def _read(self, numbers: set[int]) -> tuple[Trial, ...]:
        with self._engine.connect() as connection:
            rows = [row for row in self._trials(connection) if row.number in numbers]
            environments = self._environments(connection, {row.environment_id for row in rows})
        return tuple(_trial(row, environments) for row in rows)

    def _trials(self, connection: sa.Connection) -> list[sa.Row[Any]]:
        # Trials without a configuration were never begun: there is nothing to tell about them.
        query = _of(schema.trial, self._row.id).where(schema.trial.c.configuration.is_not(None))
        return list(connection.execute(query.order_by(schema.trial.c.number)))

    def _environments(self, connection: sa.Connection, ids: set[int | None]) -> dict[int | None, Environment]:
        query = sa.select(schema.environment).where(schema.environment.c.id.in_(ids - {None}))
        return {row.id: row.environment for row in connection.execute(query)}


def _of(table: sa.Table, study_id: int) -> sa.Select[Any]:
    return sa.select(table).where(table.c.study_id == study_id)


def _trial(row: sa.Row[Any], environments: dict[int | None, Environment]) -> Trial:
    return Trial(
        number=row.number,
        configuration=row.configuration,
        state=row.state,
        outcome=row.outcome,
        environment=environments.get(row.environment_id),
        started_at=row.started_at,
        finished_at=row.finished_at,
        run_directory=row.run_directory,
        recovered=row.recovered,
    )


def _outcome_columns(outcome: Outcome) -> dict[str, Any]:
    values: dict[str, Any] = {"outcome": outcome, "kind": outcome.kind, "samples_per_s": None, "peak_bytes": None}
    if isinstance(outcome, Measured):
        measurement = outcome.measurement
        values["samples_per_s"] = measurement.samples_per_s
        if any(peak is not None for peak in dataclasses.astuple(measurement.peaks)):
            values["peak_bytes"] = measurement.peaks.fit_bytes
    return values


def _environment_id(connection: sa.Connection, environment: Environment | None) -> int | None:
    if environment is None:
        return None
    canonical = json.dumps(to_json(environment), sort_keys=True, separators=(",", ":"))
    sha256 = hashlib.sha256(canonical.encode()).hexdigest()
    schema.add(connection, schema.environment, {"sha256": sha256, "environment": environment})
    known = sa.select(schema.environment.c.id).where(schema.environment.c.sha256 == sha256)
    row_id: int = connection.execute(known).scalar_one()
    return row_id
