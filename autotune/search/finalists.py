"""Who is measured again beside the baseline, and how those rounds compare."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from ..records import Comparison, Configuration, Facts, Measured, Measurement, Outcome, Repeat, Trial
from ..records.figures import peak_bytes
from .judging import is_feasible

__all__ = ["baseline_is_finite", "baseline_trial", "compare", "feasible_trials", "finalists", "holds", "rounds_of"]

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


def feasible_trials(trials: Sequence[Trial], facts: Facts, limit_bytes: int) -> list[Trial]:
    """Give the trials that may win, the baseline included, from fastest to slowest."""
    finite = baseline_is_finite(trials, facts)
    feasible = [
        trial
        for trial in trials
        if trial.measured and is_feasible(trial.measured.measurement, limit_bytes, baseline_is_finite=finite)
    ]
    return sorted(feasible, key=lambda trial: (-_rate(trial), trial.number))


def finalists(trials: Sequence[Trial], facts: Facts, limit_bytes: int) -> tuple[Configuration, ...]:
    """Choose at most two configurations to measure again, interleaved with the baseline.

    The fastest that may win, and a runner-up that is as fast within noise or needs much less memory. None if nothing
    is faster than the baseline by more than half a percent; where the baseline itself does not fit, anything that fits
    qualifies.
    """
    feasible = feasible_trials(trials, facts, limit_bytes)
    own = next((trial for trial in feasible if trial.configuration.key == facts.baseline.key), None)
    floor = 0.0 if own is None else _rate(own) * (1 + _WORTH_CONFIRMING)
    better = [t for t in feasible if t.configuration.key != facts.baseline.key and _rate(t) > floor]
    if not better:
        return ()
    best, others = better[0], better[1:]
    close = [trial for trial in others if _rate(trial) >= _rate(best) * (1 - _RUNNER_UP_WITHIN)]
    small = [trial for trial in others if _peak(trial) <= _peak(best) * (1 - _MUCH_LESS_MEMORY)]
    return tuple(trial.configuration for trial in (best, *(close or small)[:1]))


def rounds_of(repeats: Sequence[Repeat], configuration: Configuration) -> list[Outcome]:
    """Give the outcomes of a configuration's rounds, in order."""
    own = [repeat for repeat in repeats if repeat.configuration.key == configuration.key]
    return [repeat.outcome for repeat in sorted(own, key=lambda repeat: repeat.round)]


def holds(outcomes: Sequence[Outcome], limit_bytes: int, *, baseline_is_finite: bool) -> bool:
    """Tell whether every round could have won (``judging.is_feasible``); so it is with no rounds."""
    return all(
        isinstance(outcome, Measured)
        and is_feasible(outcome.measurement, limit_bytes, baseline_is_finite=baseline_is_finite)
        for outcome in outcomes
    )


def compare(repeats: Sequence[Repeat], baseline: Configuration, limit_bytes: int) -> tuple[Comparison, ...]:
    """Hold each finalist's rounds against the baseline's.

    A finalist's round that failed, thrashed or passed the limit counts as no samples at all. The baseline's failed
    rounds are left out: a failure of the baseline is no merit of a finalist.

    Returns:
        One comparison per finalist, in the order of first appearance; none if no round of the baseline was measured.
    """
    own = [outcome.measurement for outcome in rounds_of(repeats, baseline) if isinstance(outcome, Measured)]
    if not own or not all(measurement.samples_per_s > 0 for measurement in own):
        return ()
    finite = not any(measurement.nonfinite_loss for measurement in own)
    configurations = {repeat.configuration.key: repeat.configuration for repeat in repeats}
    return tuple(
        _comparison(configuration, rounds_of(repeats, configuration), own, limit_bytes, baseline_is_finite=finite)
        for key, configuration in configurations.items()
        if key != baseline.key
    )


def _comparison(
    configuration: Configuration,
    outcomes: Sequence[Outcome],
    own: Sequence[Measurement],
    limit_bytes: int,
    *,
    baseline_is_finite: bool,
) -> Comparison:
    # scipy.stats takes most of a second to import, and a study needs it once, at its end.
    from scipy.stats import mannwhitneyu

    measured = [outcome.measurement for outcome in outcomes if isinstance(outcome, Measured)]
    good = [one for one in measured if is_feasible(one, limit_bytes, baseline_is_finite=baseline_is_finite)]
    rates = [one.samples_per_s for one in good]
    rates += [0.0] * (len(outcomes) - len(rates))
    own_rates = [one.samples_per_s for one in own]
    # Rates of rounds are continuous; ties come from failed rounds, and those make the exact test no more lenient.
    test = mannwhitneyu(rates, own_rates, alternative="greater", method="exact")
    wins = sum((a > b) + 0.5 * (a == b) for a in rates for b in own_rates)
    middle = statistics.median(own_rates)
    return Comparison(
        configuration=configuration,
        samples_per_s=statistics.median(rates),
        baseline_samples_per_s=middle,
        speedup=statistics.median(rates) / middle,
        speedup_low=min(rates) / max(own_rates),
        speedup_high=max(rates) / min(own_rates),
        p_value=float(test.pvalue),
        effect=wins / (len(rates) * len(own_rates)),
        peak_bytes=max((peak_bytes(one.peaks) or 0 for one in measured), default=0),
        baseline_peak_bytes=max(peak_bytes(one.peaks) or 0 for one in own),
    )


def _rate(trial: Trial) -> float:
    return trial.measured.measurement.samples_per_s if trial.measured else 0.0


def _peak(trial: Trial) -> float:
    peak = peak_bytes(trial.measured.measurement.peaks) if trial.measured else None
    return math.inf if peak is None else peak
