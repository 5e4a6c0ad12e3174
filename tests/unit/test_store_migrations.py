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
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from autotune import __version__
from autotune.errors import StorageError
from autotune.records import Repeat, to_json
from autotune.store import migrating, open_store, schema
from tests.fakes.store_samples import BASELINE, FACTS, MEASURED, PLANNED, SPEC, VERDICT


@pytest.fixture
def path(tmp_path):
    return tmp_path / "study.db"


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


def test_a_database_of_the_first_schema_is_upgraded_with_what_is_in_it(path, monkeypatch):
    """Its rounds become the first final."""
    with monkeypatch.context() as patched:
        patched.setattr(schema, "HEAD", "0001")
        with open_store(str(path)) as store:
            store.create("first", SPEC)
    columns = "study_id, round, configuration, run_directory, finished_at, kind, outcome"
    values = f"1, 0, '{json.dumps(to_json(PLANNED))}', 'runs/9', 0.0, 'measured', '{json.dumps(to_json(MEASURED))}'"
    execute(path, f"INSERT INTO autotune_repeat ({columns}) VALUES ({values})")

    with open_store(str(path)) as store:
        study = store.open("first")
        assert study.record().repeats == (Repeat(PLANNED, 0, MEASURED, run_directory="runs/9", final=1),)
        assert study.begin_final() == 2


@pytest.mark.parametrize(("observed", "size"), [(8, 8), (None, 0)])
def test_configurations_of_an_older_database_get_the_batch_size_that_the_script_was_seen_with(
    path, monkeypatch, observed, size
):
    """Null stood for the script's own, where it could not be set."""
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


@pytest.mark.parametrize("sampler", ["gp", "nsga2"])
def test_a_study_of_a_sampler_that_is_gone_goes_on_with_tpe(path, monkeypatch, sampler):
    with monkeypatch.context() as patched:
        patched.setattr(schema, "HEAD", "0002")
        with open_store(str(path)) as store:
            store.create("first", SPEC)
    spec = to_json(SPEC) | {"sampler": sampler}
    execute(path, f"UPDATE autotune_study SET spec = '{json.dumps(spec)}'")

    with open_store(str(path)) as store:
        assert store.open("first").spec == dataclasses.replace(SPEC, sampler="tpe")


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
from autotune.store import open_store
from tests.fakes.store_samples import SPEC
sys.stdin.readline()
with open_store(sys.argv[1]) as store:
    store.create(sys.argv[2], SPEC).optuna.ask()
"""
    processes = {
        name: subprocess.Popen([sys.executable, "-c", program, str(path), name], stdin=subprocess.PIPE)
        for name in ("one", "two", "three")
    }
    for process in processes.values():
        process.stdin.write(b"go\n")
        process.stdin.flush()
    for process in processes.values():
        process.communicate()
    assert [process.returncode for process in processes.values()] == [0, 0, 0]
    with open_store(str(path)) as store:
        assert set(store.names()) == set(processes)
