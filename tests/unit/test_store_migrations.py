"""The schema: made from nothing, kept equal to the tables in code, and refused when it is from the future."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
import sqlalchemy as sa
from alembic import op
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from autotune import __version__, pipeline
from autotune.errors import StorageError
from autotune.records.codec import to_json
from autotune.records.study import Repeat
from autotune.store import migrating, schema
from autotune.store.opening import open_store
from autotune.tuning.budget import Interruption
from tests.fakes.launcher import FakeLauncher
from tests.fakes.old_databases import KEPT, SCHEMAS, put_postgresql, put_sqlite, rows_of
from tests.fakes.postgresql import postgresql_schema
from tests.fakes.store_samples import BASELINE, ENVIRONMENT, FACTS, MEASURED, PLANNED, SPEC, VERDICT
from tests.fakes.watcher import FakeWatcher


@pytest.fixture
def path(tmp_path):
    return tmp_path / "study.db"


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


def test_the_migrations_make_the_tables_that_the_code_uses(path):
    with open_store(str(path)) as store:
        store.create("first", SPEC)
    engine = sa.create_engine(f"sqlite:///{path}")
    options = {
        "version_table": schema.VERSION_TABLE,
        "compare_type": True,
        "include_name": lambda name, kind, _parents: kind != "table" or name.startswith("autotune_"),
    }
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection, opts=options), schema.metadata) == []
    engine.dispose()


def test_the_code_knows_the_newest_migration():
    with sa.create_engine("sqlite://").connect() as connection:
        scripts = ScriptDirectory.from_config(migrating.configuration(connection))
        assert scripts.get_heads() == [schema.HEAD]
        connection.engine.dispose()


# -- what older versions left


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def put(request, tmp_path, monkeypatch):
    """``put("0001")`` gives the URL of a database of that schema, with its studies' scripts in the folder beside it."""
    if request.param == "sqlite":
        yield lambda revision: put_sqlite(revision, tmp_path)
        return
    with postgresql_schema() as place:
        yield lambda revision: put_postgresql(revision, tmp_path, place.url, monkeypatch)


def test_a_database_of_every_schema_is_kept():
    with sa.create_engine("sqlite://").connect() as connection:
        scripts = ScriptDirectory.from_config(migrating.configuration(connection))
        assert sorted(script.revision for script in scripts.walk_revisions()) == SCHEMAS
        connection.engine.dispose()


def was(revision, table, *columns, order="id"):
    """Rows of a table as the older version wrote them."""
    statement = f"SELECT {', '.join(columns)} FROM autotune_{table} ORDER BY {order}"
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript((KEPT / f"{revision}.sql").read_text())
        return connection.execute(statement).fetchall()


@pytest.mark.parametrize("revision", SCHEMAS)
def test_an_older_database_is_upgraded_with_everything_that_is_in_it(put, revision, tmp_path):
    gates = was(revision, "gate", "configuration", "answer") if revision >= "0004" else []
    with open_store(put(revision)) as store:
        records = [store.open(name).record() for name in store.names()]
        for key, answer in gates:
            assert [one.gate.answer for one in store.gates("train.py", key)] == [answer]

    assert [record.name for record in records] == ["ended", "killed"]
    trials = [trial for record in records for trial in record.trials]
    figures = [(one.state, one.measured and one.measured.measurement.samples_per_s) for one in trials]
    assert figures == was(revision, "trial", "state", "samples_per_s", order="study_id, number")
    assert {one.environment.device_kind for one in trials if one.outcome is not None} == {"cpu"}
    repeats = [repeat for record in records for repeat in record.repeats]
    rates = [(one.round, one.outcome.measurement.samples_per_s) for one in repeats]
    assert rates == was(revision, "repeat", "round", "samples_per_s")
    assert {one.final for one in repeats} == {1}
    own = [one.batch_size for record in records for one in (record.facts.baseline, record.baseline.configuration)]
    assert own == [8] * 4, "what the older ones wrote as null too"
    verdicts = [verdict and json.loads(verdict) for (verdict,) in was(revision, "study", "verdict")]
    assert records[0].verdict.reason == verdicts[0]["reason"]
    assert records[0].verdict.kind_of_answer == verdicts[0]["kind_of_answer"]
    assert (records[1].verdict, verdicts[1]) == (None, None)
    paths = [path.replace("/home/user/project", str(tmp_path)) for (path,) in was(revision, "bundle", "path")]
    assert [path for record in records for path in record.bundles] == paths


@pytest.mark.parametrize("revision", SCHEMAS)
def test_a_study_that_an_older_version_was_killed_in_goes_on(put, revision, tmp_path):
    measured = dataclasses.replace(MEASURED, measurement=dataclasses.replace(MEASURED.measurement, batch_size=None))
    url = put(revision)
    # No grace: a server that was only just started would wait for a sign of the owner that is long dead.
    with open_store(url, grace_s=-1.0) as store:
        study = store.open("killed")
        before = study.record()
        lost = [trial.configuration.key for trial in before.trials if trial.state == "running"]
        launcher = FakeLauncher(lambda _: measured, environment=ENVIRONMENT, root=tmp_path / "runs")
        watcher = FakeWatcher()
        after = pipeline.tune(
            study, store=store, launcher=launcher, watcher=watcher, interruption=Interruption(), runs=tmp_path / "runs"
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


def test_a_study_of_a_sampler_that_is_gone_goes_on_with_tpe(put):
    assert ("gp",) in [(json.loads(spec)["sampler"],) for (spec,) in was("0002", "study", "spec")]
    with open_store(put("0002")) as store:
        assert store.open("killed").spec.sampler == "tpe"


def test_an_upgrade_that_is_cut_off_leaves_the_database_as_it_was(put, monkeypatch):
    url = put("0001")
    before = rows_of(url)
    with monkeypatch.context() as patched:
        create_table = op.create_table

        def cut_off(name, *columns):
            if name == "autotune_gate":  # the last step; those before it are done
                raise KeyboardInterrupt
            create_table(name, *columns)

        patched.setattr(op, "create_table", cut_off)
        with pytest.raises(KeyboardInterrupt):
            open_store(url)
    assert rows_of(url) == before
    with open_store(url) as store:
        assert store.names() == ("ended", "killed")
        assert store.gates("train.py", "") == ()


@pytest.mark.process
def test_an_upgrade_that_is_killed_leaves_the_database_as_it_was(tmp_path):
    url = put_sqlite("0001", tmp_path)
    before = rows_of(url)
    program = """
import os, sys
from alembic import op
from autotune.store.opening import open_store
create_table = op.create_table
op.create_table = lambda name, *columns: os._exit(9) if name == "autotune_gate" else create_table(name, *columns)
open_store(sys.argv[1])
"""
    assert subprocess.run([sys.executable, "-c", program, url], check=False).returncode == 9
    assert rows_of(url) == before
    with open_store(url) as store:
        assert store.names() == ("ended", "killed")


@pytest.mark.process
def test_processes_that_open_an_older_database_at_the_same_time_upgrade_it_once(put):
    url = put("0001")
    program = """
import sys
from autotune.store.opening import open_store
sys.stdin.readline()
with open_store(sys.argv[1]) as store:
    assert len(store.open("ended").record().repeats) == 6
"""
    assert go_at_once(program, [(url,)] * 3) == [0, 0, 0]
    with open_store(url) as store:
        assert store.open("ended").begin_final() == 2


def test_configurations_of_a_script_whose_batch_size_nobody_saw_get_none(path, monkeypatch):
    """Null stood for the script's own, where it could not be set; ``own.py`` of the kept ones has one that was seen."""
    observed, size = None, 0
    with monkeypatch.context() as patched:
        patched.setattr(schema, "HEAD", "0002")
        with open_store(str(path)) as store:
            store.create("first", SPEC)
            number = (study := store.open("first")).optuna.ask().number
            study.begin(number, PLANNED, "runs/9")
            study.add_repeat(Repeat(PLANNED, 0, MEASURED))
    older = to_json(PLANNED) | {"batch_size": None}
    facts = to_json(FACTS) | {"baseline": to_json(BASELINE) | {"batch_size": None}, "batch_size": observed}
    verdict = to_json(VERDICT) | {"winner": older}
    verdict["comparisons"] = [one | {"configuration": older} for one in verdict["comparisons"]]
    for table, column, value in (
        ("study", "facts", facts),
        ("study", "verdict", verdict),
        ("trial", "configuration", older),
        ("repeat", "configuration", older),
    ):
        execute(path, f"UPDATE autotune_{table} SET {column} = '{json.dumps(value)}'")

    with open_store(str(path)) as store:
        record = store.open("first").record()
    sized = dataclasses.replace(PLANNED, batch_size=size)
    assert record.facts == dataclasses.replace(
        FACTS, baseline=dataclasses.replace(BASELINE, batch_size=size), batch_size=observed
    )
    assert record.trials[0].configuration == record.repeats[0].configuration == record.verdict.winner == sized
    assert [one.configuration for one in record.verdict.comparisons] == [sized] * len(VERDICT.comparisons)
    assert record.repeats[0].outcome == MEASURED, "what was measured stays as it was"


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


def test_a_database_of_a_newer_autotune_is_refused_naming_both_versions(path):
    open_store(str(path)).close()
    execute(path, f"UPDATE {schema.VERSION_TABLE} SET version_num = '9999'")
    execute(path, "UPDATE autotune_about SET value = '42.0' WHERE key = 'autotune'")
    with pytest.raises(StorageError) as caught:
        open_store(str(path))
    assert f"by autotune 42.0 (schema 9999); this is autotune {__version__} (schema {schema.HEAD})" in str(caught.value)
    assert "pip install --upgrade autotune-memory" in caught.value.hint
    assert execute(path, f"SELECT version_num FROM {schema.VERSION_TABLE}") == [("9999",)]


@pytest.mark.parametrize(("revision", "hint"), [("v99.0.0.a", "pip install"), ("v2.4.0.a", "optuna storage upgrade")])
def test_optuna_s_tables_of_another_version_are_refused_naming_both(path, revision, hint):
    with open_store(str(path)) as store:
        store.create("first", SPEC)
    execute(path, f"UPDATE alembic_version SET version_num = '{revision}'")
    with open_store(str(path)) as store:
        study = store.open("first")
        assert study.record().name == "first"
        with pytest.raises(
            StorageError, match=f"have schema {revision}, the installed Optuna .* works with v"
        ) as caught:
            _ = study.optuna
    assert hint in caught.value.hint


@pytest.mark.process
def test_processes_that_open_a_new_database_at_the_same_time_make_it_once(path):
    program = """
import sys
from autotune.store.opening import open_store
from tests.fakes.store_samples import SPEC
sys.stdin.readline()
with open_store(sys.argv[1]) as store:
    store.create(sys.argv[2], SPEC).optuna.ask()
"""
    names = ("one", "two", "three")
    assert go_at_once(program, [(str(path), name) for name in names]) == [0, 0, 0]
    with open_store(str(path)) as store:
        assert set(store.names()) == set(names)
