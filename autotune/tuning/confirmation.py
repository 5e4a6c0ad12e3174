"""Finalists beside the baseline: measured again in turns, decided, and the winner proven."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from ..errors import AutotuneError
from ..launch.port import RunResult
from ..launch.requests import trial_request
from ..records.choices import engine_choices
from ..records.configuration import Configuration
from ..records.engines import Engine
from ..records.facts import Facts
from ..records.plan import ALL, RECOMPUTE, Plan
from ..records.proof import Proof
from ..records.run import Verifying
from ..records.study import CompiledRun, Repeat, StudyRecord, Verdict
from ..records.study_results import as_measured, figures_of, repetitions_of
from ..verdict.decision import allowed, decide
from ..verdict.finalists import baseline_is_finite
from ..verdict.repetitions import holds, is_beaten, next_repetition
from ..verdict.search_end import EVEN_CHANCE, SearchEnd
from ..verdict.sentences import NONE_EQUIVALENT, not_equivalent
from .context import Context, memory_of, proof_request
from .proving import prove


def try_compiled(context: Context, verdict: Verdict, known: CompiledRun | None) -> CompiledRun | None:
    """Run the answer's setting once more, compiled, if that was not allowed, may work, and there is time for it."""
    spec, facts, costs, answer = context.study.spec, context.facts, context.budget.costs, verdict.winner
    if answer is None or verdict.kind_of_answer == "undecided" or verdict.needed_s is not None:
        return None
    if known is not None and known.answer.key == answer.key:
        return known
    offered = (one for one in engine_choices(spec.engine).values() if one.name not in spec.choices)
    choice = next((one for one in offered if not one.refusal_for(facts)), None)
    if choice is None or not context.budget.holds(costs.compiled_s(answer, choice.engine)):
        return None
    figures = figures_of(context.snapshot.record, answer)
    room_bytes = context.aim.limit_bytes - ((figures.peaks.fit_bytes if figures else None) or 0)
    configuration = compiled_setting(answer, choice.engine, facts, room_bytes)
    context.watcher.compiling(configuration)
    # As in a trial no kernels are searched, which takes minutes.
    request = trial_request(
        spec, facts, (configuration,), context.limit_bytes, measuring=context.measuring, kernel_search=False
    )
    try:
        result = context.run_one(request, "compiled", "compiled")
    except AutotuneError as error:
        context.watcher.compiled(configuration, None, reason=str(error))
        return None
    outcome = None if result is None else result.outcomes[0]
    is_stopped = context.interruption.finish.is_set()
    reason = "the study was stopped" if is_stopped else "that run took longer than the time that was left"
    context.watcher.compiled(configuration, outcome, reason=reason)
    return None if outcome is None else CompiledRun(choice.name, answer, configuration, outcome)


def compiled_setting(answer: Configuration, engine: Engine, facts: Facts, room_bytes: int) -> Configuration:
    """Return a setting under an engine that compiles, with its plans for blocks, which have the same names there.

    Where memory may have no room for what the other plans save, all blocks are recomputed in their place.
    """
    rows = {(row.cluster_id, row.strategy): row for row in facts.clusters}
    found = [(plan, rows.get((plan.cluster, plan.strategy))) for plan in answer.plans]
    blocks = [plan for plan, row in found if row is not None and row.is_layer]
    others = [(plan.applies_to(row.frequency) / row.frequency, row) for plan, row in found if row and not row.is_layer]
    own = facts.baseline.batch_size
    scale = answer.batch_size / own if own and answer.batch_size else 1.0
    if scale * sum(share * row.saving_bytes for share, row in others) > room_bytes:
        layers = sorted((row for row in facts.clusters if row.is_layer), key=lambda row: -row.saving_bytes)
        largest = [Plan(row.cluster_id, RECOMPUTE, ALL) for row in layers[:1]]
        blocks = [Plan(plan.cluster, plan.strategy, ALL) for plan in blocks] or largest
    return replace(answer, engine=engine, plans=tuple(blocks))


# After so many proofs that failed, nothing else that needs one may win: the next would fail as well, and each takes
# repetitions and runs that no time was kept for.
_MOST_REFUTED = 3
# Where there is time for one confirmation only, who is measured in it should fit in all of its processes this likely.
_LIKELY_TO_FIT = 0.8


class Confirmation:
    """The confirmation of a study's answer."""

    def __init__(self, context: Context, search_again: Callable[[], SearchEnd]) -> None:
        self._context = context
        self._search_again = search_again
        self._search_end = SearchEnd("")

    def conclude(self, search_end: SearchEnd) -> None:
        """Measure the finalists again, decide, and prove the winner; one whose proof fails leaves its place to others.

        The verdict is stored unless another process measures finalists of this study. If there is time, what compiling
        would bring is tried once then.
        """
        self._search_end = search_end
        while True:
            is_ours = self._measure()
            verdict = self._decide()
            if not is_ours or verdict.winner is None or not self._prove(verdict.winner):
                break
        if is_ours:
            self._tell(self._decide())

    def _tell(self, verdict: Verdict) -> None:
        """Store the verdict, and then what compiling would bring, unless another process has changed the verdict."""
        before = self._context.snapshot.record.verdict
        known = None if before is None else before.compiled
        self._context.study.set_verdict(replace(verdict, compiled=known))
        compiled = try_compiled(self._context, verdict, known)
        spent = self._context.stopwatch.spent()
        if compiled == known and verdict.spent is not None and spent.stages == verdict.spent.stages:
            return  # nothing was run
        stored = self._context.snapshot.refresh().verdict
        plain = replace(verdict, compiled=None, spent=None)
        if stored is not None and replace(stored, compiled=None, spent=None) == plain:
            self._context.study.set_verdict(replace(verdict, compiled=compiled, spent=spent))

    def _measure(self) -> bool:
        """Measure finalists and baseline again until there is nothing to tell apart; False if another process is at it.

        A confirmation that was cut short is begun anew, unless its repetitions tell already: repetitions of different
        days are not comparable. Where a repetition rules the best out, the search goes on before the next confirmation.
        """
        measured: set[str] = set()
        confirmations: Counter[str] = Counter()
        while True:
            self._context.snapshot.refresh()
            record = self._record()
            candidates = self._candidates(record)
            going = tuple(
                one for one in candidates if one.key not in measured and not self._is_measured(record, one, candidates)
            )
            if not going:
                return True
            entrants = self._entrants(record, going, candidates)
            if not entrants:
                return True
            confirmation = self._context.study.begin_confirmation()
            if confirmation is None:
                return False
            ended = self._measure_confirmation(confirmation, entrants)
            if ended == "interrupted":
                return True
            self._context.study.end_confirmation(confirmation)
            if ended == "moved":
                continue
            if not self._holds(going[0]) and not self._context.interruption.finish.is_set():
                self._search_end = self._search_again()
            repeats, enough = self._record().repeats, self._context.repetitions
            confirmations.update(one.key for one in entrants)
            # Nobody has more confirmations than repetitions, or those who fail and are taken in again would go on for
            # ever.
            measured.update(
                one.key
                for one in entrants
                if len(repetitions_of(repeats, one)) >= enough or confirmations[one.key] >= enough
            )

    def _candidates(self, record: StudyRecord) -> tuple[Configuration, ...]:
        """Return the settings to measure again, the best first; with time for one confirmation, those likely to fit."""
        believed = self._search_end.believed
        record = self._context.confirmable(record, believed)
        candidates = self._context.candidates(record, believed)
        confirmation_s = self._context.confirming_s(record, candidates[:1]) if candidates else 0.0
        if not self._context.budget.holds(confirmation_s) or self._context.budget.holds(2 * confirmation_s):
            return candidates
        believed = replace(believed, least_chances=(_LIKELY_TO_FIT, EVEN_CHANCE))
        self._search_end = replace(self._search_end, believed=believed)
        return self._context.candidates(record, believed)

    def _holds(self, candidate: Configuration) -> bool:
        record = self._context.snapshot.record
        finite = baseline_is_finite(record.trials, self._context.facts)
        return holds(record.repeats, candidate, self._context.aim, baseline_is_finite=finite)

    def _is_measured(
        self, record: StudyRecord, candidate: Configuration, candidates: tuple[Configuration, ...]
    ) -> bool:
        """Return whether more repetitions of one of the ``Context.candidates`` would change nothing."""
        if self._context.baseline_fits or self._context.is_told(record, candidate):
            return self._context.is_told(record, candidate)
        # With nothing to beat, repetitions tell as well that a better candidate is ahead.
        before = candidates[: candidates.index(candidate)]
        return any(is_beaten(record.repeats, candidate, other, self._context.aim) for other in before)

    def _entrants(
        self, record: StudyRecord, going: tuple[Configuration, ...], candidates: tuple[Configuration, ...]
    ) -> tuple[Configuration, ...]:
        """Return the settings to measure next for the candidates still ``going``; none where time is too short."""
        choices = [going, going[:1]]
        if not self._context.baseline_fits:
            # With no baseline to hold them against, candidates are held against each other, or the best is alone.
            choices = [candidates, candidates[:1]] if going[0] == candidates[0] else [candidates]
        for chosen in choices:
            needed_s = self._context.confirming_s(record, chosen)
            if self._context.budget.holds(needed_s):
                return self._context.entrants(record, chosen)
        is_confirmed = any(self._context.is_told(record, one) for one in candidates)
        if not is_confirmed and not self._context.interruption.finish.is_set():
            self._context.watcher.no_time(needed_s)
        return ()

    def _measure_confirmation(
        self, confirmation: int, entrants: tuple[Configuration, ...]
    ) -> Literal["whole", "moved", "interrupted"]:
        """Measure entrants in repetitions, each time in a process of its own on one device; return how it ended.

        It is whole when no repetition is left to tell anything, or when there is no time for another one. It is moved
        where a run got another node of a cluster: its repetitions would compare machines.
        """
        machine: str | None = None
        context, own = self._context, self._context.facts.baseline
        finite = baseline_is_finite(context.snapshot.record.trials, context.facts)
        context.watcher.repeating(entrants, context.most_repetitions * len(entrants))
        for number in range(context.most_repetitions):
            record = context.snapshot.record
            order = next_repetition(
                [one for one in record.repeats if one.confirmation == confirmation],
                entrants,
                own,
                context.aim,
                most_repetitions=context.most_repetitions,
                baseline_is_finite=finite,
                baseline_fits=context.baseline_fits,
                seed=f"{record.spec.seed}, study {record.name}, confirmation {confirmation}",
            )
            if not order or (number >= context.repetitions and not self._has_time(order)):
                return "whole"
            for configuration in order:
                repeat = self._measure_repetition(confirmation, number, configuration)
                if repeat is None:
                    return "interrupted"
                if repeat.environment is not None:
                    machine = machine or repeat.environment.hostname
                    if repeat.environment.hostname != machine:
                        return "moved"
                context.snapshot.add_repeat(repeat)
                context.watcher.repeated(configuration, number, repeat.outcome)
                if not any(self._holds(one) for one in order if one.key != own.key):
                    return "whole"
        return "whole"

    def _has_time(self, order: tuple[Configuration, ...]) -> bool:
        costs, own = self._context.budget.costs, self._context.facts.baseline
        proof_s = max((costs.proof_s(one) for one in order if one.key != own.key), default=0.0)
        repetition_s = costs.repetition_s(order, forked=self._context.forked(order))
        return self._context.budget.holds(repetition_s + proof_s)

    def _measure_repetition(self, confirmation: int, number: int, configuration: Configuration) -> Repeat | None:
        """Measure an entrant: in a fresh process first, and in later repetitions in one of a fork server of their own.

        Processes of one server share the layout of addresses and the seed of hashes. Each repetition draws both anew,
        and each heap in it.
        A baseline that passes the limit is measured without it, for its figures beside the others'.
        """
        context = self._context
        is_over = not context.baseline_fits and configuration.key == context.facts.baseline.key
        request = trial_request(
            context.study.spec,
            context.facts,
            (configuration,),
            memory_of(context.facts.environment) if is_over else context.limit_bytes,
            measuring=context.measuring,
            may_fork=number > 0,
            server=f"repetition {number + 1} of confirmation {confirmation}",
        )
        result = context.run_one(request, f"confirmation-{confirmation}-repetition-{number + 1}", "confirmation")
        outcome = None if result is None else result.outcomes[0]
        if result is None or outcome is None:
            return None
        return Repeat(configuration, number, outcome, result.environment, str(result.directory), confirmation)

    def _decide(self) -> Verdict:
        record = self._context.snapshot.refresh()
        end = self._search_end
        verdict = decide(
            record,
            self._context.limit_bytes,
            end.reason,
            cut_short=end.cut_short,
            num_configurations=end.num_configurations,
            believed=end.believed,
            may_win=self._may_win,
        )
        refuted = [not_equivalent(one, self._context.facts.clusters) for one in self._refuted()]
        if len(refuted) >= _MOST_REFUTED:
            refuted.append(NONE_EQUIVALENT)
        return replace(
            verdict,
            remarks=(*verdict.remarks, *refuted),
            comparisons=self._context.compared(record),
            proofs=tuple(self._context.proofs),
            needed_s=self._needed_s(verdict),
            spent=self._context.stopwatch.spent(),
        )

    def _needed_s(self, verdict: Verdict) -> float | None:
        """Return the time budget that a later session needs to confirm and prove the best; None if that is done."""
        if verdict.winner is None or self._context.interruption.finish.is_set():
            return None
        record = self._record()
        is_told = self._context.is_told(record, verdict.winner)
        best = None if is_told else self._context.left_to_confirm(record, self._search_end.believed)
        if best is None and verdict.winner.key != self._context.facts.baseline.key:
            best = verdict.winner
        seconds = 0.0 if best is None else self._context.confirming_s(record, (best,))
        return self._context.budget.needed_s(seconds) if seconds else None

    def _prove(self, winner: Configuration) -> bool:
        """Compare the winner's first steps with the script's, once; return whether it must not win."""
        context = self._context
        if winner.is_untouched or any(one.configuration.key == winner.key for one in context.proofs):
            return False  # the script's own operations, or known
        if not context.budget.holds(context.budget.costs.proof_s(winner)):
            return False
        context.watcher.proving(winner)

        def start(name: str, configuration: Configuration, verifying: Verifying) -> RunResult | None:
            proved = as_measured(context.snapshot.record, configuration)
            request = proof_request(context.study.spec, context.facts, proved, verifying)
            return context.run_one(request, name, "proof")

        own, max_error = context.facts.baseline.batch_size, context.study.spec.max_error
        proof = prove(winner, start, script_batch_size=own, max_error=max_error)
        if proof is None:
            return False
        context.watcher.proved(proof)
        context.proofs.append(proof)
        return proof.answer == "inexact"

    def _refuted(self) -> list[Proof]:
        return [one for one in self._context.proofs if one.answer == "inexact"]

    def _record(self) -> StudyRecord:
        """Return the study's record without settings whose proof failed."""
        return allowed(self._context.snapshot.record, self._may_win)

    def _may_win(self, configuration: Configuration) -> bool:
        refuted = {one.configuration.key for one in self._refuted()}
        if len(refuted) >= _MOST_REFUTED:
            return configuration.is_untouched
        return configuration.key not in refuted
