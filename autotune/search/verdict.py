"""The answer of a study, decided by the finalists' rounds, and the sentence that says it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Literal

from ..records import (
    Comparison,
    Configuration,
    Facts,
    HostOutOfMemory,
    Measured,
    OutOfMemory,
    Repeat,
    StudyRecord,
    Trial,
    Verdict,
)
from ..records.figures import peak_bytes
from ..records.units import format_bytes
from .finalists import baseline_is_finite, baseline_trial, compare, feasible_trials, finalists, holds, rounds_of

__all__ = ["decide"]

_SPEEDUP = 1.01
_EFFECT = 0.9
_P_VALUE = 0.05
# How often all finalists together may win by accident where nothing is faster than the baseline. The rank test alone
# can't be that strict: with three rounds each its p-value never goes below one in twenty.
_FALSE_WINS = 0.005
# Three rounds can agree by luck more closely than any machine repeats itself.
_LEAST_NOISE = 0.002

_Kind = Literal["winner", "baseline_best", "baseline_does_not_fit", "nothing_fits", "undecided"]
_Answer = tuple[_Kind, Configuration | None, str]


def decide(record: StudyRecord, limit_bytes: int, stop_reason: str) -> Verdict:
    """Decide a study by its trials and the finalists' rounds.

    A finalist wins if in the rounds it was at least 1 % faster (medians), faster in nine of ten pairs, significantly
    so in a one-sided rank test at 0.05, and by more than the spread of the rounds makes likely by accident; and if it
    never failed, thrashed or passed the limit. Of several the fastest wins.

    An ``undecided`` study names as winner what was fastest so far, unconfirmed.

    Args:
        record: The study with all rounds that were measured.
        limit_bytes: The memory limit.
        stop_reason: Why the search ended, as ``Search.stop_reason``.
    """
    facts, tried = record.facts, [trial for trial in record.trials if trial.outcome is not None]
    answer: _Answer
    if facts is None or not tried:
        answer = "undecided", None, "Nothing was measured yet."
    else:
        feasible = feasible_trials(tried, facts, limit_bytes)
        own = next((trial for trial in feasible if trial.configuration.key == facts.baseline.key), None)
        if own is not None and _nothing_else_tells(tried, facts) and _has_alternatives(record, facts):
            answer = "undecided", None, _only_the_baseline(own, tried)
        elif own is not None:
            answer = _against_baseline(own, tried, facts, record.repeats, limit_bytes)
        elif baseline_trial(tried, facts) is None:
            answer = "undecided", None, "The baseline was not measured yet."
        else:
            answer = _without_baseline(feasible, tried, facts, record.repeats, limit_bytes)
    kind, winner, reason = answer
    comparisons = () if facts is None else compare(record.repeats, facts.baseline, limit_bytes)
    return Verdict(kind, winner, reason, stop_reason, limit_bytes, comparisons)


def _nothing_else_tells(tried: Sequence[Trial], facts: Facts) -> bool:
    """Whether all trials but the baseline's failed, and not for memory, which would say that they do not fit."""
    telling = (Measured, OutOfMemory, HostOutOfMemory)
    return not any(isinstance(t.outcome, telling) and t.configuration.key != facts.baseline.key for t in tried)


def _only_the_baseline(own: Trial, tried: Sequence[Trial]) -> str:
    rate, failed = _number(_speed(own, ())), len(tried) - 1
    if not failed:
        return f"Only your baseline was measured so far: {rate} samples/s."
    return f"Only your baseline could be measured, {rate} samples/s: the other {failed} trials all failed."


def _has_alternatives(record: StudyRecord, facts: Facts) -> bool:
    """Whether anything but the baseline can be tried at all."""
    return facts.batch_control.how != "none" or (bool(facts.clusters) and record.spec.engine != "eager")


def _without_baseline(
    feasible: Sequence[Trial], tried: Sequence[Trial], facts: Facts, repeats: Sequence[Repeat], limit_bytes: int
) -> _Answer:
    limit = format_bytes(limit_bytes)
    finite = baseline_is_finite(tried, facts)
    steady = [
        trial
        for trial in feasible
        if holds(rounds_of(repeats, trial.configuration), limit_bytes, baseline_is_finite=finite)
    ]
    if not steady:
        return "nothing_fits", None, f"Nothing tried trains within {limit}{_least_seen(tried)}."
    speeds = {trial.number: _speed(trial, repeats) for trial in steady}
    best = max(steady, key=lambda trial: speeds[trial.number])
    own = baseline_trial(tried, facts)
    peak = None if own is None else _peak(own)
    if peak is not None and peak > limit_bytes:
        trouble = f"needs {format_bytes(peak)}, more than {limit}"
    elif own is not None and isinstance(own.outcome, OutOfMemory):
        trouble = f"runs out of memory within {limit}"
    elif own is not None and own.measured:
        trouble = f"only just fits {limit}: its allocator had to free memory and try again"
    else:
        trouble = "could not be measured"
    reason = (
        f"Your baseline {trouble}; {_name(best.configuration)} trains {_number(speeds[best.number])} samples/s "
        f"within {format_bytes(_peak(best) or 0)}."
    )
    return "baseline_does_not_fit", best.configuration, reason


def _against_baseline(
    own: Trial, tried: Sequence[Trial], facts: Facts, repeats: Sequence[Repeat], limit_bytes: int
) -> _Answer:
    own_speed = _speed(own, ())
    if own_speed <= 0:
        return "undecided", None, "The baseline's samples could not be counted, so speeds can't be compared."
    candidates = finalists(tried, facts, limit_bytes)
    comparisons = compare(repeats, facts.baseline, limit_bytes)
    if not candidates and not comparisons:
        others = len({trial.configuration.key for trial in tried}) - 1
        if not others:
            return "baseline_best", facts.baseline, "Your baseline stays: there was nothing else to try."
        reason = (
            f"Your baseline is already the best: of {others} other configurations tried within "
            f"{format_bytes(limit_bytes)}, none beats its {_number(own_speed)} samples/s."
        )
        return "baseline_best", facts.baseline, reason

    num_rounds = len(rounds_of(repeats, facts.baseline))
    told_apart = [c for c in comparisons if _least_p_value(repeats, c.configuration, facts.baseline) <= _P_VALUE]
    if not told_apart:
        best = candidates[0] if candidates else comparisons[0].configuration
        reason = (
            f"{_name(best)} is the fastest so far, but {num_rounds} rounds beside your baseline are too few to tell."
            if num_rounds
            else f"{_name(best)} is the fastest so far, but was not measured again beside your baseline yet."
        )
        return "undecided", best, reason

    needed = _beyond_accident(repeats, [c.configuration for c in told_apart], facts.baseline)
    finite = baseline_is_finite(tried, facts)
    steady = [
        c for c in told_apart if holds(rounds_of(repeats, c.configuration), limit_bytes, baseline_is_finite=finite)
    ]
    winners = [c for c in steady if _is_win(c) and _gain(c, repeats, facts.baseline) >= needed]
    if winners:
        best_one = max(winners, key=lambda c: c.samples_per_s)
        reason = (
            f"{_name(best_one.configuration)} trains {best_one.speedup:.2f}x faster than your baseline "
            f"({_versus(best_one)}) within {format_bytes(limit_bytes)}."
        )
        return "winner", best_one.configuration, reason
    return "baseline_best", facts.baseline, _no_win(told_apart, steady, needed, num_rounds, limit_bytes)


def _no_win(
    compared: Sequence[Comparison], steady: Sequence[Comparison], needed: float, num_rounds: int, limit_bytes: int
) -> str:
    best = max(steady or compared, key=lambda c: c.speedup)
    name = _name(best.configuration)
    if not steady:
        return (
            f"Your baseline stays: {name} was faster in the search, but in {num_rounds} rounds beside it did not "
            f"always train within {format_bytes(limit_bytes)}."
        )
    if best.speedup < _SPEEDUP:
        return (
            f"Your baseline is already the best: {name}, the fastest in the search, came to {best.speedup:.3f}x in "
            f"{num_rounds} rounds beside it ({_versus(best)})."
        )
    return (
        f"Your baseline stays: {name} came to {best.speedup:.2f}x in {num_rounds} rounds beside it ({_versus(best)}), "
        f"but rounds vary so much here that anything under {max(needed, _SPEEDUP):.2f}x may be chance."
    )


def _is_win(comparison: Comparison) -> bool:
    # 1/20 is the least p-value of three against three rounds, and has no exact binary form.
    significant = comparison.p_value <= _P_VALUE * (1 + 1e-9)
    return significant and comparison.effect >= _EFFECT and comparison.speedup >= _SPEEDUP


def _least_p_value(repeats: Sequence[Repeat], one: Configuration, other: Configuration) -> float:
    """The rank test's p-value if every round of one is faster than every round of the other."""
    rounds, other_rounds = len(rounds_of(repeats, one)), len(_rates(rounds_of(repeats, other)))
    return 1 / math.comb(rounds + other_rounds, rounds)


def _gain(comparison: Comparison, repeats: Sequence[Repeat], baseline: Configuration) -> float:
    """The ratio of the geometric means of the rounds; less noisy than that of the medians."""
    rates, own = (_rates(rounds_of(repeats, c)) for c in (comparison.configuration, baseline))
    return statistics.geometric_mean(rates) / statistics.geometric_mean(own)


def _beyond_accident(repeats: Sequence[Repeat], others: Sequence[Configuration], baseline: Configuration) -> float:
    """The speedup that identical configurations reach in at most ``_FALSE_WINS`` of all studies.

    A t-test on log rates, with the variance pooled over all configurations (noise is the machine's, not the
    configuration's) and the error divided among the finalists (Bonferroni).
    """
    from scipy.stats import t  # late for the same reason as in compare()

    rates = [_rates(rounds_of(repeats, configuration)) for configuration in (baseline, *others)]
    groups = [[math.log(rate) for rate in group] for group in rates if group]
    freedom = sum(len(group) - 1 for group in groups)
    if freedom == 0:
        return math.inf
    squares = sum(statistics.variance(group) * (len(group) - 1) for group in groups if len(group) > 1)
    noise = max(math.sqrt(squares / freedom), _LEAST_NOISE)
    fewest = min(len(group) for group in groups)
    factor = float(t.ppf(1 - _FALSE_WINS / len(others), freedom))
    return math.exp(factor * noise * math.sqrt(2 / fewest))


def _rates(outcomes: Sequence[object]) -> list[float]:
    rates = (outcome.measurement.samples_per_s for outcome in outcomes if isinstance(outcome, Measured))
    return [rate for rate in rates if rate > 0]


def _speed(trial: Trial, repeats: Sequence[Repeat]) -> float:
    rates = _rates(rounds_of(repeats, trial.configuration)) or _rates([trial.outcome])
    return statistics.median(rates) if rates else 0.0


def _peak(trial: Trial) -> int | None:
    return peak_bytes(trial.measured.measurement.peaks) if trial.measured else None


def _least_seen(tried: Sequence[Trial]) -> str:
    peaks = {peak: trial for trial in tried if (peak := _peak(trial)) is not None}
    if not peaks:
        return ""
    least = min(peaks)
    return f"; the least seen was {format_bytes(least)}, of {_name(peaks[least].configuration)}"


def _name(configuration: Configuration) -> str:
    plans = " ".join(map(str, configuration.plans))
    if configuration.batch_size is None:
        return plans or "the script without plans"
    return (
        f"{plans} at batch {configuration.batch_size}" if plans else f"batch {configuration.batch_size} without plans"
    )


def _versus(comparison: Comparison) -> str:
    return f"{_number(comparison.samples_per_s)} vs {_number(comparison.baseline_samples_per_s)} samples/s"


def _number(rate: float) -> str:
    return f"{rate:.0f}" if rate >= 100 else f"{rate:.3g}"
