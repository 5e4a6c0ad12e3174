"""The answer of a study, decided by the finalists' rounds, and the sentence that says it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Literal

from ..records import (
    ENGINES,
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
from ..records.figures import figures_of, format_rate, peak_bytes, rounds_of
from ..records.units import format_bytes
from .finalists import baseline_trial, feasible_trials, finalists
from .rounds import P_VALUE, baseline_rates, compare, gain, least_gain, rates_of, tells

__all__ = ["decide"]

_SPEEDUP = 1.01
_EFFECT = 0.9

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
        feasible = feasible_trials(tried, facts, limit_bytes, record.repeats)
        own = next((trial for trial in feasible if trial.configuration.key == facts.baseline.key), None)
        if own is not None and _nothing_else_tells(tried, facts) and _has_alternatives(record, facts):
            answer = "undecided", None, _only_the_baseline(own, tried)
        elif own is not None:
            answer = _against_baseline(own, tried, facts, record.repeats, limit_bytes)
        elif baseline_trial(tried, facts) is None:
            answer = "undecided", None, "The baseline was not measured yet."
        else:
            answer = _without_baseline(record, feasible, facts, limit_bytes)
    kind, winner, reason = answer
    comparisons = () if facts is None else compare(record.repeats, facts.baseline, limit_bytes)
    return Verdict(kind, winner, reason, stop_reason, limit_bytes, comparisons)


def _nothing_else_tells(tried: Sequence[Trial], facts: Facts) -> bool:
    """Whether all trials but the baseline's failed, and not for memory, which would say that they do not fit."""
    telling = (Measured, OutOfMemory, HostOutOfMemory)
    return not any(isinstance(t.outcome, telling) and t.configuration.key != facts.baseline.key for t in tried)


def _only_the_baseline(own: Trial, tried: Sequence[Trial]) -> str:
    rate, failed = format_rate(_rate(own)), len(tried) - 1
    if not failed:
        return f"Only your baseline was measured so far: {rate} samples/s."
    return f"Only your baseline could be measured, {rate} samples/s: the other {failed} trials all failed."


def _has_alternatives(record: StudyRecord, facts: Facts) -> bool:
    """Whether anything but the baseline can be tried at all."""
    has_plans = bool(facts.clusters) and record.spec.engine != "eager"
    return facts.batch_control.how != "none" or has_plans or bool(record.spec.choices)


def _without_baseline(record: StudyRecord, feasible: Sequence[Trial], facts: Facts, limit_bytes: int) -> _Answer:
    limit, repeats = format_bytes(limit_bytes), record.repeats
    if not feasible:
        reliably = "reliably " if repeats else ""
        return "nothing_fits", None, f"Nothing tried trains {reliably}within {limit}{_least_seen(record.trials)}."
    # A single trial may have been lucky: what was measured again goes before what was not.
    again = [trial for trial in feasible if rounds_of(repeats, trial.configuration)]
    best = max(again, key=lambda trial: statistics.median(rates_of(repeats, trial.configuration)), default=feasible[0])
    figures = figures_of(record, best.configuration)
    assert figures is not None, "it is feasible, so it was measured"
    own = baseline_trial(record.trials, facts)
    peak = None if own is None else _peak(own)
    if peak is not None and peak > limit_bytes:
        trouble = f"needs {format_bytes(peak)}, more than {limit}"
    elif own is not None and isinstance(own.outcome, OutOfMemory):
        trouble = f"runs out of memory within {limit}"
    elif own is not None and own.measured:
        trouble = f"only just fits {limit}: its allocator had to free memory and try again"
    else:
        trouble = "could not be measured"
    once = "" if again else ", measured once"
    reason = (
        f"Your baseline {trouble}; {_name(best.configuration)} trains {format_rate(figures.samples_per_s)} samples/s "
        f"within {format_bytes(peak_bytes(figures.peaks) or 0)}{once}."
    )
    return "baseline_does_not_fit", best.configuration, reason


def _against_baseline(
    own: Trial, tried: Sequence[Trial], facts: Facts, repeats: Sequence[Repeat], limit_bytes: int
) -> _Answer:
    if _rate(own) <= 0:
        return "undecided", None, "The baseline's samples could not be counted, so speeds can't be compared."
    baseline = facts.baseline
    candidates = finalists(tried, facts, limit_bytes, repeats)
    comparisons = compare(repeats, baseline, limit_bytes)
    may_win = {trial.configuration.key for trial in feasible_trials(tried, facts, limit_bytes, repeats)}
    failed = [one for one in comparisons if one.configuration.key not in may_win]
    told = [
        one for one in comparisons if one.configuration.key in may_win and tells(repeats, one.configuration, baseline)
    ]

    needed = least_gain(repeats, [one.configuration for one in told], baseline) if told else _SPEEDUP
    winners = [one for one in told if _is_win(one) and gain(repeats, one.configuration, baseline) >= needed]
    if winners:
        best = max(winners, key=lambda one: one.samples_per_s)
        reason = (
            f"{_name(best.configuration)} trains {best.speedup:.2f}x as many samples per second as your baseline "
            f"({_versus(best)}) within {format_bytes(limit_bytes)}."
        )
        return "winner", best.configuration, reason
    told_keys = {one.configuration.key for one in told}
    # What was slower in the search than one that turned out no faster than the baseline is not waited for.
    if candidates and candidates[0].key not in told_keys:
        return "undecided", candidates[0], _not_told(candidates[0], repeats, baseline)
    if told or failed:
        return "baseline_best", baseline, _no_win(told, failed, needed, repeats, limit_bytes)
    others = len({trial.configuration.key for trial in tried}) - 1
    if not others:
        return "baseline_best", baseline, "Your baseline stays: there was nothing else to try."
    reason = (
        f"Your baseline is already the best: of {others} other configurations tried within "
        f"{format_bytes(limit_bytes)}, none beats its {format_rate(_rate(own))} samples/s."
    )
    return "baseline_best", baseline, reason


def _not_told(configuration: Configuration, repeats: Sequence[Repeat], baseline: Configuration) -> str:
    name, rounds = _name(configuration), len(rounds_of(repeats, configuration))
    beside = len(baseline_rates(repeats, configuration, baseline))
    if not rounds:
        return f"{name} is the fastest so far, but was not measured again beside your baseline yet."
    if rounds > beside:
        return f"{name} is the fastest so far, but your baseline failed in {rounds - beside} of {rounds} rounds."
    return f"{name} is the fastest so far, but {_rounds(rounds)} beside your baseline are too few to tell."


def _no_win(
    told: Sequence[Comparison],
    failed: Sequence[Comparison],
    needed: float,
    repeats: Sequence[Repeat],
    limit_bytes: int,
) -> str:
    best = max(told or failed, key=lambda one: one.speedup)
    name, rounds = _name(best.configuration), _rounds(len(rounds_of(repeats, best.configuration)))
    if not told:
        return (
            f"Your baseline stays: {name} was faster in the search, but in {rounds} beside it did not always train "
            f"within {format_bytes(limit_bytes)}."
        )
    if best.speedup < _SPEEDUP:
        return (
            f"Your baseline is already the best: {name}, measured again in {rounds} beside it, came to "
            f"{best.speedup:.3f}x ({_versus(best)})."
        )
    return (
        f"Your baseline stays: {name} came to {best.speedup:.2f}x in {rounds} beside it ({_versus(best)}), "
        f"but rounds vary so much here that anything under {max(needed, _SPEEDUP):.2f}x may be chance."
    )


def _is_win(comparison: Comparison) -> bool:
    # 1/20 is the least p-value of three against three rounds, and has no exact binary form.
    significant = comparison.p_value <= P_VALUE * (1 + 1e-9)
    return significant and comparison.effect >= _EFFECT and comparison.speedup >= _SPEEDUP


def _rate(trial: Trial) -> float:
    return trial.measured.measurement.samples_per_s if trial.measured else 0.0


def _peak(trial: Trial) -> int | None:
    return peak_bytes(trial.measured.measurement.peaks) if trial.measured else None


def _least_seen(tried: Sequence[Trial]) -> str:
    peaks = {peak: trial for trial in tried if (peak := _peak(trial)) is not None}
    if not peaks:
        return ""
    least = min(peaks)
    return f"; the least seen was {format_bytes(least)}, of {_name(peaks[least].configuration)}"


def _name(configuration: Configuration) -> str:
    plans = configuration.recomputed
    compiled = ENGINES[configuration.engine].in_verdict
    if configuration.choices:
        compiled += f", {' '.join(configuration.choices)}"
    if configuration.batch_size is None:
        return f"{plans or 'the script without plans'}{compiled}"
    at = f"batch {configuration.batch_size}"
    return f"{plans} at {at}{compiled}" if plans else f"{at} without plans{compiled}"


def _versus(comparison: Comparison) -> str:
    return f"{format_rate(comparison.samples_per_s)} vs {format_rate(comparison.baseline_samples_per_s)} samples/s"


def _rounds(count: int) -> str:
    return f"{count} round{'s' if count != 1 else ''}"
