"""What a tuning process knows of its study without reading it again, and what it learns of others when it does."""

from __future__ import annotations

import dataclasses

import pytest

from autotune.records.study import Repeat
from autotune.store.claims import Owner
from autotune.tuning.context import Snapshot
from tests.fakes.session import Session
from tests.fakes.store import InMemoryDatabase, InMemoryStore
from tests.fakes.store_samples import BASELINE, ENVIRONMENT, FAILED, MEASURED, PLANNED, SPEC

ELSEWHERE = dataclasses.replace(Owner.current(), hostname="elsewhere", machine="another")


class Counting:
    """A study that counts how often it is read."""

    def __init__(self, study):
        self._study = study
        self.reads = 0

    def __getattr__(self, name):
        return getattr(self._study, name)

    def record(self):
        self.reads += 1
        return self._study.record()


@pytest.fixture
def studies():
    """A study as two processes see it."""
    database = InMemoryDatabase()
    InMemoryStore(database).create("a study", SPEC)
    return [Counting(InMemoryStore(database, owner=one).open("a study")) for one in (Owner.current(), ELSEWHERE)]


def without_times(record):
    trials = (dataclasses.replace(one, started_at=0.0, finished_at=None) for one in record.trials)
    return dataclasses.replace(record, trials=tuple(trials))


def test_what_this_process_stores_is_known_without_reading_again(studies):
    study, _ = studies
    snapshot = Snapshot(study)
    assert snapshot.begin(0, BASELINE, "runs/0")
    assert snapshot.finish(0, MEASURED, ENVIRONMENT)
    assert snapshot.begin(1, PLANNED, "runs/1")
    snapshot.add_repeat(Repeat(PLANNED, 0, FAILED))
    known = snapshot.record
    assert study.reads == 1
    assert [one.outcome for one in known.trials] == [MEASURED, None]
    assert without_times(known) == without_times(study.record())


def test_what_another_process_stores_is_known_once_it_is_read_again(studies):
    mine, other = map(Snapshot, studies)
    assert other.begin(0, PLANNED, "runs/0")
    assert not mine.begin(0, PLANNED, "runs/0"), "the database says who has a trial"
    assert mine.record.trials == ()
    assert other.finish(0, MEASURED, ENVIRONMENT)
    other.add_repeat(Repeat(PLANNED, 0, MEASURED))
    assert mine.refresh() == other.refresh() == mine.record
    assert mine.record.trials[0].measured


def test_a_trial_that_was_taken_over_keeps_no_outcome(studies):
    mine, other = map(Snapshot, studies)
    assert mine.begin(0, PLANNED, "runs/0")
    other.refresh()
    assert not other.finish(0, MEASURED, ENVIRONMENT)
    assert other.record.trials[0].outcome is None


def test_a_session_reads_its_study_for_each_run_that_it_asks_for_and_not_for_each_outcome(tmp_path):
    session = Session(tmp_path, changes={"max_trials": 40, "time_budget_s": 6000.0})
    study = Counting(session.study)
    record = session.tune(study)
    asks = sum(
        run.request.may_fork and not run.request.server for run in session.launcher.runs
    ) + session.watcher.said.count("search ended")
    confirmations = len({one.confirmation for one in record.repeats})
    decisions = 1 + len(session.watcher.proofs)
    # At the beginning, once discovery has ended, before the search and at the end; before each confirmation, and where
    # none is needed any more.
    assert study.reads <= 4 + asks + confirmations + 1 + decisions
