"""Time limit of a description."""

from __future__ import annotations

from collections.abc import Collection

from ...records.run import Searched

# Of the time that a study has left. Where it searches nothing but plans, a few trials must still fit: without them
# plans bring nothing. Batch sizes and choices can be tried without a description.
_SHARE_FOR_FACTS = 0.95
_SHARE_BEFORE_PLANS = 0.75
_SHARE_BEFORE_MORE = 0.5

# Without a budget. Tracing takes some 0.1 s for a module on one core of 2023, and importing the compiler some 5 s. The
# steps run each graph some twenty times, node by node. Other programs may keep the cores busy.
_LEAST_S = 600.0
_MODULE_S = 1.0
_STEPS = 100


def may_take_s(
    *, num_modules: int, step_s: float, trial_s: float, left_s: float | None, searches: Collection[Searched]
) -> float:
    """Return the seconds that a description may take.

    Args:
        num_modules: of the roots, their own included.
        step_s: what a step of the script takes as it stands.
        trial_s: what a trial takes, with its start.
        left_s: what the study has left; None for no budget.
        searches: what the study does afterwards.
    """
    if left_s is None:
        return _LEAST_S + _MODULE_S * num_modules + _STEPS * step_s
    share = _SHARE_BEFORE_PLANS if set(searches) == {"plans"} else _SHARE_BEFORE_MORE
    # Time that is too short for a trial would be left unused.
    if not searches or (1 - share) * left_s < trial_s:
        share = _SHARE_FOR_FACTS
    return share * max(0.0, left_s)
