"""Finalists beside the baseline: measured again in turns, decided, and the winner proven."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from ..launch import RunResult, trial_request, verify_request
from ..records import Configuration, Measured, Outcome, Proof, Repeat, StudyRecord, Verdict, Verifying
from ..records.figures import rounds_of
from ..search import (
    allowed,
    baseline_is_finite,
    compare,
    decide,
    feasible_trials,
    finalists,
    holds,
    is_beaten,
    is_lost,
    tells,
)
from .context import Context, memory_limit
from .proving import PROOF_RUNS, prove

__all__ = ["Finals"]

# After so many proofs that failed, nothing else that needs one may win: the next would fail as well, and each takes
# rounds and runs that no time was kept for.
_MOST_REFUTED = 3


class Finals:
    """The finals of a study.

    Args:
        context: The study at work.
        proofs: Those of earlier sessions that had an answer.
        search_again: Goes on with the search, and gives the reason for its end.
    """

    def __init__(self, context: Context, proofs: list[Proof], search_again: Callable[[], str]) -> None:
        self._context = context
        self._study = context.study
        self._watcher = context.watcher
        self._interruption = context.interruption
        self._budget = context.budget
        self._facts = context.facts
        self._limit_bytes = context.limit_bytes
        self._aim = context.aim
        self._proofs = proofs
        self._search_again = search_again
        self._stop_reason = ""

    def conclude(self, reason: str) -> None:
        """Measure the finalists again, decide, and prove the winner; one whose proof fails leaves its place to others.

        The verdict is stored unless another process measures finalists of this study.
        """
        self._stop_reason = reason
        while True:
            is_ours = self._measure()
            verdict = self._decide()
            if not is_ours or verdict.winner is None or not self._prove(verdict.winner):
                break
        if is_ours:
            self._study.set_verdict(self._decide())

    def _measure(self) -> bool:
        """Measure finalists and baseline again until there is nothing to tell apart; False if another process is at it.

        A final is measured in one go: rounds of different days are not comparable. One that was cut short is begun
        anew, unless its rounds tell already. Where a round rules the best out, most often as it needed more memory than
        in its trial, the search goes on before the next one: it stopped because nothing would be better.
        """
        measured: set[str] = set()
        finals: Counter[str] = Counter()
        while True:
            record = self._record()
            candidates = finalists(record.trials, self._facts, self._aim, record.repeats)
            going = tuple(
                one for one in candidates if one.key not in measured and not self._is_measured(record, one, candidates)
            )
            if not going:
                return True
            # Where there is no baseline to hold them against, they are held against each other.
            entrants = self._entrants(going if self._context.baseline_fits else candidates)
            if not entrants:
                return True
            final = self._study.begin_final()
            if final is None:
                return False
            if not self._measure_final(final, entrants):
                return True
            self._study.end_final(final)
            if not self._holds(going[0]) and not self._interruption.finish.is_set():
                self._stop_reason = self._search_again()
            repeats = self._record().repeats
            finals.update(one.key for one in entrants)
            enough = self._context.rounds
            # Nobody has more finals than rounds, or those who fail and are taken in again would go on for ever.
            measured.update(
                one.key for one in entrants if len(rounds_of(repeats, one)) >= enough or finals[one.key] >= enough
            )

    def _holds(self, candidate: Configuration) -> bool:
        """Whether no round of a candidate has ruled it out."""
        record = self._study.record()
        finite = baseline_is_finite(record.trials, self._facts)
        return holds(record.repeats, candidate, self._aim, baseline_is_finite=finite)

    def _is_measured(
        self, record: StudyRecord, candidate: Configuration, candidates: tuple[Configuration, ...]
    ) -> bool:
        if self._is_out(record, candidate, candidates):
            return True
        if self._context.baseline_fits:
            return tells(record.repeats, candidate, self._facts.baseline)
        return len(rounds_of(record.repeats, candidate)) >= self._context.rounds

    def _is_out(self, record: StudyRecord, candidate: Configuration, candidates: tuple[Configuration, ...]) -> bool:
        """Whether more rounds of a candidate would change nothing; the candidates are in the order of their trials.

        It cannot win against the baseline any more; or, where there is nothing to beat, its rounds say with its trial
        that another is better.
        """
        if self._context.baseline_fits:
            return is_lost(record.repeats, candidate, self._facts.baseline, self._aim, self._context.rounds)
        before = candidates[: candidates.index(candidate)]
        return any(is_beaten(record.repeats, candidate, other, self._aim) for other in before)

    def _entrants(self, candidates: tuple[Configuration, ...]) -> tuple[Configuration, ...]:
        """Who is measured in turns: the baseline first, if it fits, and as many candidates as there is time for.

        Too few rounds tell nothing, so none is begun unless there is time for all.
        """
        own = (self._facts.baseline,) if self._context.baseline_fits else ()
        for chosen in (candidates, candidates[:1]):
            runs = self._context.rounds * len((*own, *chosen))
            if self._budget.holds(runs):
                return (*own, *chosen)
        if not self._interruption.finish.is_set():
            # With the winner's proof, or the next session would keep no time for it and spend it all on the search.
            proof = 0 if self._study.spec.leaves_untouched else PROOF_RUNS
            self._watcher.no_time(self._budget.needed_s(runs + proof))
        return ()

    def _measure_final(self, final: int, entrants: tuple[Configuration, ...]) -> bool:
        """Measure entrants in turns, each time in a fresh process on one device; False if it was interrupted.

        Every other round runs backwards, so that a machine that warms up or slows down favours nobody. Who fails,
        passes the limit or can't be the answer any more is out. A round in which the baseline failed is measured once
        more at the end.
        """
        rounds, baseline = self._context.rounds, self._facts.baseline
        turns = [(n, one) for n in range(rounds) for one in (entrants if n % 2 == 0 else entrants[::-1])]
        self._watcher.repeating(entrants, len(turns))
        while turns:
            number, configuration = turns.pop(0)
            outcome = self._measure_round(final, number, configuration)
            if outcome is None:
                return False
            if configuration.key == baseline.key and not isinstance(outcome, Measured) and number < rounds:
                turns.append((number + rounds, configuration))
            left = self._left(entrants)
            if not left:
                return True
            turns = [turn for turn in turns if turn[1].key in left or turn[1].key == baseline.key]
        return True

    def _left(self, entrants: tuple[Configuration, ...]) -> set[str]:
        """The keys of those that may still be the answer, the baseline left out."""
        record, own = self._record(), self._facts.baseline
        able = feasible_trials(record.trials, self._facts, self._aim, record.repeats)
        able_keys = {trial.configuration.key for trial in able} - {own.key}
        going = tuple(one for one in entrants if one.key in able_keys)
        return {one.key for one in going if not self._is_out(record, one, going)}

    def _measure_round(self, final: int, number: int, configuration: Configuration) -> Outcome | None:
        request = trial_request(self._study.spec, self._facts, (configuration,), self._limit_bytes)
        result = self._context.run_one(request, f"final-{final}-round-{number + 1}")
        outcome = None if result is None else result.outcomes[0]
        if result is None or outcome is None:
            return None
        repeat = Repeat(configuration, number, outcome, result.environment, str(result.directory), final)
        self._study.add_repeat(repeat)
        self._watcher.repeated(configuration, number, outcome)
        return outcome

    def _decide(self) -> Verdict:
        verdict = decide(self._study.record(), self._limit_bytes, self._stop_reason, may_win=self._may_win)
        refuted = [f"{one.configuration} may not win. {one.statement}" for one in self._proofs if self._is_refuted(one)]
        if len(refuted) >= _MOST_REFUTED:
            refuted.append("So nothing else that changes how the script computes may win either.")
        compared = compare(self._study.record().repeats, self._facts.baseline, self._aim)
        return replace(
            verdict,
            reason=" ".join([verdict.reason, *refuted]),
            comparisons=compared,
            proofs=tuple(self._proofs),
        )

    def _prove(self, winner: Configuration) -> bool:
        """Compare the winner's first steps with the script's, once; True if that says that it must not win."""
        if winner.is_untouched or any(one.configuration.key == winner.key for one in self._proofs):
            return False  # the script's own operations, or known
        if self._interruption.finish.is_set():
            return False
        self._watcher.proving(winner)
        own = self._facts.baseline.batch_size
        proof = prove(winner, self._start_proof, script_batch_size=own)
        if proof is None:
            return False
        self._watcher.proved(proof)
        self._proofs.append(proof)
        return self._is_refuted(proof)

    def _start_proof(self, name: str, configuration: Configuration, verifying: Verifying) -> RunResult | None:
        spec = self._study.spec
        request = verify_request(
            spec.script,
            spec.arguments,
            configuration,
            verifying,
            batch_control=self._facts.batch_control,
            limit_bytes=memory_limit(None, self._facts),
        )
        return self._context.run_one(request, name)

    @staticmethod
    def _is_refuted(proof: Proof) -> bool:
        return proof.answer == "inexact"

    def _record(self) -> StudyRecord:
        """The study without what may not win because its proof failed."""
        return allowed(self._study.record(), self._may_win)

    def _may_win(self, configuration: Configuration) -> bool:
        refuted = {one.configuration.key for one in self._proofs if self._is_refuted(one)}
        if len(refuted) >= _MOST_REFUTED:
            return configuration.is_untouched
        return configuration.key not in refuted
