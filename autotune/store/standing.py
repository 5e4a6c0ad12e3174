"""Detection of changes in a database, for a reader that asks every few seconds without reading it all."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import sqlalchemy as sa

from . import schema

# Rows are added, and these of their columns are filled in later.
_COUNTED: tuple[tuple[sa.Table, tuple[str, ...]], ...] = (
    (schema.trial, ("configuration", "outcome", "environment_id")),
    (schema.repeat, ()),
    (schema.bundle, ()),
)


def version_of(connection: sa.Connection, study_id: int | None = None, *more: object) -> str:
    """A text that is another one when a study has changed, or any of all of them and the gates; or what is added."""
    study = schema.study.c
    texts = [sa.type_coerce(study[name], sa.Text) for name in ("spec", "facts", "verdict")]
    # Facts are long, and are replaced by others once at most.
    query = sa.select(study.id, study.created_at, texts[0], sa.func.length(texts[1]), texts[2]).order_by(study.id)
    found = [list(row) for row in connection.execute(_only(query, study.id, study_id))]
    for table, columns in _COUNTED:
        counts = sa.select(sa.func.count(), *(sa.func.count(table.c[name]) for name in columns)).select_from(table)
        found.append(list(connection.execute(_only(counts, table.c.study_id, study_id)).one()))
    if study_id is None:
        found.append([connection.scalar(sa.select(sa.func.count()).select_from(schema.gate))])
    return hashlib.sha256(json.dumps([*found, *more]).encode()).hexdigest()[:16]


def _only(
    query: sa.Select[*tuple[Any, ...]], column: sa.ColumnElement[int], study_id: int | None
) -> sa.Select[*tuple[Any, ...]]:
    return query if study_id is None else query.where(column == study_id)
