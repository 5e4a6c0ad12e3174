"""The roles of a PostgreSQL database, and what is said to who lacks one."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from autotune import __version__
from autotune.cli import main
from autotune.errors import NotPermittedError, StorageError
from autotune.records.gate import Gate, PastGate
from autotune.records.study import Repeat
from autotune.store import schema
from autotune.store.opening import open_store
from autotune.store.roles import READ, TUNE
from tests.fakes.postgresql import postgresql_schema
from tests.fakes.study_record import study_record

VERSIONS = {"autotune_about", "autotune_alembic_version", "alembic_version", "version_info"}


@pytest.fixture(scope="module")
def database():
    """A database with both roles, in which somebody who may has run a study."""
    record = study_record()
    with postgresql_schema() as place:
        with place.prepare().user(TUNE) as url, open_store(url) as store:
            study = store.create("a study", record.spec)
            study.set_facts(record.facts)
            for trial in record.trials:
                number = study.optuna.ask().number
                assert study.begin(number, trial.configuration, trial.run_directory)
                study.finish(number, trial.outcome, trial.environment)
            for repeat in record.repeats:
                study.add_repeat(Repeat(repeat.configuration, repeat.round, repeat.outcome))
            study.set_verdict(record.verdict)
        yield place


@pytest.fixture
def autotune(monkeypatch, capsys, tmp_path):
    """Run the command line in this process, in a folder of its own; gives exit code, output and errors."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["autotune", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return ended.value.code or 0, said.out, said.err

    return run


def refused(url, statement):
    """Whether the server refuses a statement because of who asks."""
    engine = sa.create_engine(sa.make_url(url), poolclass=sa.NullPool)
    try:
        with engine.begin() as connection:
            connection.exec_driver_sql(statement)
    except sa.exc.ProgrammingError as error:
        return error.orig.sqlstate == "42501"
    return False


def a_column(database, table):
    return sa.inspect(database.engine).get_columns(table, schema=database.name)[0]["name"]


def rows(database):
    return {table: sorted(map(str, database.execute(f"SELECT * FROM {table}"))) for table in database.tables()}


@pytest.mark.postgresql
@pytest.mark.parametrize(
    "words",
    [
        ("studies",),
        ("show", "a study"),
        ("show", "a study", "--json"),
        ("show", "a study", "--trial", "1"),
        ("export", "a study", "--output", "bundle"),
        ("export", "a study", "--trial", "1", "--output", "bundle"),
        ("gate", "bundle", "train.py", "--history"),
    ],
)
def test_every_reading_command_does_its_work_for_who_may_only_read(autotune, database, words):
    Path("train.py").write_text("import torch\n")
    with database.user(READ) as url:
        if words[0] == "gate":
            assert autotune("export", "a study", "--output", "bundle", "--storage", url)[0] == 0
        before = rows(database)
        code, output, errors = autotune(*words, "--storage", url)
    assert code == 0, errors
    assert output
    assert rows(database) == before


@pytest.mark.postgresql
def test_what_a_reader_exports_is_all_there(autotune, database):
    with database.user(READ) as url:
        assert autotune("export", "a study", "--output", "bundle", "--storage", url)[0] == 0
    assert {"mem_opt.json", "stack.json", "report.html"} <= {path.name for path in Path("bundle").iterdir()}


@pytest.mark.postgresql
def test_a_reader_changes_no_row_of_any_table(database):
    with database.user(READ) as url:
        for table in database.tables():
            column = a_column(database, table)
            assert refused(url, f"INSERT INTO {table} DEFAULT VALUES"), table
            assert refused(url, f"UPDATE {table} SET {column} = {column}"), table
            assert refused(url, f"DELETE FROM {table}"), table
            assert refused(url, f"TRUNCATE {table} CASCADE"), table
            assert not refused(url, f"SELECT * FROM {table}"), table


@pytest.mark.postgresql
@pytest.mark.parametrize("role", [READ, TUNE])
def test_only_the_owner_makes_changes_and_drops_tables(database, role):
    with database.user(role) as url:
        assert refused(url, "CREATE TABLE mine (id int)")
        for table in database.tables():
            assert refused(url, f"ALTER TABLE {table} ADD COLUMN mine int"), table
            assert refused(url, f"DROP TABLE {table} CASCADE"), table


@pytest.mark.postgresql
def test_who_runs_studies_deletes_nothing_and_leaves_the_schema_s_version_alone(database):
    with database.user(TUNE) as url:
        for table in database.tables():
            assert refused(url, f"DELETE FROM {table}"), table
            assert refused(url, f"TRUNCATE {table} CASCADE"), table
            column = a_column(database, table)
            assert refused(url, f"UPDATE {table} SET {column} = {column}") is (table in VERSIONS), table


@pytest.mark.postgresql
def test_a_table_that_a_later_version_makes_is_granted_too(database):
    database.execute("CREATE TABLE autotune_later (id serial PRIMARY KEY, what text)")
    try:
        with database.user(READ) as url:
            assert not refused(url, "SELECT * FROM autotune_later")
            assert refused(url, "INSERT INTO autotune_later (what) VALUES ('x')")
        with database.user(TUNE) as url:
            assert not refused(url, "INSERT INTO autotune_later (what) VALUES ('x')")
    finally:
        database.execute("DROP TABLE autotune_later")


@pytest.mark.postgresql
def test_the_roles_can_be_made_again(database):
    before = rows(database)
    database.prepare()
    assert rows(database) == before


@pytest.mark.postgresql
def test_a_reader_who_runs_a_study_is_told_which_role_that_takes(database):
    with database.user(READ) as url, open_store(url) as store:
        with pytest.raises(NotPermittedError, match="does not permit this: permission denied for table") as caught:
            store.create("another", study_record().spec)
        with pytest.raises(NotPermittedError):
            store.add_gate(PastGate(0.0, "train.py", "0" * 64, "", Gate("pass", (), "stored", 1)))
    assert f"{TUNE} runs them too" in caught.value.hint


@pytest.mark.postgresql
def test_who_has_no_role_is_told_that_there_are_some(database):
    with database.user() as url:
        database.execute(f"GRANT USAGE ON SCHEMA {database.name} TO {sa.make_url(url).username}")
        with pytest.raises(NotPermittedError, match="permission denied for table") as caught:
            open_store(url)
    assert READ in caught.value.hint


@pytest.mark.postgresql
@pytest.mark.parametrize("role", [READ, TUNE])
def test_an_older_database_is_left_to_its_owner_by_who_may_not_upgrade_it(role, monkeypatch):
    with postgresql_schema() as place:
        with monkeypatch.context() as patched:
            patched.setattr(schema, "HEAD", "0003")
            place.prepare()
        with place.user(role) as url:
            with pytest.raises(NotPermittedError) as caught:
                open_store(url)
            assert re.search(rf"has schema 0003, autotune {re.escape(__version__)} works with", str(caught.value))
            assert f"'{sa.make_url(url).username}' may not change its tables" in str(caught.value)
            assert "autotune database --storage" in caught.value.hint
            assert place.execute(f"SELECT * FROM {schema.VERSION_TABLE}") == [("0003",)]
            open_store(place.url).close()  # the owner
            with open_store(url) as store:
                assert store.gates("train.py", "") == ()


@pytest.mark.postgresql
def test_an_empty_database_is_left_to_its_owner_by_who_may_make_no_tables():
    with postgresql_schema() as place, place.user() as url:
        place.execute(f"GRANT USAGE ON SCHEMA {place.name} TO {sa.make_url(url).username}")
        with pytest.raises(NotPermittedError, match="has no tables of autotune") as caught:
            open_store(url)
    assert "its owner" in caught.value.hint


@pytest.mark.postgresql
def test_another_optuna_than_the_owner_s_runs_studies_too(database):
    """It cannot note that it found Optuna's tables good, and needs not."""
    database.execute("UPDATE autotune_about SET value = '1.0.0 old' WHERE key = 'optuna'")
    with database.user(TUNE) as url, open_store(url) as store:
        assert store.open("a study").optuna.ask() is not None
    assert database.execute("SELECT value FROM autotune_about WHERE key = 'optuna'") == [("1.0.0 old",)]


@pytest.mark.postgresql
def test_the_owner_s_command_makes_all_tables_and_prints_what_makes_the_roles(autotune):
    with postgresql_schema() as place:
        code, output, errors = autotune("database", "--storage", place.url)
        assert (code, errors) == (0, "")
        assert "is up to date; it holds 0 studies" in output
        assert {"autotune_study", "trials", *VERSIONS} <= set(place.tables())
        _, output, _ = autotune("database", "--storage", place.url, "--roles")
        assert f"GRANT SELECT ON ALL TABLES IN SCHEMA {place.name} TO {READ}, {TUNE};" in output


def test_an_sqlite_file_has_no_roles(tmp_path, autotune):
    code, output, errors = autotune("database", "--storage", "study.db", "--roles")
    assert (code, output) == (2, "")
    assert "is an SQLite file, and those have no roles" in errors
    with pytest.raises(StorageError) as caught, open_store("study.db") as store:
        store.roles_sql()
    assert "chmod" in caught.value.hint
