"""Finalists: the settings that are measured again beside the baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..records.configuration import Configuration
from ..records.facts import Facts
from ..records.study import Comparison, Repeat, StudySpec, Trial
from ..records.study_results import repetitions_of
from .aim import Aim
from .contention import may_be_faster, most_per_s
from .feasible import is_feasible
from .repetitions import compare, holds
from .search_end import NOTHING_BELIEVED, Believed
from .sequential import LEAST_GAIN

# A runner-up is as good as the best within noise, or leaves this share of its memory free.
_RUNNER_UP_WITHIN = 0.03
_MUCH_LESS_MEMORY = 0.2


def baseline_trial(trials: Sequence[Trial], facts: Facts) -> Trial | None:
    """Find the baseline's finished trial, failed or not; a measured one before a failed one."""
    own = [t for t in trials if t.configuration.key == facts.baseline.key and t.outcome is not None]
    return next((trial for trial in own if trial.measured), own[0] if own else None)


def baseline_is_finite(trials: Sequence[Trial], facts: Facts) -> bool:
    """Tell whether the baseline's loss is a number, or was not measured."""
    own = baseline_trial(trials, facts)
    return own is None or own.measured is None or not own.measured.nonfinite_loss


def feasible_trials(trials: Sequence[Trial], facts: Facts, aim: Aim, repeats: Sequence[Repeat] = ()) -> list[Trial]:
    """Return the trials that may win, the baseline included, from best to worst.

    A configuration that failed, thrashed or passed the limit in its repetitions may not, whatever its trial said; nor
    one whose trial was slower than may be.
    """
    fitting = _fitting(trials, facts, aim, repeats)
    least = aim.slowest * _reference_per_s(fitting, facts)
    return [trial for trial in fitting if _is_own(trial, facts) or trial.samples_per_s >= least]


def _fitting(trials: Sequence[Trial], facts: Facts, aim: Aim, repeats: Sequence[Repeat]) -> list[Trial]:
    """Return the trials that may win if any speed will do, from best to worst."""
    finite = baseline_is_finite(trials, facts)
    fitting = (
        trial
        for trial in trials
        if trial.measured
        and is_feasible(trial.measured, aim.limit_bytes, baseline_is_finite=finite)
        and (_is_own(trial, facts) or holds(repeats, trial.configuration, aim, baseline_is_finite=finite))
    )
    return sorted(fitting, key=lambda trial: (-_merit(trial, aim), trial.number))


def finalists(
    trials: Sequence[Trial],
    facts: Facts,
    aim: Aim,
    repeats: Sequence[Repeat] = (),
    *,
    most_repetitions: int = StudySpec.finalist_repetitions,
    believed: Believed = NOTHING_BELIEVED,
) -> tuple[Configuration, ...]:
    """Choose at most two configurations to measure again, interleaved with the baseline.

    The best that may win, and a runner-up: what was measured as the best, where something else is believed to be. None
    if nothing is better than the baseline by more than half a percent. Where the baseline itself does not fit, anything
    that fits qualifies, and trials decide. What was too slow in its repetitions is left out, and what was slower than
    that in its trial. What may not fit again waits until nothing else may still win.
    """
    feasible = feasible_trials(trials, facts, aim, repeats)
    own = next((trial for trial in feasible if _is_own(trial, facts)), None)
    floor = 0.0 if own is None else _merit(own, aim) * LEAST_GAIN
    worthwhile = [t for t in feasible if not _is_own(t, facts) and _merit(t, aim) > floor]
    better = _without_the_slow(worthwhile, facts, aim, repeats, most_repetitions)
    if not better:
        return ()
    lost = {one.configuration.key for one in compare(repeats, facts.baseline, aim, most_repetitions) if one.is_lost}
    for least in believed.least_chances:
        likely = [trial for trial in better if _chance_to_fit(trial.configuration, believed, repeats) >= least]
        if any(trial.configuration.key not in lost for trial in likely):
            better = likely
            break
    # Without a baseline the repetitions of few settings decide, with their trials.
    per_s = {} if own is None else believed.per_s
    fastest = max(better, key=lambda trial: per_s.get(trial.configuration.key, 0.0))
    if per_s.get(fastest.configuration.key, 0.0) > per_s.get(better[0].configuration.key, math.inf):
        return fastest.configuration, better[0].configuration
    runners_up = _runners_up(better, _reference_per_s(feasible, facts), aim, has_baseline=own is not None)
    return tuple(trial.configuration for trial in (better[0], *runners_up[:1]))


def is_unsure(configuration: Configuration, believed: Believed, repeats: Sequence[Repeat]) -> bool:
    """Tell whether a setting that fitted in its trial may not fit again."""
    return num_chances_passed(configuration, believed, repeats) < len(believed.least_chances)


def num_chances_passed(configuration: Configuration, believed: Believed, repeats: Sequence[Repeat]) -> int:
    """Count the ``least_chances`` that a setting's chance to fit again reaches."""
    chance = _chance_to_fit(configuration, believed, repeats)
    return sum(chance >= least for least in believed.least_chances)


def _chance_to_fit(configuration: Configuration, believed: Believed, repeats: Sequence[Repeat]) -> float:
    return 1.0 if repetitions_of(repeats, configuration) else believed.chances_to_fit.get(configuration.key, 1.0)


def doubtful(
    trials: Sequence[Trial], facts: Facts, aim: Aim, repeats: Sequence[Repeat] = ()
) -> tuple[Configuration, ...]:
    """Return the best that was no better than the baseline, but held back by other programs or without its kernels."""
    fitting = _fitting(trials, facts, aim, repeats)
    own = next((trial for trial in fitting if _is_own(trial, facts)), None)
    if own is None or own.measured is None:
        return ()
    beside = own.measured

    def may_be_better(trial: Trial) -> bool:
        if trial.measured is None or not may_be_faster(trial.measured, beside):
            return False
        rate, merit = most_per_s(trial.measured, beside), _merit(own, aim)
        return rate >= aim.slowest * own.samples_per_s and aim.merit(rate, trial.peak_bytes) > merit * LEAST_GAIN

    others = (trial for trial in fitting if not _is_own(trial, facts))
    return tuple(trial.configuration for trial in others if may_be_better(trial))[:1]


def to_confirm(
    trials: Sequence[Trial],
    facts: Facts,
    aim: Aim,
    repeats: Sequence[Repeat] = (),
    *,
    most_repetitions: int = StudySpec.finalist_repetitions,
    believed: Believed = NOTHING_BELIEVED,
) -> tuple[Configuration, ...]:
    """Choose the settings to measure again before there is an answer, the best first.

    They are the ``finalists``, or where no setting is better than the baseline, the ``doubtful``.
    """
    chosen = finalists(trials, facts, aim, repeats, most_repetitions=most_repetitions, believed=believed)
    return chosen or doubtful(trials, facts, aim, repeats)


def awaited(
    candidates: Sequence[Configuration],
    trials: Sequence[Trial],
    aim: Aim,
    repeats: Sequence[Repeat],
    compared: Sequence[Comparison],
) -> Configuration | None:
    """Find the first of those ``to_confirm`` that no repetitions tell of yet; None where there is none to wait for.

    No candidate is waited for after a winner, nor one without repetitions whose trial was no better than that of a
    candidate that lost.
    """
    told = {one.configuration.key: one for one in compared if not one.is_open}
    merits = {trial.configuration.key: _merit(trial, aim) for trial in trials if trial.measured}
    beaten = -math.inf
    for candidate in candidates:
        found, merit = told.get(candidate.key), merits.get(candidate.key, 0.0)
        if found is None and (merit > beaten or repetitions_of(repeats, candidate)):
            return candidate
        if found is not None and found.is_win:
            return None
        if found is not None:
            beaten = max(beaten, merit)
    return None


def _runners_up(better: Sequence[Trial], reference_per_s: float, aim: Aim, *, has_baseline: bool) -> Sequence[Trial]:
    """Return the trials to measure beside the best: as good within noise, or much less likely to fail."""
    best, others = better[0], better[1:]
    close = [trial for trial in others if _merit(trial, aim) >= _merit(best, aim) * (1 - _RUNNER_UP_WITHIN)]
    if not aim.seeks_memory:
        most = (best.peak_bytes or 0) * (1 - _MUCH_LESS_MEMORY)
        return close or [trial for trial in others if (trial.peak_bytes or 0) <= most]
    # Half of what may be keeps clear of it. Without a baseline the fastest is what speeds are held against.
    clear = reference_per_s * ((1 + aim.slowest) / 2 if has_baseline else 1)
    if best.samples_per_s >= clear:
        return close
    return [trial for trial in others if trial.samples_per_s >= clear] or close


def _without_the_slow(
    better: Sequence[Trial], facts: Facts, aim: Aim, repeats: Sequence[Repeat], most_repetitions: int
) -> Sequence[Trial]:
    compared = compare(repeats, facts.baseline, aim, most_repetitions)
    told = {one.configuration.key: one for one in compared if not one.is_open}
    slow = {key for key, one in told.items() if one.found_fast not in (None, "win")}
    least = max((trial.samples_per_s for trial in better if trial.configuration.key in slow), default=None)
    if least is None:
        return better
    confirmed = [t for t in better if t.configuration.key in told and told[t.configuration.key].is_win]
    # With one that won in its repetitions, what lies between is not worth repetitions of its own.
    return confirmed or [t for t in better if t.configuration.key not in slow and t.samples_per_s > least]


def _reference_per_s(fitting: Sequence[Trial], facts: Facts) -> float:
    """Return the baseline's samples/s, or where it does not fit the fastest's."""
    own = [trial.samples_per_s for trial in fitting if _is_own(trial, facts)]
    return max(own or [trial.samples_per_s for trial in fitting], default=0.0)


def _is_own(trial: Trial, facts: Facts) -> bool:
    return trial.configuration.key == facts.baseline.key


def _merit(trial: Trial, aim: Aim) -> float:
    return aim.merit_of(trial.measured) if trial.measured else 0.0
