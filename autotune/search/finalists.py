"""Who is measured again beside the baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..records import Configuration, Facts, Repeat, Trial
from ..records.figures import peak_bytes
from .judging import is_feasible
from .rounds import holds

__all__ = ["baseline_is_finite", "baseline_trial", "feasible_trials", "finalists"]

# A gain below this share is not worth rounds of measuring.
_WORTH_CONFIRMING = 0.005
# A runner-up is as good as the best within noise, or leaves this share of its memory free.
_RUNNER_UP_WITHIN = 0.03
_MUCH_LESS_MEMORY = 0.2


def baseline_trial(trials: Sequence[Trial], facts: Facts) -> Trial | None:
    """Find the baseline's finished trial, failed or not; a measured one before a failed one."""
    own = [t for t in trials if t.configuration.key == facts.baseline.key and t.outcome is not None]
    return next((trial for trial in own if trial.measured), own[0] if own else None)


def baseline_is_finite(trials: Sequence[Trial], facts: Facts) -> bool:
    """Tell whether the baseline's loss is a number; so it is taken to be where it was not measured."""
    own = baseline_trial(trials, facts)
    return own is None or own.measured is None or not own.measured.measurement.nonfinite_loss


def feasible_trials(
    trials: Sequence[Trial], facts: Facts, limit_bytes: int, repeats: Sequence[Repeat] = ()
) -> list[Trial]:
    """Give the trials that may win, the baseline included, from fastest to slowest.

    A configuration that failed, thrashed or passed the limit in its rounds may not, whatever its trial said.
    """
    finite = baseline_is_finite(trials, facts)
    feasible = [
        trial
        for trial in trials
        if trial.measured
        and is_feasible(trial.measured.measurement, limit_bytes, baseline_is_finite=finite)
        and (
            trial.configuration.key == facts.baseline.key
            or holds(repeats, trial.configuration, limit_bytes, baseline_is_finite=finite)
        )
    ]
    return sorted(feasible, key=lambda trial: (-_rate(trial), trial.number))


def finalists(
    trials: Sequence[Trial], facts: Facts, limit_bytes: int, repeats: Sequence[Repeat] = ()
) -> tuple[Configuration, ...]:
    """Choose at most two configurations to measure again, interleaved with the baseline.

    The fastest that may win, and a runner-up that is as fast within noise or needs much less memory. None if nothing
    is faster than the baseline by more than half a percent; where the baseline itself does not fit, anything that fits
    qualifies.
    """
    feasible = feasible_trials(trials, facts, limit_bytes, repeats)
    own = next((trial for trial in feasible if trial.configuration.key == facts.baseline.key), None)
    floor = 0.0 if own is None else _rate(own) * (1 + _WORTH_CONFIRMING)
    better = [t for t in feasible if t.configuration.key != facts.baseline.key and _rate(t) > floor]
    if not better:
        return ()
    best, others = better[0], better[1:]
    close = [trial for trial in others if _rate(trial) >= _rate(best) * (1 - _RUNNER_UP_WITHIN)]
    small = [trial for trial in others if _peak(trial) <= _peak(best) * (1 - _MUCH_LESS_MEMORY)]
    return tuple(trial.configuration for trial in (best, *(close or small)[:1]))


def _rate(trial: Trial) -> float:
    return trial.measured.measurement.samples_per_s if trial.measured else 0.0


def _peak(trial: Trial) -> float:
    peak = peak_bytes(trial.measured.measurement.peaks) if trial.measured else None
    return math.inf if peak is None else peak
