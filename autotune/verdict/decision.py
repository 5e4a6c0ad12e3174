"""The answer of a study, decided by its trials and the finalists' repetitions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from ..records.configuration import Configuration
from ..records.facts import Facts
from ..records.study import AnswerKind, Remark, StudyRecord, Trial, Verdict
from ..records.study_results import figures_of, repetitions_of
from . import sentences
from .aim import Aim, batch_size_stays, plans_may_help
from .contention import may_be_faster, times_as_fast_alone
from .finalists import (
    awaited,
    baseline_is_finite,
    baseline_trial,
    feasible_trials,
    finalists,
    is_unsure,
    num_chances_passed,
    to_confirm,
)
from .idle_memory import idle_memory_offer
from .repetitions import compare
from .search_end import NOTHING_BELIEVED, Believed

# A best that is slower than the script by more than measurements scatter. A judgement.
_MUCH_SLOWER = 0.8
# What it may cost to fit at all: recomputing everything takes a step half as long again, and smaller batches some more.
# A judgement.
_LEAST_FOR_MEMORY = 0.5


class _Answer(NamedTuple):
    """An answer with its first remark."""

    kind: AnswerKind
    winner: Configuration | None
    reason: Remark
    remark: Remark | None = None
    is_drowned: bool = False


def decide(
    record: StudyRecord,
    limit_bytes: int,
    stop_reason: str,
    *,
    cut_short: str = "",
    num_configurations: int = 0,
    believed: Believed = NOTHING_BELIEVED,
    may_win: Callable[[Configuration], bool] = lambda _: True,
) -> Verdict:
    """Decide a study by its trials and the finalists' repetitions.

    A finalist wins if the repetitions show that it is better by the objective (``sequential.judge``), and if it never
    failed, thrashed or passed the limit. Of several the best wins. An ``undecided`` study names as winner what was best
    so far, unconfirmed. That is the baseline where a search that was cut short found nothing better: only one that
    ended by itself says that there is nothing. It is the baseline as well, or nothing where that does not fit, where
    other programs slowed down all that was measured of the best.

    ``may_win`` is False of those whose proof failed; the end of the search is told as ``SearchEnd`` has it.
    """
    facts, seen = record.facts, [trial for trial in record.trials if trial.outcome is not None]
    assert facts is not None, "nothing is decided before discovery"
    whole, record = record, allowed(record, may_win)
    tried = [trial for trial in seen if may_win(trial.configuration)]
    aim = Aim(record.spec.objective, limit_bytes, facts.clusters)
    if not tried:
        answer = _Answer("undecided", None, sentences.NOTHING_MEASURED)
    else:
        feasible = feasible_trials(tried, facts, aim, record.repeats)
        own = next((trial for trial in feasible if trial.configuration.key == facts.baseline.key), None)
        failed = sum(trial.measured is None for trial in tried)
        if own is not None and nothing_else_tells(seen, facts) and (failed or cut_short):
            busy = not failed and own.measured is not None and own.measured.contended
            remark = sentences.TOO_BUSY if busy else None
            answer = _Answer("undecided", None, sentences.only_the_baseline(own, failed, cut_short), remark, busy)
        elif own is not None:
            scope = sentences.scope_of(tried, facts, num_configurations, cut_short)
            answer = _against_baseline(record, facts, own, tried, aim, scope, believed, is_alone=len(seen) == 1)
        elif baseline_trial(tried, facts) is None:
            answer = _Answer("undecided", None, sentences.BASELINE_NOT_MEASURED)
        else:
            answer = _without_baseline(record, feasible, facts, aim, believed)
    if answer.winner is not None and _is_drowned(record, facts, answer, aim):
        told = sentences.slowed_down(answer.winner, aim)
        fits = answer.kind != "baseline_does_not_fit"
        answer = _Answer("undecided", facts.baseline if fits else None, told, answer.remark, is_drowned=True)
    kind, winner, reason, remark, is_drowned = answer
    remarks = [remark]
    comparisons = compare(record.repeats, facts.baseline, aim, record.spec.finalist_repetitions)
    if winner is not None and not is_drowned:
        its_own = [one for one in comparisons if one.configuration.key == winner.key]
        remarks += [
            sentences.busy(record, its_own or comparisons, aim),
            sentences.throttled(record),
            sentences.unsearched(record),
            sentences.whole_epochs(record, its_own[0]) if kind == "winner" and not aim.seeks_memory else None,
        ]
    if winner is not None:
        remarks.append(_better_trial(record, facts, answer, aim, believed))
    fits = winner is not None and kind != "baseline_does_not_fit"
    remarks += [sentences.unequal_ranks(whole), sentences.batch_size_left_alone(whole, facts)]
    if facts.clusters and not plans_may_help(whole, facts, baseline_fits=fits):
        remarks.append(sentences.PLANS_NOT_SEARCHED)
    remarks.append(idle_memory_offer(record, aim))
    if not baseline_is_finite(tried, facts):
        remarks.append(sentences.NOT_FINITE)
    said = tuple(one for one in remarks if one is not None)
    return Verdict(kind, winner, reason, stop_reason, limit_bytes, comparisons, remarks=said, is_drowned=is_drowned)


def _is_drowned(record: StudyRecord, facts: Facts, answer: _Answer, aim: Aim) -> bool:
    """Tell whether other programs may have slowed the best down so much that nobody would take it for the best."""
    kind, best = answer.kind, answer.winner
    if aim.seeks_memory or best is None or best.key == facts.baseline.key:
        return False
    repetitions = repetitions_of(record.repeats, best)
    own = baseline_trial(record.trials, facts)
    # Once it was measured twice, repetitions tell, or their scatter shows.
    if (
        kind not in ("undecided", "baseline_does_not_fit")
        or len(repetitions) > 1
        or own is None
        or own.measured is None
    ):
        return False
    told = [one.outcome.measurement for one in repetitions if one.outcome.measurement]
    told = told or [one.measured for one in record.trials if one.configuration == best and one.measured]
    least = own.samples_per_s * (_MUCH_SLOWER if kind == "undecided" else _LEAST_FOR_MEMORY)
    slowest = min((one.samples_per_s for one in told), default=math.inf)
    alone = max((one.samples_per_s * times_as_fast_alone(one) for one in told), default=0.0)
    return slowest < least <= alone


def allowed(record: StudyRecord, may_win: Callable[[Configuration], bool]) -> StudyRecord:
    """Return the study without the trials and repetitions of configurations that may not win."""
    return replace(
        record,
        trials=tuple(one for one in record.trials if may_win(one.configuration)),
        repeats=tuple(one for one in record.repeats if may_win(one.configuration)),
    )


def _better_trial(record: StudyRecord, facts: Facts, answer: _Answer, aim: Aim, believed: Believed) -> Remark | None:
    """Name the best trial where it was not measured again, as it may not fit again or nothing was begun; else None."""
    best, winner = next(iter(feasible_trials(record.trials, facts, aim, record.repeats)), None), answer.winner
    if best is None or winner is None or best.configuration.key == winner.key:
        return None
    if is_unsure(best.configuration, believed, record.repeats):
        return sentences.left_out(best, aim)
    is_waiting = best.configuration in finalists(record.trials, facts, aim, record.repeats, believed=believed)
    repeats, figures = record.repeats, figures_of(record, winner)
    if answer.kind not in ("winner", "baseline_does_not_fit") or not repetitions_of(repeats, winner) or not is_waiting:
        return None
    if best.measured is None or figures is None or repetitions_of(repeats, best.configuration):
        return None
    is_better = aim.merit_of(best.measured) > aim.merit(figures.samples_per_s, figures.peaks.fit_bytes)
    return sentences.not_confirmed(best, aim, record.name) if is_better else None


def nothing_else_tells(tried: Sequence[Trial], facts: Facts) -> bool:
    """Tell whether all trials but the baseline's failed, and not for memory, which would say that they do not fit."""
    outcomes = [one.outcome for one in tried if one.outcome is not None and one.configuration.key != facts.baseline.key]
    return not any(one.measurement or one.for_memory for one in outcomes)


def _without_baseline(
    record: StudyRecord, feasible: Sequence[Trial], facts: Facts, aim: Aim, believed: Believed
) -> _Answer:
    own = baseline_trial(record.trials, facts)
    if not feasible:
        return _Answer("nothing_fits", None, sentences.nothing_fits(record, aim))
    configurations = [trial.configuration for trial in feasible]
    found = {one.key: figures for one in configurations if (figures := figures_of(record, one)) is not None}
    fastest_per_s = max(figures.samples_per_s for figures in found.values())
    fast = [one for one in configurations if found[one.key].samples_per_s >= aim.slowest * fastest_per_s]
    # A single trial may have been lucky: what was measured again, and most often, goes before what was not.
    best = max(
        fast,
        key=lambda one: (
            len(repetitions_of(record.repeats, one)),
            num_chances_passed(one, believed, record.repeats),
            aim.merit(found[one.key].samples_per_s, found[one.key].peaks.fit_bytes),
        ),
    )
    compared = compare(record.repeats, facts.baseline, aim, record.spec.finalist_repetitions)
    beside = next((one for one in compared if one.configuration.key == best.key and one.repetitions), None)
    reason = sentences.fits_instead(record, best, fastest_per_s, aim, beside)
    return _Answer("baseline_does_not_fit", best, reason, sentences.does_not_fit(own, aim, beside))


def _against_baseline(
    record: StudyRecord,
    facts: Facts,
    own: Trial,
    tried: Sequence[Trial],
    aim: Aim,
    scope: str,
    believed: Believed,
    *,
    is_alone: bool,
) -> _Answer:
    if not own.measured or own.samples_per_s <= 0:
        return _Answer("undecided", None, sentences.NOT_COUNTED)
    baseline, repeats, most_repetitions = facts.baseline, record.repeats, record.spec.finalist_repetitions
    compared = compare(repeats, baseline, aim, most_repetitions)
    winners = [one for one in compared if one.is_win]
    if winners:
        best = max(winners, key=aim.ratio)
        return _Answer("winner", best.configuration, sentences.winner(best, aim))
    chosen = to_confirm(tried, facts, aim, repeats, most_repetitions=most_repetitions, believed=believed)
    untold = awaited(chosen, tried, aim, repeats, compared)
    comparison = next((one for one in compared if untold is not None and one.configuration.key == untold.key), None)
    fastest = finalists(tried, facts, aim, repeats, most_repetitions=most_repetitions)[:1]
    if untold is not None and fastest:
        is_best = untold.key == fastest[0].key
        reason = sentences.unconfirmed(untold, comparison, aim, is_best=is_best)
        return _Answer("undecided", untold, reason, sentences.baseline_failed(repeats, baseline))
    if untold is not None and comparison is None:
        beside = own.measured
        held_back = next(
            one
            for one in tried
            if one.configuration.key == untold.key and one.measured and may_be_faster(one.measured, beside)
        )
        if all(trial.measured.contended for trial in tried if trial.measured):
            return _Answer("undecided", baseline, sentences.slowed_down(untold, aim), is_drowned=True)
        return _Answer("undecided", baseline, sentences.disturbed(held_back, own, aim, scope))
    is_open = bool(scope) or any(one.is_open for one in compared)
    kind: AnswerKind = "undecided" if is_open else "baseline_best"
    if compared:
        return _Answer(kind, baseline, sentences.no_win(compared, aim, scope))
    needs_no_plans = not plans_may_help(record, facts, baseline_fits=True)
    stays = batch_size_stays(record, facts) and not record.spec.choices and (needs_no_plans or not facts.clusters)
    knows_plans = facts.knows_plans or needs_no_plans
    if stays and knows_plans and not scope and is_alone:
        return _Answer(kind, baseline, sentences.nothing_to_try(own))
    return _Answer(kind, baseline, sentences.nothing_better(own, tried, aim, scope, knows_plans=knows_plans))
