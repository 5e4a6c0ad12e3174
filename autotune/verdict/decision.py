"""The answer of a study, decided by its trials and the finalists' rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from .contention import may_be_faster
from .finalists import awaited, baseline_is_finite, baseline_trial, feasible_trials, finalists, to_confirm
from .offers import allocator_offer
from .rounds import compare
from .search_end import NOTHING_BELIEVED

__all__ = ["allowed", "decide", "nothing_else_tells"]

_Kind = Literal["winner", "baseline_best", "baseline_does_not_fit", "nothing_fits", "undecided"]
_Answer = tuple[_Kind, Configuration | None, str]


def decide(
    record: StudyRecord,
    limit_bytes: int,
    stop_reason: str,
    *,
    cut_short: str = "",
    num_configurations: int = 0,
    believed_per_s: Mapping[str, float] = NOTHING_BELIEVED,
    may_win: Callable[[Configuration], bool] = lambda _: True,
) -> Verdict:
    """Decide a study by its trials and the finalists' rounds.

    A finalist wins if the rounds show that it is better (``sequential.judge``), and if it never failed, thrashed or
    passed the limit. Better is what the objective says; where that is less memory, they have to show as well that it is
    no more slower than it may be. Of several the best wins.

    An ``undecided`` study names as winner what was best so far, unconfirmed. That is the baseline where a search that
    was cut short found nothing better: only one that ended by itself says that there is nothing.

    Args:
        record: The study with all rounds that were measured.
        limit_bytes: The memory limit, of runs.
        stop_reason: Why the search ended, as ``SearchEnd.reason``.
        cut_short: What cut it short, as ``SearchEnd.cut_short``.
        num_configurations: How many settings it could choose from.
        believed_per_s: What it expects of those that it has measured, as ``SearchEnd.believed_per_s``.
        may_win: False of those whose proof failed.
    """
    facts, seen = record.facts, [trial for trial in record.trials if trial.outcome is not None]
    record = allowed(record, may_win)
    tried = [trial for trial in seen if may_win(trial.configuration)]
    aim = Aim(record.spec.objective, limit_bytes, () if facts is None else facts.clusters)
    answer: _Answer
    if facts is None or not tried:
        answer = "undecided", None, "Nothing was measured yet."
    else:
        feasible = feasible_trials(tried, facts, aim, record.repeats)
        own = next((trial for trial in feasible if trial.configuration.key == facts.baseline.key), None)
        failed = sum(trial.measured is None for trial in tried)
        if own is not None and nothing_else_tells(seen, facts) and (failed or cut_short):
            answer = "undecided", None, sentences.only_the_baseline(own, failed, cut_short)
        elif own is not None:
            scope = sentences.scope_of(tried, facts, num_configurations, cut_short)
            answer = _against_baseline(record, facts, own, tried, aim, scope, believed_per_s)
        elif baseline_trial(tried, facts) is None:
            answer = "undecided", None, "The baseline was not measured yet."
        else:
            answer = _without_baseline(record, feasible, facts, aim)
    kind, winner, reason = answer
    reason = reason[:1].upper() + reason[1:]
    comparisons = () if facts is None else compare(record.repeats, facts.baseline, aim, record.spec.finalist_rounds)
    if winner is not None:
        its_own = [one for one in comparisons if one.configuration.key == winner.key]
        doubts = [
            sentences.busy(record, its_own or comparisons, aim),
            sentences.throttled(record),
            sentences.unsearched(record),
        ]
        reason = " ".join(filter(None, [reason, *doubts]))
    if offer := allocator_offer(record, aim):
        reason = f"{reason} {offer}"
    if facts is not None and not baseline_is_finite(tried, facts):
        reason = f"{reason} {sentences.not_finite()}"
    return Verdict(kind, winner, reason, stop_reason, limit_bytes, comparisons)


def allowed(record: StudyRecord, may_win: Callable[[Configuration], bool]) -> StudyRecord:
    """The study without the trials and rounds of configurations that may not win."""
    return replace(
        record,
        trials=tuple(one for one in record.trials if may_win(one.configuration)),
        repeats=tuple(one for one in record.repeats if may_win(one.configuration)),
    )


def nothing_else_tells(tried: Sequence[Trial], facts: Facts) -> bool:
    """Tell whether all trials but the baseline's failed, and not for memory, which would say that they do not fit."""
    telling = (Measured, OutOfMemory, HostOutOfMemory)
    return not any(isinstance(t.outcome, telling) and t.configuration.key != facts.baseline.key for t in tried)


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


def _against_baseline(
    record: StudyRecord,
    facts: Facts,
    own: Trial,
    tried: Sequence[Trial],
    aim: Aim,
    scope: str,
    believed_per_s: Mapping[str, float],
) -> _Answer:
    if not own.measured or own.measured.measurement.samples_per_s <= 0:
        return "undecided", None, "The baseline's samples could not be counted, so speeds can't be compared."
    baseline, repeats, most_rounds = facts.baseline, record.repeats, record.spec.finalist_rounds
    compared = compare(repeats, baseline, aim, most_rounds)
    winners = [one for one in compared if one.is_win]
    if winners:
        best = max(winners, key=aim.ratio)
        return "winner", best.configuration, sentences.winner(best, aim)
    chosen = to_confirm(tried, facts, aim, repeats, most_rounds=most_rounds, believed_per_s=believed_per_s)
    untold = awaited(chosen, tried, aim, repeats, compared)
    comparison = next((one for one in compared if untold is not None and one.configuration.key == untold.key), None)
    fastest = finalists(tried, facts, aim, repeats, most_rounds=most_rounds)[:1]
    if untold is not None and fastest:
        is_best = untold.key == fastest[0].key
        return "undecided", untold, sentences.not_told(untold, comparison, repeats, aim, is_best=is_best)
    if untold is not None and comparison is None:
        beside = own.measured.measurement
        held_back = next(
            one
            for one in tried
            if one.configuration.key == untold.key and one.measured and may_be_faster(one.measured.measurement, beside)
        )
        return "undecided", baseline, sentences.doubtful(held_back, own, aim, scope)
    is_open = bool(scope) or any(one.is_open for one in compared)
    kind: _Kind = "undecided" if is_open else "baseline_best"
    if compared:
        return kind, baseline, sentences.no_win(compared, aim, scope)
    return kind, baseline, sentences.nothing_better(own, tried, aim, scope, knows_plans=facts.knows_plans)
