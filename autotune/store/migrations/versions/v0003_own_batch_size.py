"""A configuration always names its batch size: null, which stood for the script's own, becomes the one observed.

This is the only place that knows of the null. Where discovery saw no samples the size is 0: nobody knows it. Studies of
samplers that are gone go on with TPE.
"""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

# Only what is read and written here, as it was then.
_STUDY = sa.table("autotune_study", sa.column("id"), sa.column("spec"), sa.column("facts"), sa.column("verdict"))
_GONE = ("gp", "nsga2")
_TRIAL = sa.table("autotune_trial", sa.column("id"), sa.column("study_id"), sa.column("configuration"))
_REPEAT = sa.table("autotune_repeat", sa.column("id"), sa.column("study_id"), sa.column("configuration"))


def upgrade() -> None:
    """Write the size into the facts, the verdict, the trials and the rounds of each study."""
    for study in op.get_bind().execute(sa.select(_STUDY)).all():
        facts = json.loads(study.facts or "{}")
        size = facts.get("batch_size") or (facts.get("baseline") or {}).get("batch_size") or 0
        _rewrite(_STUDY, study, ("facts", "verdict"), size)
        spec = json.loads(study.spec)
        if spec.get("sampler") in _GONE:
            text = json.dumps(spec | {"sampler": "tpe"}, separators=(",", ":"))
            op.execute(sa.update(_STUDY).where(_STUDY.c.id == study.id).values(spec=text))
        for table in (_TRIAL, _REPEAT):
            for row in op.get_bind().execute(sa.select(table).where(table.c.study_id == study.id)).all():
                _rewrite(table, row, ("configuration",), size)


def _rewrite(table: sa.TableClause, row: sa.Row[Any], columns: tuple[str, ...], size: int) -> None:
    before = {name: json.loads(text) for name in columns if (text := getattr(row, name)) is not None}
    after = {name: _sized(value, size) for name, value in before.items()}
    if after != before:
        texts = {name: json.dumps(value, separators=(",", ":")) for name, value in after.items()}
        op.execute(sa.update(table).where(table.c.id == row.id).values(texts))


def _sized(value: Any, size: int) -> Any:
    """The same with the size in every configuration in it: what has an engine, plans and a batch size."""
    if isinstance(value, list):
        return [_sized(one, size) for one in value]
    if not isinstance(value, dict):
        return value
    sized = {name: _sized(one, size) for name, one in value.items()}
    if {"engine", "plans", "batch_size"} <= sized.keys() and sized["batch_size"] is None:
        sized["batch_size"] = size
    return sized
