"""The first tables."""

from __future__ import annotations

from alembic import op

from autotune.store import schema

revision = "0004"
down_revision = None


def upgrade() -> None:
    """Create the tables as ``schema`` has them.

    The first revision that changes them has them written out here as they were.
    """
    schema.metadata.create_all(op.get_bind())
