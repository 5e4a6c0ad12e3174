"""The answer of a study, decided by its trials and the finalists' rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from ..records import (
    Configuration,
    Facts,
    HostOutOfMemory,
    Measured,
    OutOfMemory,
    StudyRecord,
    Trial,
    Verdict,
)
from ..records.figures import figures_of, peak_bytes, rounds_of
from . import sentences
from .aim import Aim
from .finalists import baseline_trial, feasible_trials, finalists
from .rounds import LEAST_GAIN, compare, gain, is_lost, is_win, least_gain, tells

__all__ = ["allowed", "decide"]

_Kind = Literal["winner", "baseline_best", "baseline_does_not_fit", "nothing_fits", "undecided"]
_Answer = tuple[_Kind, Configuration | None, str]


def decide(
    record: StudyRecord,
    limit_bytes: int,
    stop_reason: str,
    *,
    may_win: Callable[[Configuration], bool] = lambda _: True,
) -> Verdict:
    """Decide a study by its trials and the finalists' rounds.

    A finalist wins if in the rounds it was at least 1 % better (medians), better in nine of ten pairs, significantly
    so in a one-sided rank test at 0.05, and by more than the spread of the rounds makes likely by accident; and if it
    never failed, thrashed or passed the limit. Better is what the objective says. Where that is less memory, a rank
    test at 0.05 has to show as well that it is no more slower than it may be. Of several the best wins.

    An ``undecided`` study names as winner what was best so far, unconfirmed.

    Args:
        record: The study with all rounds that were measured.
        limit_bytes: The memory limit, of runs.
        stop_reason: Why the search ended, as ``Search.stop_reason``.
        may_win: False of those whose proof failed.
    """
    facts, seen = record.facts, [trial for trial in record.trials if trial.outcome is not None]
    record = allowed(record, may_win)
    tried = [trial for trial in seen if may_win(trial.configuration)]
    aim = Aim(record.spec.objective, limit_bytes)
    answer: _Answer
    if facts is None or not tried:
        answer = "undecided", None, "Nothing was measured yet."
    else:
        feasible = feasible_trials(tried, facts, aim, record.repeats)
        own = next((trial for trial in feasible if trial.configuration.key == facts.baseline.key), None)
        if own is not None and _nothing_else_tells(seen, facts) and _has_alternatives(record, facts):
            answer = "undecided", None, sentences.only_the_baseline(own, tried)
        elif own is not None:
            answer = _against_baseline(record, facts, own, tried, aim)
        elif baseline_trial(tried, facts) is None:
            answer = "undecided", None, "The baseline was not measured yet."
        else:
            answer = _without_baseline(record, feasible, facts, aim)
    kind, winner, reason = answer
    comparisons = () if facts is None else compare(record.repeats, facts.baseline, aim)
    return Verdict(kind, winner, reason, stop_reason, limit_bytes, comparisons)


def allowed(record: StudyRecord, may_win: Callable[[Configuration], bool]) -> StudyRecord:
    """The study without the trials and rounds of configurations that may not win."""
    return replace(
        record,
        trials=tuple(one for one in record.trials if may_win(one.configuration)),
        repeats=tuple(one for one in record.repeats if may_win(one.configuration)),
    )


def _is_told(record: StudyRecord, configuration: Configuration, baseline: Configuration, aim: Aim) -> bool:
    """Whether a finalist's rounds are enough, for or against it."""
    if tells(record.repeats, configuration, baseline):
        return True
    return is_lost(record.repeats, configuration, baseline, aim, record.spec.finalist_rounds)


def _nothing_else_tells(tried: Sequence[Trial], facts: Facts) -> bool:
    """Whether all trials but the baseline's failed, and not for memory, which would say that they do not fit."""
    telling = (Measured, OutOfMemory, HostOutOfMemory)
    return not any(isinstance(t.outcome, telling) and t.configuration.key != facts.baseline.key for t in tried)


def _has_alternatives(record: StudyRecord, facts: Facts) -> bool:
    """Whether anything but the baseline can be tried at all."""
    has_plans = bool(facts.clusters) and record.spec.engine != "eager"
    return facts.batch_control.how != "none" or has_plans or bool(record.spec.choices)


def _without_baseline(record: StudyRecord, feasible: Sequence[Trial], facts: Facts, aim: Aim) -> _Answer:
    own = baseline_trial(record.trials, facts)
    if not feasible:
        return "nothing_fits", None, sentences.nothing_fits(record, own, aim)
    configurations = [trial.configuration for trial in feasible]
    found = {one.key: figures for one in configurations if (figures := figures_of(record, one)) is not None}
    fastest_per_s = max(figures.samples_per_s for figures in found.values())
    fast = [one for one in configurations if found[one.key].samples_per_s >= aim.slowest * fastest_per_s]
    # A single trial may have been lucky: what was measured again, and most often, goes before what was not.
    best = max(
        fast,
        key=lambda one: (
            len(rounds_of(record.repeats, one)),
            aim.merit(found[one.key].samples_per_s, peak_bytes(found[one.key].peaks)),
        ),
    )
    return "baseline_does_not_fit", best, sentences.baseline_does_not_fit(record, own, best, fastest_per_s, aim)


def _against_baseline(record: StudyRecord, facts: Facts, own: Trial, tried: Sequence[Trial], aim: Aim) -> _Answer:
    if not own.measured or own.measured.measurement.samples_per_s <= 0:
        return "undecided", None, "The baseline's samples could not be counted, so speeds can't be compared."
    baseline, repeats = facts.baseline, record.repeats
    candidates = finalists(tried, facts, aim, repeats)
    comparisons = compare(repeats, baseline, aim)
    may_win = {trial.configuration.key for trial in feasible_trials(tried, facts, aim, repeats)}
    failed = [one for one in comparisons if one.configuration.key not in may_win]
    told = [
        one
        for one in comparisons
        if one.configuration.key in may_win and _is_told(record, one.configuration, baseline, aim)
    ]
    needed = least_gain(repeats, [one.configuration for one in told], baseline, aim) if told else LEAST_GAIN
    winners = [one for one in told if is_win(one, aim) and gain(repeats, one.configuration, baseline, aim) >= needed]
    if winners:
        best = max(winners, key=aim.ratio)
        return "winner", best.configuration, sentences.winner(best, aim)
    told_keys = {one.configuration.key for one in told}
    # What was worse in the search than one that turned out no better than the baseline is not waited for, unless its
    # rounds have begun.
    untold = [one for one in candidates if one.key not in told_keys]
    awaited = next((one for one in untold if one is candidates[0] or rounds_of(repeats, one)), None)
    if awaited is not None:
        return "undecided", awaited, sentences.not_told(awaited, repeats, baseline, aim)
    if told or failed:
        return "baseline_best", baseline, sentences.no_win(told, failed, needed, repeats, aim)
    return "baseline_best", baseline, sentences.nothing_better(own, tried, aim)
