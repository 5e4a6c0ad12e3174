"""Judgement of a script's own checkpointing and offloading, by what an audit counted."""

from __future__ import annotations

from ..records.audit import Audit, AuditVerdict

# Judgements: below this share of what a step keeps, or of its time, something is nothing.
_NOTHING = 0.02
# Of what checkpointing every block frees, so much is done well.
_WELL = 0.5
# The same for a model without repeated blocks, of all that is kept.
_WELL_WITHOUT_BLOCKS = 0.2


def blocks_would_free(audit: Audit) -> int:
    """Return the bytes that checkpointing every repeated block would free; 0 without blocks, or where it frees none."""
    return 0 if audit.blocks is None else max(0, audit.eager.without_bytes - audit.blocks.peak_bytes)


def judge_audit(audit: Audit) -> AuditVerdict:
    """Judge what regions free of the most that a step keeps, against their time and what every block would free."""
    counted = audit.eager
    if not audit.regions and not audit.idle:
        return "unused"
    share = counted.saving_bytes / counted.without_bytes if counted.without_bytes else 0.0
    if abs(share) < _NOTHING and counted.cost_share < _NOTHING:
        return "none"
    possible = blocks_would_free(audit)
    is_well = counted.saving_bytes >= _WELL * possible if possible else share >= _WELL_WITHOUT_BLOCKS
    if is_well and share >= _NOTHING:
        return "good"
    return "costly" if share < max(counted.cost_share, _NOTHING) else "little"
