"""What a discovery run brought back: facts to search with, or an error that says why not."""

from __future__ import annotations

from ..errors import DiscoveryError, RunError
from ..records import Facts, Measured, Outcome, OutOfMemory, ScriptError
from ..records.units import format_bytes

__all__ = ["check_limit", "judge"]


def judge(facts: Facts | None, baseline: Outcome | None, failure: Outcome | None) -> Facts:
    """Give the facts, or raise DiscoveryError with the run's cause, its last lines and what to do.

    Args:
        facts: what the run described.
        baseline: the outcome of the script as it stands.
        failure: why the run failed while it described the script.
    """
    if isinstance(baseline, Measured) and facts is not None:
        return facts
    outcome = failure if isinstance(baseline, Measured) else baseline
    if outcome is None or isinstance(outcome, Measured):
        raise DiscoveryError("discovery was interrupted", hint="the same command again starts it anew")
    detail = outcome.traceback.rstrip() if isinstance(outcome, ScriptError) else "\n".join(outcome.log_tail)
    message = f"the script could not be measured as it stands: {outcome.cause}"
    if detail:
        message += f"\n\n{detail}"
    hint = outcome.advice
    if isinstance(outcome, OutOfMemory):
        hint = "discovery needs one batch size that fits: pass the script a smaller one, larger ones are tried later"
    raise DiscoveryError(message, hint=hint)


def check_limit(facts: Facts, limit_bytes: int) -> None:
    """RunError if not even parameters, gradients and optimizer state fit: no plan changes those."""
    split = facts.split
    if split is None:
        return
    fixed = split.parameters + split.gradients + split.optimizer_state + split.buffers
    if fixed > limit_bytes:
        raise RunError(
            f"parameters, gradients and optimizer state alone need {format_bytes(fixed)}, "
            f"{format_bytes(fixed - limit_bytes)} more than the limit of {format_bytes(limit_bytes)}",
            hint="recompute plans and batch size only change activations; give a higher --memory-limit",
        )
