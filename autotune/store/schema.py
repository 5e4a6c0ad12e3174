"""Our tables, which ``migrating`` makes.

They refer to Optuna's tables by value, without foreign keys: Optuna owns its schema, and deleting a study with
Optuna's tools must not fail on ours. Records are stored as their JSON; the columns beside them are for queries.
Times are seconds since the epoch.
"""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from ..records.codec import loads, to_json
from ..records.configuration import Configuration
from ..records.environment import Environment
from ..records.facts import Facts
from ..records.gate import Gate
from ..records.outcome import Outcome
from ..records.study import StudySpec, Verdict

HEAD = "0005"  # the revision of these tables; a change of them makes it another one

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class _Record(sa.types.TypeDecorator[Any]):
    """A record as its JSON text: pure ASCII, because log lines may hold what UTF-8 cannot encode."""

    impl = sa.Text
    cache_ok = True

    def __init__(self, record: Any) -> None:
        super().__init__()
        self.record = record

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else json.dumps(to_json(value), separators=(",", ":"))

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> Any:  # noqa: ARG002
        return None if value is None else loads(self.record, value, where="a record in the database")


# Readable by every autotune, old and new, so that an old one can say what it meets: never change this table.
about = sa.Table(
    "autotune_about",
    metadata,
    sa.Column("key", sa.String(64), primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

# Which revision of these tables the database has, as Alembic would keep it.
revision = sa.Table(
    "autotune_alembic_version",
    metadata,
    sa.Column("version_num", sa.String(32), nullable=False),
    sa.PrimaryKeyConstraint("version_num", name="autotune_alembic_version_pkc"),
)

study = sa.Table(
    "autotune_study",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("optuna_study_id", sa.Integer, nullable=False),
    sa.Column("name", sa.String(512), nullable=False, unique=True),
    sa.Column("spec", _Record(StudySpec), nullable=False),
    sa.Column("facts", _Record(Facts)),
    sa.Column("verdict", _Record(Verdict)),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("autotune", sa.String(64), nullable=False),
)

environment = sa.Table(
    "autotune_environment",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("sha256", sa.String(64), nullable=False, unique=True),
    sa.Column("environment", _Record(Environment), nullable=False),
)

# The processes that ran a study. ``registered_at`` is by the clock of their machine, ``heartbeat_at`` by the server's.
owner = sa.Table(
    "autotune_owner",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("study_id", sa.ForeignKey("autotune_study.id"), nullable=False),
    sa.Column("machine", sa.String(128), nullable=False),
    sa.Column("hostname", sa.String(255), nullable=False),
    sa.Column("process", sa.Integer, nullable=False),
    sa.Column("process_start", sa.BigInteger, nullable=False),
    sa.Column("registered_at", sa.Double, nullable=False),
    sa.Column("heartbeat_at", sa.Double, nullable=False),
    sa.UniqueConstraint(
        "study_id", "machine", "hostname", "process", "process_start", name="uq_autotune_owner_process"
    ),
)

# ``configuration`` is null where Optuna gave the trial out to a process that died before it began it.
trial = sa.Table(
    "autotune_trial",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("study_id", sa.ForeignKey("autotune_study.id"), nullable=False),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("optuna_trial_id", sa.Integer, nullable=False),
    sa.Column("owner_id", sa.ForeignKey("autotune_owner.id"), nullable=False),
    sa.Column("configuration", _Record(Configuration)),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("recovered", sa.Boolean, nullable=False),
    sa.Column("told", sa.Boolean, nullable=False),
    sa.Column("run_directory", sa.Text, nullable=False),
    sa.Column("started_at", sa.Double, nullable=False),
    sa.Column("finished_at", sa.Double),
    sa.Column("kind", sa.String(32)),
    sa.Column("samples_per_s", sa.Double),
    sa.Column("peak_bytes", sa.BigInteger),
    sa.Column("outcome", _Record(Outcome)),
    sa.Column("environment_id", sa.ForeignKey("autotune_environment.id")),
    sa.UniqueConstraint("study_id", "number"),
)

# ``owner_id`` is null where it was measured before confirmations had owners.
confirmation = sa.Table(
    "autotune_confirmation",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("study_id", sa.ForeignKey("autotune_study.id"), nullable=False),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("owner_id", sa.ForeignKey("autotune_owner.id")),
    sa.Column("ended", sa.Boolean, nullable=False),
    sa.UniqueConstraint("study_id", "number"),
)

repeat = sa.Table(
    "autotune_repeat",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("study_id", sa.ForeignKey("autotune_study.id"), nullable=False, index=True),
    sa.Column("repetition", sa.Integer, nullable=False),
    sa.Column("configuration", _Record(Configuration), nullable=False),
    sa.Column("run_directory", sa.Text, nullable=False),
    sa.Column("finished_at", sa.Double, nullable=False),
    sa.Column("kind", sa.String(32), nullable=False),
    sa.Column("samples_per_s", sa.Double),
    sa.Column("peak_bytes", sa.BigInteger),
    sa.Column("outcome", _Record(Outcome), nullable=False),
    sa.Column("environment_id", sa.ForeignKey("autotune_environment.id")),
    sa.Column("confirmation", sa.Integer, nullable=False, server_default="1"),
)

bundle = sa.Table(
    "autotune_bundle",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("study_id", sa.ForeignKey("autotune_study.id"), nullable=False, index=True),
    sa.Column("path", sa.Text, nullable=False),
    sa.Column("written_at", sa.Double, nullable=False),
)

# What gates said, of whatever bundle: bundles live in folders and repositories, so a setting is known by its key.
gate = sa.Table(
    "autotune_gate",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("held_at", sa.Double, nullable=False),
    sa.Column("script_name", sa.Text, nullable=False),
    sa.Column("script_sha256", sa.String(64), nullable=False),
    sa.Column("configuration", sa.Text, nullable=False),
    sa.Column("answer", sa.String(16), nullable=False),
    sa.Column("samples_per_s", sa.Double),
    sa.Column("speed_change", sa.Double),
    sa.Column("peak_bytes", sa.BigInteger),
    sa.Column("memory_change", sa.Double),
    sa.Column("gate", _Record(Gate), nullable=False),
)


def insert(connection: sa.Connection, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    """Make an INSERT that has ``on_conflict_do_nothing`` and ``on_conflict_do_update``, alike in both dialects."""
    return sqlite.insert(table) if connection.dialect.name == "sqlite" else postgresql.insert(table)


def add(connection: sa.Connection, table: sa.Table, values: dict[str, Any]) -> bool:
    """Insert a row unless a row with the same unique columns is there, which False says."""
    statement = insert(connection, table).values(values).on_conflict_do_nothing()
    # Not kept by default for an INSERT, which fetches the new row's id on PostgreSQL.
    return connection.execute(statement, execution_options={"preserve_rowcount": True}).rowcount == 1
