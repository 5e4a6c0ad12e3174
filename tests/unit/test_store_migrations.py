"""The tables: made from nothing, read as they were left, and refused when they are another autotune's."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from autotune import __version__, pipeline
from autotune.errors import StorageError
from autotune.report.build import build_report
from autotune.store import schema
from autotune.store.database import open_store
from autotune.tuning.budget import Interruption
from tests.fakes.launcher import FakeLauncher
from tests.fakes.postgresql import postgresql_schema
from tests.fakes.store_samples import ENVIRONMENT, MEASURED, SPEC
from tests.fakes.watcher import FakeWatcher

KEPT = Path(__file__).resolve().parents[1] / "databases"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "study.db"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def url(request, path):
    if request.param == "sqlite":
        yield str(path)
        return
    with postgresql_schema() as place:
        yield place.url


def go_at_once(program, arguments):
    """Start a process for each of the arguments, and let all go when they are there; gives their exit codes."""
    processes = [subprocess.Popen([sys.executable, "-c", program, *each], stdin=subprocess.PIPE) for each in arguments]
    for process in processes:
        process.stdin.write(b"go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate()
    return [process.returncode for process in processes]


def execute(path, statement):
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(statement).fetchall()


def test_new_tables_say_which_revision_they_are_and_who_made_them(path):
    open_store(str(path)).close()
    assert execute(path, f"SELECT version_num FROM {schema.revision.name}") == [(schema.HEAD,)]
    assert execute(path, "SELECT value FROM autotune_about WHERE key = 'autotune'") == [(__version__,)]


def test_the_revision_is_kept_as_in_databases_that_users_have(path, tmp_path):
    open_store(str(path)).close()
    with closing(sqlite3.connect(tmp_path / "kept.db")) as connection:
        connection.executescript((KEPT / "0004.sql").read_text())
    query = f"SELECT sql FROM sqlite_master WHERE name = '{schema.revision.name}'"
    assert execute(path, query) == execute(tmp_path / "kept.db", query) != []


@pytest.fixture
def kept(path):
    """The path of a database that an earlier autotune has left, with its studies' script beside it."""
    shutil.copy(KEPT / "train.py", path.parent)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((KEPT / "0004.sql").read_text().replace("/home/user/project", str(path.parent)))
    return path


def test_a_database_that_was_kept_is_read_with_everything_that_is_in_it(kept):
    with open_store(str(kept)) as store:
        records = [store.open(name).record() for name in store.names()]
        assert [one.gate.answer for one in store.gates("train.py")] == ["not_comparable"]

    assert [record.name for record in records] == ["ended", "killed"]
    trials = [trial for record in records for trial in record.trials]
    figures = [(one.state, one.measured and one.measured.samples_per_s) for one in trials]
    query = "SELECT state, samples_per_s FROM autotune_trial ORDER BY study_id, number"
    assert figures == execute(kept, query)
    rates = [(one.repetition, one.outcome.measurement.samples_per_s) for one in records[0].repeats]
    assert rates == execute(kept, "SELECT repetition, samples_per_s FROM autotune_repeat ORDER BY id")
    ((verdict,),) = execute(kept, "SELECT verdict FROM autotune_study WHERE name = 'ended'")
    assert records[0].verdict.reason.text == json.loads(verdict)["reason"]["text"]
    assert records[1].verdict is None


def test_finalists_of_a_database_that_was_kept_are_told_with_their_figures(kept):
    with open_store(str(kept)) as store:
        (finalist,) = build_report(store.open("ended").record()).finalists
    ((verdict,),) = execute(kept, "SELECT verdict FROM autotune_study WHERE name = 'ended'")
    (stored,) = json.loads(verdict)["comparisons"]
    assert finalist.figures.samples_per_s == stored["samples_per_s"]
    assert finalist.figures.peaks.fit_bytes == stored["peak_bytes"]
    assert finalist.baseline_figures.samples_per_s == stored["baseline_samples_per_s"]
    assert finalist.baseline_figures.peaks.fit_bytes == stored["baseline_peak_bytes"]


def test_a_database_that_was_kept_is_brought_up_to_date_once(kept):
    open_store(str(kept)).close()
    about = "SELECT version_num, value FROM autotune_alembic_version, autotune_about WHERE key = 'autotune'"
    assert execute(kept, about) == [(schema.HEAD, __version__)]
    before = execute(kept, "SELECT * FROM autotune_study")
    open_store(str(kept)).close()
    assert execute(kept, "SELECT * FROM autotune_study") == before
    ((verdict,),) = execute(kept, "SELECT verdict FROM autotune_study WHERE name = 'ended'")
    assert '"rounds":' not in verdict


def test_a_study_that_an_earlier_version_was_killed_in_goes_on(kept, tmp_path):
    with open_store(str(kept)) as store:
        study = store.open("killed")
        before = study.record()
        lost = [trial.configuration.key for trial in before.trials if trial.state == "running"]
        launcher = FakeLauncher(lambda _: MEASURED, environment=ENVIRONMENT, root=tmp_path / "runs")
        watcher = FakeWatcher()
        after = pipeline.tune(
            study, launcher=launcher, watcher=watcher, interruption=Interruption(), runs=tmp_path / "runs"
        )
        trials = study.optuna.get_trials()
    assert lost, "it was not killed in a trial: the test shows nothing"
    assert "discovering" not in watcher.said
    done = {trial.number: trial.outcome for trial in after.trials}
    assert all(done[trial.number] == trial.outcome for trial in before.trials if trial.outcome is not None)
    keys = [trial.configuration.key for trial in after.trials if trial.outcome is not None]
    assert len(keys) == len(set(keys))
    assert {trial.state for trial in after.trials} == {"finished"}
    assert not [trial for trial in trials if not trial.state.is_finished()]
    assert after.verdict is not None


@pytest.mark.process
def test_a_process_that_is_killed_while_it_makes_the_tables_leaves_none(path):
    program = """
import os, sys
import sqlalchemy as sa
from autotune.store import schema
from autotune.store.database import open_store
sa.event.listen(schema.gate, "before_create", lambda *_, **__: os._exit(9))
open_store(sys.argv[1])
"""
    assert subprocess.run([sys.executable, "-c", program, str(path)], check=False).returncode == 9
    assert execute(path, "SELECT name FROM sqlite_master") == []
    with open_store(str(path)) as store:
        assert store.names() == ()


def test_a_database_of_optuna_alone_gets_our_tables_beside_its_own(path):
    import optuna

    storage = optuna.storages.RDBStorage(f"sqlite:///{path}", engine_kwargs={"poolclass": sa.pool.NullPool})
    optuna.create_study(study_name="somebody's", storage=storage).ask()
    with open_store(str(path)) as store:
        assert store.names() == ()
        store.create("first", SPEC)
        with pytest.raises(StorageError, match="belongs to an Optuna study that is not autotune's"):
            store.create("somebody's", SPEC)
    assert set(optuna.study.get_all_study_names(storage)) == {"first", "somebody's"}


@pytest.mark.parametrize(
    ("revision", "hint"), [("9999", "pip install --upgrade autotune-memory"), ("0003", "nothing reads it any more")]
)
def test_a_database_of_another_autotune_is_refused_naming_both_versions(path, revision, hint):
    open_store(str(path)).close()
    execute(path, f"UPDATE {schema.revision.name} SET version_num = '{revision}'")
    execute(path, "UPDATE autotune_about SET value = '42.0' WHERE key = 'autotune'")
    with pytest.raises(StorageError) as caught:
        open_store(str(path))
    was = f"by autotune 42.0 (schema {revision})"
    assert f"{was}; this is autotune {__version__} (schema {schema.HEAD})" in str(caught.value)
    assert hint in caught.value.hint
    assert execute(path, f"SELECT version_num FROM {schema.revision.name}") == [(revision,)]


@pytest.mark.parametrize(("revision", "hint"), [("v99.0.0.a", "pip install"), ("v2.4.0.a", "optuna storage upgrade")])
def test_optuna_s_tables_of_another_version_are_refused_with_optuna_s_words(path, revision, hint):
    with open_store(str(path)) as store:
        store.create("first", SPEC)
    execute(path, f"UPDATE alembic_version SET version_num = '{revision}'")
    with open_store(str(path)) as store:
        study = store.open("first")
        assert study.record().name == "first"
        with pytest.raises(StorageError, match=hint):
            _ = study.optuna


@pytest.mark.process
def test_processes_that_open_a_new_database_at_the_same_time_make_it_once(url):
    program = """
import sys
from autotune.store.database import open_store
from tests.fakes.store_samples import SPEC
sys.stdin.readline()
with open_store(sys.argv[1]) as store:
    store.create(sys.argv[2], SPEC).optuna.ask()
"""
    names = ("one", "two", "three")
    assert go_at_once(program, [(url, name) for name in names]) == [0, 0, 0]
    with open_store(url) as store:
        assert set(store.names()) == set(names)
