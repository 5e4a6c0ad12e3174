"""A table of gates: each with its answer, its figures, and the setting and script that it held."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "autotune_gate",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("held_at", sa.Double, nullable=False),
        sa.Column("script_name", sa.Text, nullable=False),
        sa.Column("script_sha256", sa.String(64), nullable=False),
        sa.Column("configuration", sa.Text, nullable=False),
        sa.Column("answer", sa.String(16), nullable=False),
        sa.Column("samples_per_s", sa.Double),
        sa.Column("speed_change", sa.Double),
        sa.Column("peak_bytes", sa.BigInteger),
        sa.Column("memory_change", sa.Double),
        sa.Column("gate", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_autotune_gate"),
    )
