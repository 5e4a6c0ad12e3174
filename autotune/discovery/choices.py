"""Choices that are refused once the script is known."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import UsageError
from ..records import ENGINES, Choice, Engine, Facts

__all__ = ["check_choices"]


def check_choices(engine: Engine, choices: Iterable[str], facts: Facts) -> None:
    """UsageError for the first of an engine's choices that would change nothing in the script, or that it rules out."""
    for name in choices:
        choice = ENGINES[engine].choices[name]
        reason = _optimizer(choice, facts) or _precision(choice, facts) or _allocator(choice, facts)
        if reason:
            raise UsageError(f"{name!r} cannot be had: {reason}", hint="leave it out of --allow")


def _optimizer(choice: Choice, facts: Facts) -> str:
    if not choice.optimizer:
        return ""
    if choice.optimizer == "foreach" and facts.environment.device_kind == "cuda":
        return "on a GPU torch's optimizers take it by themselves"
    if any(one.leaves_open(choice.optimizer) for one in facts.optimizers):
        return ""
    having = [one.name for one in facts.optimizers if choice.optimizer in one.settings]
    if having:
        return f"the script itself says how {' and '.join(dict.fromkeys(having))} steps (foreach, fused)"
    names = " and ".join(dict.fromkeys(one.name for one in facts.optimizers))
    return f"{names} has no {choice.optimizer!r}" if names else "the script has no optimizer of torch's"


def _precision(choice: Choice, facts: Facts) -> str:
    found = facts.precision
    if not choice.autocast or found is None:
        return ""
    if found.autocast is not None:
        return f"the script trains under autocast already ({found.autocast})"
    if found.grad_scaler:
        return "the script has a GradScaler, so it sees to its precision itself"
    return "" if found.parameters == "float32" else f"the model's parameters are {found.parameters}, not float32"


def _allocator(choice: Choice, facts: Facts) -> str:
    if not choice.setting:
        return ""
    if facts.environment.device_kind != "cuda":
        return "the script trains on CPU, and it is of torch's allocator for GPUs"
    variables = facts.environment.variables or {}
    is_on = [name for name in choice.variables if f"{choice.setting}:True" in variables.get(name, "").replace(" ", "")]
    return f"{is_on[0]} has it already" if is_on else ""
