"""A store without a database: a dict, a lock, and Optuna's InMemoryStorage. For tests of what uses a store."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from threading import RLock

import optuna

from autotune import __version__
from autotune.errors import StorageError
from autotune.records.gate import PastGate
from autotune.records.study import StudyRecord, Trial
from autotune.store.claims import Owner
from autotune.store.optuna_tables import create_study, requeue, running_trials


@dataclass
class InMemoryDatabase:
    """What several stores, each of another process as it were, have in common."""

    studies: dict[str, _Tables] = field(default_factory=dict)
    gates: list[PastGate] = field(default_factory=list)
    lock: RLock = field(default_factory=RLock)


class InMemoryStore:
    url = "memory"

    def __init__(self, database=None, *, owner=None, grace_s=120.0):
        self._database = database or InMemoryDatabase()
        self._owner = owner or Owner.current()
        self._grace_s = grace_s

    def create(self, name, spec):
        with self._database.lock:
            if not name.strip():
                raise StorageError(f"bad study name {name!r}")
            if name in self:
                raise StorageError(f"study {name!r} exists already")
            study = create_study(name, optuna.storages.InMemoryStorage())
            record = StudyRecord(name=name, spec=spec, created_at=time.time(), autotune=__version__)
            self._database.studies[name] = _Tables(study, record)
            return self.open(name)

    def open(self, name):
        if name not in self:
            raise StorageError(f"no study {name!r}", hint=f"there are {', '.join(self.names())}")
        return InMemoryStudy(self._database.studies[name], self._database.lock, self._owner, self._grace_s)

    def names(self):
        return tuple(self._database.studies)

    def __contains__(self, name):
        return name in self._database.studies

    def version(self):
        return f"{[self.open(name).version() for name in self.names()]} {self._database.gates}"

    def add_gate(self, gate):
        self._database.gates.append(gate)

    def gates(self, script_name=None, configuration=None):
        return tuple(
            one
            for one in self._database.gates
            if script_name in (None, one.script_name) and configuration in (None, one.configuration)
        )

    def close(self):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass


class InMemoryStudy:
    def __init__(self, tables, lock, owner, grace_s):
        self._tables = tables
        self._lock = lock
        self._owner = owner
        self._grace_s = grace_s
        self.optuna = tables.optuna

    @property
    def name(self):
        return self._tables.record.name

    def guard(self):
        return nullcontext()

    @property
    def spec(self):
        return self._tables.record.spec

    def record(self):
        with self._lock:
            rows = sorted(self._tables.rows.items())
            return replace(self._tables.record, trials=tuple(row.trial for _, row in rows if row.trial is not None))

    def version(self):
        return f"{self.record()} {self.is_running()}"

    def is_running(self):
        with self._lock:
            return any(self._is_alive(owner) for owner in self._tables.owners)

    def set_spec(self, spec):
        self._set(spec=spec)

    def set_facts(self, facts):
        self._set(facts=facts)

    def set_verdict(self, verdict):
        self._set(verdict=verdict)

    def add_bundle(self, path):
        self._set(bundles=(*self._tables.record.bundles, path))

    def begin_confirmation(self):
        with self._lock:
            self._register()
            confirmations = self._tables.confirmations
            if any(o not in (None, self._owner) and self._is_alive(o) for o in confirmations.values()):
                return None
            number = len(confirmations) + 1
            confirmations[number] = self._owner
            return number

    def end_confirmation(self, number):
        with self._lock:
            self._tables.confirmations[number] = None

    def add_repeat(self, repeat):
        self._set(repeats=(*self._tables.record.repeats, repeat))

    def _set(self, **values):
        with self._lock:
            self._tables.record = replace(self._tables.record, **values)

    def begin(self, number, configuration, run_directory):
        with self._lock:
            self._register()
            if number in self._tables.rows:
                return False
            trial = Trial(number, configuration, "running", started_at=time.time(), run_directory=run_directory)
            self._tables.rows[number] = _Row(self._owner, trial)
            return True

    def add_trial(self, number, configuration, outcome, environment, run_directory, *, took_s=0.0):
        with self._lock:
            self._register()
            if number in self._tables.rows:
                return False
            now = time.time()
            trial = Trial(number, configuration, "finished", outcome, environment, now - took_s, now, run_directory)
            self._tables.rows[number] = _Row(self._owner, trial, told=True)
            return True

    def heartbeat(self):
        with self._lock:
            self._register()
            self._tables.owners[self._owner].heartbeat_at = time.time()

    def finish(self, number, outcome, environment):
        with self._lock:
            row = self._tables.rows.get(number)
            if row is None or not self._holds(row):
                return False
            changes = {"outcome": outcome, "environment": environment, "finished_at": time.time()}
            row.trial = replace(row.trial, state="finished", **changes)
            return True

    def untold(self):
        with self._lock:
            self._register()
            running = running_trials(self.optuna)
            found = []
            for number, row in sorted(self._tables.rows.items()):
                finished = row.trial is not None and row.trial.state == "finished"
                mine = row.owner == self._owner or not self._is_alive(row.owner)
                if finished and not row.told and mine:
                    row.owner = self._owner
                    row.told = number not in running
                    found += [] if row.told else [row.trial]
            return tuple(found)

    def mark_told(self, number):
        with self._lock:
            self._tables.rows[number].told = True

    def release(self, number):
        with self._lock:
            row = self._tables.rows.get(number)
            if row is not None and self._holds(row):
                self._requeue(number)

    def recover(self, unstored=None):
        with self._lock:
            self._register()
            found = []
            for number, row in sorted(self._tables.rows.items()):
                if row.trial is not None and row.trial.state == "running" and not self._is_alive(row.owner):
                    row.owner = self._owner
                    known = unstored(row.trial) if unstored else None
                    if known is None or not self.finish(number, *known):
                        found.append(self._requeue(number))
            for number, asked_at in running_trials(self.optuna).items():
                if number not in self._tables.rows and not self._askers(asked_at):
                    self._tables.rows[number] = _Row(self._owner, None, told=True)
                    requeue(self.optuna, number)
            return tuple(found)

    def _holds(self, row):
        return row.owner == self._owner and row.trial is not None and row.trial.state == "running"

    def _requeue(self, number):
        requeue(self.optuna, number)
        row = self._tables.rows[number]
        row.told = True
        row.trial = replace(row.trial, state="finished", finished_at=time.time(), recovered=True)
        return row.trial

    def _register(self):
        self._tables.owners.setdefault(self._owner, _Registration())

    def _is_alive(self, owner):
        if owner == self._owner:
            return True
        if owner.is_local_to(self._owner):
            return owner.is_running()
        return time.time() - self._tables.owners[owner].heartbeat_at <= self._grace_s

    def _askers(self, asked_at):
        return [owner for owner in self._tables.owners if self._is_alive(owner) and self._may_ask(owner, asked_at)]

    def _may_ask(self, owner, asked_at):
        if owner.is_local_to(self._owner):
            return self._tables.owners[owner].registered_at <= asked_at
        return time.time() - asked_at <= self._grace_s


@dataclass
class _Registration:
    registered_at: float = field(default_factory=time.time)
    heartbeat_at: float = field(default_factory=time.time)


@dataclass
class _Row:
    owner: Owner
    trial: Trial | None  # None: given out by Optuna, never begun
    told: bool = False


@dataclass
class _Tables:
    optuna: optuna.Study
    record: StudyRecord
    rows: dict[int, _Row] = field(default_factory=dict)
    owners: dict[Owner, _Registration] = field(default_factory=dict)
    confirmations: dict[int, Owner | None] = field(default_factory=dict)  # None: ended
