"""Who is measured again beside the baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..records import Configuration, Facts, Repeat, Trial
from ..records.figures import peak_bytes
from .aim import Aim
from .judging import is_feasible
from .rounds import compare, holds, is_slow, is_win, tells

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


def feasible_trials(trials: Sequence[Trial], facts: Facts, aim: Aim, repeats: Sequence[Repeat] = ()) -> list[Trial]:
    """Give the trials that may win, the baseline included, from best to worst.

    A configuration that failed, thrashed or passed the limit in its rounds may not, whatever its trial said; nor one
    whose trial was slower than may be.
    """
    finite = baseline_is_finite(trials, facts)
    fitting = [
        trial
        for trial in trials
        if trial.measured
        and is_feasible(trial.measured.measurement, aim.limit_bytes, baseline_is_finite=finite)
        and (_is_own(trial, facts) or holds(repeats, trial.configuration, aim, baseline_is_finite=finite))
    ]
    least = aim.slowest * _reference_per_s(fitting, facts)
    able = [trial for trial in fitting if _is_own(trial, facts) or _rate(trial) >= least]
    return sorted(able, key=lambda trial: (-_merit(trial, aim), trial.number))


def finalists(
    trials: Sequence[Trial], facts: Facts, aim: Aim, repeats: Sequence[Repeat] = ()
) -> tuple[Configuration, ...]:
    """Choose at most two configurations to measure again, interleaved with the baseline.

    The best that may win, and a runner-up. None if nothing is better than the baseline by more than half a percent;
    where the baseline itself does not fit, anything that fits qualifies. Nobody is who may be too slow by its rounds,
    or was slower than such a one in its trial.
    """
    feasible = feasible_trials(trials, facts, aim, repeats)
    own = next((trial for trial in feasible if _is_own(trial, facts)), None)
    floor = 0.0 if own is None else _merit(own, aim) * (1 + _WORTH_CONFIRMING)
    worthwhile = [t for t in feasible if not _is_own(t, facts) and _merit(t, aim) > floor]
    better = _without_the_slow(worthwhile, facts, aim, repeats)
    if not better:
        return ()
    runners_up = _runners_up(better, _reference_per_s(feasible, facts), aim, has_baseline=own is not None)
    return tuple(trial.configuration for trial in (better[0], *runners_up[:1]))


def _runners_up(better: Sequence[Trial], reference_per_s: float, aim: Aim, *, has_baseline: bool) -> Sequence[Trial]:
    """Who is measured beside the best in case it is not: as good within noise, and much less likely to fail."""
    best, others = better[0], better[1:]
    close = [trial for trial in others if _merit(trial, aim) >= _merit(best, aim) * (1 - _RUNNER_UP_WITHIN)]
    if not aim.seeks_memory:
        return close or [trial for trial in others if _peak(trial) <= _peak(best) * (1 - _MUCH_LESS_MEMORY)]
    # Half of what may be keeps clear of it. Without a baseline the fastest is what speeds are held against.
    clear = reference_per_s * ((1 + aim.slowest) / 2 if has_baseline else 1)
    if _rate(best) >= clear:
        return close
    return [trial for trial in others if _rate(trial) >= clear] or close


def _without_the_slow(better: Sequence[Trial], facts: Facts, aim: Aim, repeats: Sequence[Repeat]) -> Sequence[Trial]:
    told = {
        one.configuration.key: one
        for one in compare(repeats, facts.baseline, aim)
        if tells(repeats, one.configuration, facts.baseline)
    }
    slow = {key for key, one in told.items() if is_slow(one)}
    least = max((_rate(trial) for trial in better if trial.configuration.key in slow), default=None)
    if least is None:
        return better
    confirmed = [t for t in better if t.configuration.key in told and is_win(told[t.configuration.key], aim)]
    # With one that won in its rounds, what lies between is not worth rounds of its own.
    return confirmed or [t for t in better if t.configuration.key not in slow and _rate(t) > least]


def _reference_per_s(fitting: Sequence[Trial], facts: Facts) -> float:
    """What samples/s are held against: the baseline's, or where it does not fit the fastest's."""
    own = [_rate(trial) for trial in fitting if _is_own(trial, facts)]
    return max(own or map(_rate, fitting), default=0.0)


def _is_own(trial: Trial, facts: Facts) -> bool:
    return trial.configuration.key == facts.baseline.key


def _merit(trial: Trial, aim: Aim) -> float:
    return aim.merit_of(trial.measured.measurement) if trial.measured else 0.0


def _rate(trial: Trial) -> float:
    return trial.measured.measurement.samples_per_s if trial.measured else 0.0


def _peak(trial: Trial) -> float:
    peak = peak_bytes(trial.measured.measurement.peaks) if trial.measured else None
    return math.inf if peak is None else peak
