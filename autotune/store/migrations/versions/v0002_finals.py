"""Rounds belong to a final, and one process at a time measures one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the table; the rounds that are there become the first final."""
    op.create_table(
        "autotune_final",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("study_id", sa.Integer, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("owner_id", sa.Integer),
        sa.Column("ended", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_autotune_final"),
        sa.ForeignKeyConstraint(["study_id"], ["autotune_study.id"], name="fk_autotune_final_study_id_autotune_study"),
        sa.ForeignKeyConstraint(["owner_id"], ["autotune_owner.id"], name="fk_autotune_final_owner_id_autotune_owner"),
        sa.UniqueConstraint("study_id", "number", name="uq_autotune_final_study_id_number"),
    )
    op.execute(
        "INSERT INTO autotune_final (study_id, number, ended) SELECT DISTINCT study_id, 1, true FROM autotune_repeat"
    )
    op.add_column("autotune_repeat", sa.Column("final", sa.Integer, nullable=False, server_default="1"))
