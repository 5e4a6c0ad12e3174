"""A database that is opened for reading only: it is the database itself that refuses to write."""

from __future__ import annotations

import time

import pytest
from optuna.exceptions import StorageInternalError

from autotune.errors import AutotuneError
from autotune.store.opening import open_store
from tests.fakes.postgresql import postgresql_schema
from tests.fakes.store_samples import ENVIRONMENT, FACTS, MEASURED, PLANNED, SPEC


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def url(request, tmp_path):
    if request.param == "sqlite":
        yield str(tmp_path / "study.db")
    else:
        with postgresql_schema() as schema:
            yield schema.url


def test_a_study_is_read_and_followed_while_it_is_written(url):
    with open_store(url) as writing:
        study = writing.create("first", SPEC)
        with open_store(url, create=False, read_only=True) as reading:
            seen = reading.open("first")
            trial = study.optuna.ask()
            study.begin(trial.number, PLANNED, "runs/0")
            study.finish(trial.number, MEASURED, ENVIRONMENT)
            assert seen.record() == study.record()
            assert len(seen.optuna.get_trials()) == 1


def test_nothing_can_be_written(url, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda _: None)  # Optuna asks again, seconds later
    with open_store(url) as writing:
        writing.create("first", SPEC)
    with open_store(url, create=False, read_only=True) as reading:
        study = reading.open("first")
        with pytest.raises(AutotuneError), reading.guard():
            study.set_facts(FACTS)
        with pytest.raises((AutotuneError, StorageInternalError)), reading.guard():
            study.optuna.ask()
    with open_store(url) as again:
        assert again.open("first").record().facts is None
        assert again.open("first").optuna.get_trials() == []
