"""What a discovery run brought back: facts to search with, or an error that says why not."""

from __future__ import annotations

from pathlib import Path

from ..errors import DiscoveryError, InterruptionError, RunError
from ..records import Facts, Measured, Outcome, OutOfMemory, ScriptError
from ..records.units import format_bytes

__all__ = ["check_limit", "judge"]


def judge(
    facts: Facts | None, baseline: Outcome | None, failure: Outcome | None, *, reason: str, directory: Path
) -> Facts:
    """Give the facts, or say why there are none.

    Args:
        facts: what the run described.
        baseline: the outcome of the script as it stands.
        failure: why the run failed while it described the script.
        reason: the run's own last word.
        directory: the run's folder, where its whole logs are.

    Raises:
        DiscoveryError: with the script's traceback or its last lines, the cause and what to do.
        InterruptionError: the run was ended before it had a result.
    """
    if isinstance(baseline, Measured) and facts is not None:
        return facts
    outcome = failure if isinstance(baseline, Measured) else baseline
    if outcome is None and reason:
        raise DiscoveryError(
            f"the script was measured, but not described: {reason}", hint=f"Its whole output is in {directory}"
        )
    if outcome is None or isinstance(outcome, Measured):
        raise InterruptionError("discovery was stopped", hint="the same command again starts it anew")
    detail = outcome.traceback if isinstance(outcome, ScriptError) else "\n".join(outcome.log_tail)
    raise DiscoveryError(
        f"the script could not be measured as it stands: {outcome.cause}",
        hint=f"{_hint(outcome)} Its whole output is in {directory}",
        detail=detail.rstrip(),
    )


def _hint(outcome: Outcome) -> str:
    assert not isinstance(outcome, Measured)
    if isinstance(outcome, OutOfMemory):
        return "Discovery needs one batch size that fits: pass the script a smaller one, larger ones are tried later."
    if isinstance(outcome, ScriptError) and "No module named 'torch'" in outcome.cause:
        return "Choose an interpreter that has torch with --python PATH."
    return outcome.advice


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
