"""A memory limit that no plan can meet."""

from __future__ import annotations

from ..errors import RunError
from ..records import Facts
from ..records.units import format_bytes

__all__ = ["check_limit"]


def check_limit(facts: Facts, limit_bytes: int, *, name: str = "limit") -> None:
    """RunError if not even parameters, gradients and optimizer state fit: no plan changes those.

    ``name`` is what the limit is called.
    """
    split = facts.split
    if split is None:
        return
    fixed = split.parameters + split.gradients + split.optimizer_state + split.buffers
    if fixed > limit_bytes:
        raise RunError(
            f"parameters, gradients and optimizer state alone need {format_bytes(fixed)}, "
            f"{format_bytes(fixed - limit_bytes)} more than the {name} of {format_bytes(limit_bytes)}",
            hint="recompute plans and batch size only change activations; give a higher --memory-limit "
            "or --target-memory",
        )
