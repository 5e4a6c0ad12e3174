"""Finalists beside the baseline: measured again in turns, decided, and the winner proven."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from ..errors import AutotuneError
from ..launch.port import RunResult
from ..launch.requests import trial_request
from ..records.chosen import engine_choices
from ..records.configuration import Configuration
from ..records.engines import Engine
from ..records.facts import Facts
from ..records.figures import figures_of, rounds_of
from ..records.plan import ALL, RECOMPUTE, Plan
from ..records.proof import Proof
from ..records.run import Verifying
from ..records.study import CompiledRun, Repeat, StudyRecord, Verdict
from ..records.words import sentence, setting_words
from ..verdict.decision import allowed, decide
from ..verdict.finalists import baseline_is_finite
from ..verdict.rounds import holds, is_beaten, next_round
from ..verdict.search_end import EVEN_CHANCE, SearchEnd
from .context import Context, proof_request
from .proving import prove


def try_compiled(context: Context, verdict: Verdict, known: CompiledRun | None) -> CompiledRun | None:
    """Run the answer's setting once more, compiled, if that was not allowed, may work, and there is time for it.

    Whatever becomes of that run, it is none of the study's: a failure is told and changes nothing.
    """
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
    """A setting under an engine that compiles, with those of its plans that have the same names there: blocks.

    Where memory may have no room for what the others save, all blocks are recomputed in their place.
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
# rounds and runs that no time was kept for.
_MOST_REFUTED = 3
# Where there is time for one final only, who is measured in it should fit in all of its processes this likely.
_LIKELY_TO_FIT = 0.8


class Finals:
    """The finals of a study."""

    def __init__(self, context: Context, search_again: Callable[[], SearchEnd]) -> None:
        self._context = context
        self._study = context.study
        self._snapshot = context.snapshot
        self._watcher = context.watcher
        self._interruption = context.interruption
        self._budget = context.budget
        self._facts = context.facts
        self._limit_bytes = context.limit_bytes
        self._aim = context.aim
        self._proofs = context.proofs
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
        """Store the verdict, and then what compiling would bring: that costs nobody the answer.

        Meanwhile another process may have measured finalists and come to another answer, which stays.
        """
        before = self._snapshot.record.verdict
        known = None if before is None else before.compiled
        self._study.set_verdict(replace(verdict, compiled=known))
        compiled = try_compiled(self._context, verdict, known)
        spent = self._context.stopwatch.spent()
        if compiled == known and verdict.spent is not None and spent.stages == verdict.spent.stages:
            return  # nothing was run
        stored = self._snapshot.refresh().verdict
        if stored is not None and replace(stored, compiled=None, spent=None) == replace(
            verdict, compiled=None, spent=None
        ):
            self._study.set_verdict(replace(verdict, compiled=compiled, spent=spent))

    def _measure(self) -> bool:
        """Measure finalists and baseline again until there is nothing to tell apart; False if another process is at it.

        A final is measured in one go: rounds of different days are not comparable. One that was cut short is begun
        anew, unless its rounds tell already. Where a round rules the best out, most often as it needed more memory than
        in its trial, the search goes on before the next one: it stopped because nothing would be better.
        """
        measured: set[str] = set()
        finals: Counter[str] = Counter()
        while True:
            self._snapshot.refresh()
            record = self._record()
            candidates = self._candidates(record)
            going = tuple(
                one for one in candidates if one.key not in measured and not self._is_measured(record, one, candidates)
            )
            if not going:
                return True
            # Where there is no baseline to hold them against, they are held against each other.
            entrants = self._entrants(record, going if self._context.baseline_fits else candidates)
            if not entrants:
                return True
            final = self._study.begin_final()
            if final is None:
                return False
            ended = self._measure_final(final, entrants)
            if ended == "interrupted":
                return True
            self._study.end_final(final)
            if ended == "moved":
                continue
            if not self._holds(going[0]) and not self._interruption.finish.is_set():
                self._search_end = self._search_again()
            repeats = self._record().repeats
            finals.update(one.key for one in entrants)
            enough = self._context.rounds
            # Nobody has more finals than rounds, or those who fail and are taken in again would go on for ever.
            measured.update(
                one.key for one in entrants if len(rounds_of(repeats, one)) >= enough or finals[one.key] >= enough
            )

    def _candidates(self, record: StudyRecord) -> tuple[Configuration, ...]:
        """Return the settings to measure again, the best first.

        Where time is too short for another final after one whose finalist did not fit, those likely to fit go first.
        """
        believed = self._search_end.believed
        candidates = self._context.candidates(record, believed)
        final_s = self._context.confirming_s(record, candidates[:1]) if candidates else 0.0
        if not self._budget.holds(final_s) or self._budget.holds(2 * final_s):
            return candidates
        believed = replace(believed, least_chances=(_LIKELY_TO_FIT, EVEN_CHANCE))
        self._search_end = replace(self._search_end, believed=believed)
        return self._context.candidates(record, believed)

    def _holds(self, candidate: Configuration) -> bool:
        """Return whether no round of a candidate has ruled it out."""
        record = self._snapshot.record
        finite = baseline_is_finite(record.trials, self._facts)
        return holds(record.repeats, candidate, self._aim, baseline_is_finite=finite)

    def _is_measured(
        self, record: StudyRecord, candidate: Configuration, candidates: tuple[Configuration, ...]
    ) -> bool:
        """Return whether more rounds of a candidate would change nothing; ``candidates`` are ``Context.candidates``.

        Rounds beside the baseline tell already; or, where there is nothing to beat, it has had them all, or they say
        with its trial that another is better.
        """
        if self._context.baseline_fits or self._context.is_told(record, candidate):
            return self._context.is_told(record, candidate)
        before = candidates[: candidates.index(candidate)]
        return any(is_beaten(record.repeats, candidate, other, self._aim) for other in before)

    def _entrants(self, record: StudyRecord, candidates: tuple[Configuration, ...]) -> tuple[Configuration, ...]:
        """Return the settings to measure in turns: the baseline, if it fits, and all candidates that there is time for.

        Too few rounds tell nothing, so none is begun unless there is time for all.
        """
        own = (self._facts.baseline,) if self._context.baseline_fits else ()
        for chosen in (candidates, candidates[:1]):
            # With the winner's proof, which there would be no time for otherwise.
            needed_s = self._context.confirming_s(record, chosen)
            if self._budget.holds(needed_s):
                return (*own, *chosen)
        if not self._interruption.finish.is_set():
            self._watcher.no_time(needed_s)
        return ()

    def _measure_final(
        self, final: int, entrants: tuple[Configuration, ...]
    ) -> Literal["whole", "moved", "interrupted"]:
        """Measure entrants in rounds, each time in a process of its own on one device; gives how it ended.

        It is whole when no round is left to tell anything, or when there is no time for another one. Where a node of a
        cluster was lost and a run has moved to another one, its rounds would compare machines.
        """
        machine: str | None = None
        context, own = self._context, self._facts.baseline
        finite = baseline_is_finite(self._snapshot.record.trials, self._facts)
        self._watcher.repeating(entrants, context.most_rounds * len(entrants))
        for number in range(context.most_rounds):
            record = self._snapshot.record
            order = next_round(
                [one for one in record.repeats if one.final == final],
                entrants,
                own,
                self._aim,
                most_rounds=context.most_rounds,
                baseline_is_finite=finite,
                seed=f"{record.spec.seed}, study {record.name}, final {final}",
            )
            if not order or (number >= context.rounds and not self._has_time(order)):
                return "whole"
            for configuration in order:
                repeat = self._measure_round(final, number, configuration)
                if repeat is None:
                    return "interrupted"
                if repeat.environment is not None:
                    machine = machine or repeat.environment.hostname
                    if repeat.environment.hostname != machine:
                        return "moved"
                self._snapshot.add_repeat(repeat)
                self._watcher.repeated(configuration, number, repeat.outcome)
                if not any(self._holds(one) for one in order if one.key != own.key):
                    return "whole"
        return "whole"

    def _has_time(self, order: tuple[Configuration, ...]) -> bool:
        """Return whether there is time for another round, which is not the first, and for a winner's proof."""
        costs, own = self._budget.costs, self._facts.baseline
        proof_s = max((costs.proof_s(one) for one in order if one.key != own.key), default=0.0)
        round_s = costs.round_s(order, forked=self._context.forked(order))
        return self._budget.holds(round_s + proof_s)

    def _measure_round(self, final: int, number: int, configuration: Configuration) -> Repeat | None:
        """Measure an entrant: in a fresh process in the first round, and later in one of the round's own fork server.

        So each entrant is seen as it will be started, and what processes of one server have in common (the layout of
        addresses, the seed of hashes) is drawn anew for each round, where it would be for each process otherwise. What
        it does to all settings alike cancels within the round, and the rest is in the scatter of the rounds.
        """
        request = trial_request(
            self._study.spec,
            self._facts,
            (configuration,),
            self._limit_bytes,
            measuring=self._context.measuring,
            may_fork=number > 0,
            server=f"round {number + 1} of final {final}",
        )
        result = self._context.run_one(request, f"final-{final}-round-{number + 1}", "rounds")
        outcome = None if result is None else result.outcomes[0]
        if result is None or outcome is None:
            return None
        return Repeat(configuration, number, outcome, result.environment, str(result.directory), final)

    def _decide(self) -> Verdict:
        record = self._snapshot.refresh()
        end = self._search_end
        verdict = decide(
            record,
            self._limit_bytes,
            end.reason,
            cut_short=end.cut_short,
            num_configurations=end.num_configurations,
            believed=end.believed,
            may_win=self._may_win,
        )
        refuted = [
            f"{self._words(one.configuration)} may not win. {one.statement}"
            for one in self._proofs
            if self._is_refuted(one)
        ]
        if len(refuted) >= _MOST_REFUTED:
            refuted.append("So nothing else that changes how the script computes may win either.")
        return replace(
            verdict,
            remarks=(*verdict.remarks, *refuted),
            comparisons=self._context.compared(record),
            proofs=tuple(self._proofs),
            needed_s=self._needed_s(verdict),
            spent=self._context.stopwatch.spent(),
        )

    def _needed_s(self, verdict: Verdict) -> float | None:
        """The time budget that a later session needs to confirm and to prove the best; None if neither is left.

        Whoever interrupts a study goes on with all of it.
        """
        if verdict.winner is None or self._interruption.finish.is_set():
            return None
        record = self._record()
        best = self._context.left_to_confirm(record, self._search_end.believed)
        if best is None and verdict.winner.key != self._facts.baseline.key:
            best = verdict.winner
        seconds = 0.0 if best is None else self._context.confirming_s(record, (best,))
        return self._budget.needed_s(seconds) if seconds else None

    def _prove(self, winner: Configuration) -> bool:
        """Compare the winner's first steps with the script's, once; True if that says that it must not win."""
        if winner.is_untouched or any(one.configuration.key == winner.key for one in self._proofs):
            return False  # the script's own operations, or known
        if not self._budget.holds(self._budget.costs.proof_s(winner)):
            return False
        self._watcher.proving(winner)
        own = self._facts.baseline.batch_size
        error = self._study.spec.max_error
        proof = prove(winner, self._start_proof, script_batch_size=own, max_error=error)
        if proof is None:
            return False
        self._watcher.proved(proof)
        self._proofs.append(proof)
        return self._is_refuted(proof)

    def _start_proof(self, name: str, configuration: Configuration, verifying: Verifying) -> RunResult | None:
        request = proof_request(self._study.spec, self._facts, configuration, verifying)
        return self._context.run_one(request, name, "proof")

    def _words(self, configuration: Configuration) -> str:
        """The setting as a sentence begins with it."""
        return sentence(setting_words(configuration, self._facts.clusters))

    @staticmethod
    def _is_refuted(proof: Proof) -> bool:
        return proof.answer == "inexact"

    def _record(self) -> StudyRecord:
        """The study without what may not win because its proof failed."""
        return allowed(self._snapshot.record, self._may_win)

    def _may_win(self, configuration: Configuration) -> bool:
        refuted = {one.configuration.key for one in self._proofs if self._is_refuted(one)}
        if len(refuted) >= _MOST_REFUTED:
            return configuration.is_untouched
        return configuration.key not in refuted
