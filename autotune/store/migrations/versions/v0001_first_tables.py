"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create them."""
    op.create_table(
        "autotune_about",
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_autotune_about"),
    )
    op.create_table(
        "autotune_study",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("optuna_study_id", sa.Integer, nullable=False),
        sa.Column("name", sa.String(512), nullable=False),
        sa.Column("spec", sa.Text, nullable=False),
        sa.Column("facts", sa.Text),
        sa.Column("verdict", sa.Text),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("autotune", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_autotune_study"),
        sa.UniqueConstraint("name", name="uq_autotune_study_name"),
    )
    op.create_table(
        "autotune_environment",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("environment", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_autotune_environment"),
        sa.UniqueConstraint("sha256", name="uq_autotune_environment_sha256"),
    )
    op.create_table(
        "autotune_owner",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("study_id", sa.Integer, nullable=False),
        sa.Column("machine", sa.String(128), nullable=False),
        sa.Column("hostname", sa.String(255), nullable=False),
        sa.Column("process", sa.Integer, nullable=False),
        sa.Column("process_start", sa.BigInteger, nullable=False),
        sa.Column("registered_at", sa.Double, nullable=False),
        sa.Column("heartbeat_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_autotune_owner"),
        _reference("autotune_owner", "study_id", "autotune_study"),
        sa.UniqueConstraint(
            "study_id", "machine", "hostname", "process", "process_start", name="uq_autotune_owner_process"
        ),
    )
    op.create_table(
        "autotune_trial",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("study_id", sa.Integer, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("optuna_trial_id", sa.Integer, nullable=False),
        sa.Column("owner_id", sa.Integer, nullable=False),
        sa.Column("configuration", sa.Text),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("recovered", sa.Boolean, nullable=False),
        sa.Column("told", sa.Boolean, nullable=False),
        sa.Column("run_directory", sa.Text, nullable=False),
        sa.Column("started_at", sa.Double, nullable=False),
        sa.Column("finished_at", sa.Double),
        sa.Column("kind", sa.String(32)),
        sa.Column("samples_per_s", sa.Double),
        sa.Column("peak_bytes", sa.BigInteger),
        sa.Column("outcome", sa.Text),
        sa.Column("environment_id", sa.Integer),
        sa.PrimaryKeyConstraint("id", name="pk_autotune_trial"),
        _reference("autotune_trial", "study_id", "autotune_study"),
        _reference("autotune_trial", "owner_id", "autotune_owner"),
        _reference("autotune_trial", "environment_id", "autotune_environment"),
        sa.UniqueConstraint("study_id", "number", name="uq_autotune_trial_study_id_number"),
    )
    op.create_table(
        "autotune_repeat",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("study_id", sa.Integer, nullable=False),
        sa.Column("round", sa.Integer, nullable=False),
        sa.Column("configuration", sa.Text, nullable=False),
        sa.Column("run_directory", sa.Text, nullable=False),
        sa.Column("finished_at", sa.Double, nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("samples_per_s", sa.Double),
        sa.Column("peak_bytes", sa.BigInteger),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("environment_id", sa.Integer),
        sa.PrimaryKeyConstraint("id", name="pk_autotune_repeat"),
        _reference("autotune_repeat", "study_id", "autotune_study"),
        _reference("autotune_repeat", "environment_id", "autotune_environment"),
    )
    op.create_index("ix_autotune_repeat_study_id", "autotune_repeat", ["study_id"])
    op.create_table(
        "autotune_bundle",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("study_id", sa.Integer, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("written_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_autotune_bundle"),
        _reference("autotune_bundle", "study_id", "autotune_study"),
    )
    op.create_index("ix_autotune_bundle_study_id", "autotune_bundle", ["study_id"])


def _reference(table: str, column: str, referred: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], [f"{referred}.id"], name=f"fk_{table}_{column}_{referred}")
