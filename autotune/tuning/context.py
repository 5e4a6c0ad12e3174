"""The context of every stage of a study: the study itself, its launcher and watcher, the facts and the limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..launch.port import Event, Launcher, RunResult
from ..launch.requests import can_fork, verify_request
from ..machine.host import host_memory_limit
from ..records.configuration import Configuration
from ..records.environment import Environment
from ..records.facts import Facts
from ..records.measuring import Measuring
from ..records.outcome import Outcome
from ..records.proof import Proof
from ..records.run import Request, Verifying
from ..records.stack import Stack
from ..records.study import Comparison, Repeat, Stage, StudyRecord, StudySpec, Trial
from ..records.study_results import repetitions_of
from ..store.study import Study
from ..verdict.aim import Aim, plans_may_help
from ..verdict.finalists import awaited, to_confirm
from ..verdict.repetitions import compare
from ..verdict.search_end import NOTHING_BELIEVED, Believed
from ..verdict.sequential import FIRST_LOOK
from .budget import Budget, Interruption, RunCancel
from .stopwatch import Stopwatch
from .watcher import Watcher


class Snapshot:
    """A study's record, as it was read last and with the trials and repetitions that this process has stored since.

    What other processes of the study store is known from the next ``refresh`` on. Who may have a trial or a
    confirmation is decided by the database and never by the snapshot. Methods may be called from several threads.

    Attributes:
        record: The record; trials that were begun since it was read have no times yet.
    """

    def __init__(self, study: Study) -> None:
        self._study = study
        self._lock = threading.Lock()
        self.record = study.record()

    def refresh(self) -> StudyRecord:
        """Read the record again."""
        with self._lock:
            self.record = self._study.record()
            return self.record

    def begin(self, number: int, configuration: Configuration, run_directory: str) -> bool:
        """Claim a trial; False if another process has it."""
        with self._lock:
            if not self._study.begin(number, configuration, run_directory):
                return False
            trial = Trial(number, configuration, "running", run_directory=run_directory)
            self.record = replace(self.record, trials=(*self.record.trials, trial))
            return True

    def finish(self, number: int, outcome: Outcome, environment: Environment | None) -> bool:
        """Store the outcome of a trial; False if it was taken over."""
        with self._lock:
            if not self._study.finish(number, outcome, environment):
                return False
            trials = (
                replace(trial, state="finished", outcome=outcome, environment=environment, finished_at=time.time())
                if trial.number == number
                else trial
                for trial in self.record.trials
            )
            self.record = replace(self.record, trials=tuple(trials))
            return True

    def add_repeat(self, repeat: Repeat) -> None:
        """Store a repetition of a confirmation."""
        with self._lock:
            self._study.add_repeat(repeat)
            self.record = replace(self.record, repeats=(*self.record.repeats, repeat))


# So many more repetitions than the latest confirmation had may tell what that did not.
_MORE_REPETITIONS = 2


@dataclass(frozen=True)
class Context:
    """A study at work.

    ``runs`` is where its runs' folders are made, ``limit_bytes`` what runs may use. ``baseline_fits``: the script as it
    stands peaks low enough to be the answer itself. ``proofs`` are those that had an answer so far.
    """

    study: Study
    snapshot: Snapshot
    launcher: Launcher
    watcher: Watcher
    interruption: Interruption
    budget: Budget
    runs: Path
    facts: Facts
    limit_bytes: int
    baseline_fits: bool
    stopwatch: Stopwatch
    proofs: list[Proof] = field(default_factory=list)

    @property
    def aim(self) -> Aim:
        """Return what the study looks for."""
        return Aim(self.study.spec.objective, self.limit_bytes)

    @property
    def plans_may_help(self) -> bool:
        """Return whether a setting with plans may be better than the same without."""
        return plans_may_help(self.snapshot.record, self.facts, baseline_fits=self.baseline_fits)

    @property
    def measuring(self) -> Measuring:
        """Return how trials and repetitions are measured."""
        return self.study.spec.measuring.paced(self.budget.seconds)

    @property
    def most_repetitions(self) -> int:
        """Return how often a finalist is measured again at most; if the script does not fit, its trial counts too."""
        repetitions = self.study.spec.finalist_repetitions
        return repetitions if self.baseline_fits else max(1, min(repetitions, FIRST_LOOK) - 1)

    @property
    def repetitions(self) -> int:
        """Return the least repetitions that tell anything; no confirmation is begun without the time for them."""
        return min(self.most_repetitions, FIRST_LOOK)

    def candidates(self, record: StudyRecord, believed: Believed = NOTHING_BELIEVED) -> tuple[Configuration, ...]:
        """Return the settings that are better than the baseline by their trials, or else may be in other conditions."""
        repeats, most = record.repeats, self.most_repetitions
        return to_confirm(record.trials, self.facts, self.aim, repeats, most_repetitions=most, believed=believed)

    def confirmable(self, record: StudyRecord, believed: Believed = NOTHING_BELIEVED) -> StudyRecord:
        """Return the record without trials that there is no time to confirm, where the best is one of them.

        Where there is no time to confirm any, the whole record is returned.
        """
        best = self.left_to_confirm(record, believed)
        if best is None or self._can_confirm(record, best):
            return record
        own_key = self.facts.baseline.key
        others = [one for one in record.trials if one.measured and one.configuration.key != own_key]
        too_long = {one.number for one in others if not self._can_confirm(record, one.configuration)}
        rest = replace(record, trials=tuple(one for one in record.trials if one.number not in too_long))
        return record if self.left_to_confirm(rest, believed) is None else rest

    def confirmable_trial_s(self) -> float:
        """Return the most seconds that a trial may take for its setting to be confirmed in the time that is left.

        A baseline that does not fit is only measured beside it if there is time.
        """
        own, budget = (self.facts.baseline,), self.budget
        beside, can_fork = own if self.baseline_fits else (), bool(self.forked(own))
        return budget.costs.confirmable_trial_s(budget.left_s, beside, self.repetitions, can_fork=can_fork)

    def _can_confirm(self, record: StudyRecord, candidate: Configuration) -> bool:
        return self.budget.holds(self.confirming_s(record, (candidate,)))

    def left_to_confirm(self, record: StudyRecord, believed: Believed = NOTHING_BELIEVED) -> Configuration | None:
        """Return the setting to measure again, or else to prove, before there is an answer; None with nothing left."""
        candidates = self.candidates(record, believed)
        if not self.baseline_fits:
            best = next(iter(candidates), None)
            return None if best is None or (self.is_told(record, best) and self._is_proven(best)) else best
        compared = self.compared(record)
        untold = awaited(candidates, record.trials, self.aim, record.repeats, compared)
        winners = sorted((one for one in compared if one.is_win), key=self.aim.ratio, reverse=True)
        unproven = (one.configuration for one in winners[:1] if not self._is_proven(one.configuration))
        return next(unproven, None) if untold is None else untold

    def confirming_s(self, record: StudyRecord, candidates: Sequence[Configuration]) -> float:
        """Return the seconds until candidates are confirmed, and the first of them is proven; 0.0 if that is done.

        A confirmation is begun anew, so one that should tell more than the latest needs more repetitions.
        """
        if all(self.is_told(record, one) for one in candidates):
            return self._proving_s(candidates[0])
        entrants = self.entrants(record, candidates)
        return self._repeating_s(record, entrants, candidates) + self._proving_s(candidates[0])

    def entrants(self, record: StudyRecord, candidates: Sequence[Configuration]) -> tuple[Configuration, ...]:
        """Return the settings that a confirmation of candidates measures: these, and the baseline beside them.

        A baseline that does not fit is left out where there is no time for it.
        """
        beside = (self.facts.baseline, *candidates)
        if self.baseline_fits:
            return beside
        seconds = self._repeating_s(record, beside, candidates) + self._proving_s(candidates[0])
        return beside if self.budget.holds(seconds) else tuple(candidates)

    def _repeating_s(
        self, record: StudyRecord, entrants: Sequence[Configuration], candidates: Sequence[Configuration]
    ) -> float:
        keys = {one.key for one in candidates if not self.is_told(record, one)}
        begun = [one.repetitions + _MORE_REPETITIONS for one in self.compared(record) if one.configuration.key in keys]
        repetitions = min(self.most_repetitions, max([self.repetitions, *begun]))
        return self.budget.costs.confirmation_s(entrants, repetitions, forked=self.forked(entrants))

    def _proving_s(self, candidate: Configuration) -> float:
        return 0.0 if self._is_proven(candidate) else self.budget.costs.proof_s(candidate)

    def forked(self, entrants: Sequence[Configuration]) -> tuple[Configuration, ...]:
        """Return those of the entrants of a confirmation that are forked in its repetitions after the first."""
        return tuple(one for one in entrants if can_fork(self.study.spec, self.facts, one))

    def is_told(self, record: StudyRecord, candidate: Configuration) -> bool:
        """Return whether a candidate's repetitions tell: beside the baseline if it fits, else once all are measured."""
        if not self.baseline_fits:
            return len(repetitions_of(record.repeats, candidate)) >= self.repetitions
        return any(one.configuration.key == candidate.key and not one.is_open for one in self.compared(record))

    def compared(self, record: StudyRecord) -> tuple[Comparison, ...]:
        """Compare the finalists with the baseline, by all repetitions so far."""
        return compare(record.repeats, self.facts.baseline, self.aim, self.most_repetitions)

    def _is_proven(self, candidate: Configuration) -> bool:
        return candidate.is_untouched or any(one.configuration.key == candidate.key for one in self.proofs)

    def run_one(self, request: Request, name: str, stage: Stage) -> RunResult | None:
        """Run one configuration on the first devices, in a folder of that name; return None if it was interrupted.

        A run that passes the latest end of the study is cut off, and has no outcome.
        """
        if self.interruption.finish.is_set():
            return None
        devices = self.study.spec.devices_of_runs[0]
        (configuration,) = request.configurations
        self.watcher.run_began(devices, (configuration,))
        began = time.monotonic()
        launcher = self.stopwatch.timed(self.launcher, stage)
        cancel = RunCancel(self.interruption.cancel, self.budget.latest_end)
        result = run_first(launcher, self.study.spec, request, self.runs / name, cancel, self.watcher)
        outcome = result.outcomes[0]
        if outcome is not None and request.mode == "measure":
            costs, seconds, is_fresh = self.budget.costs, time.monotonic() - began, not result.is_forked
            costs.note_repetition(configuration, outcome, seconds, may_fork=request.may_fork, is_fresh=is_fresh)
        return None if outcome and self.interruption.explains(outcome) else result


def memory_of(environment: Environment) -> int:
    """Return what the device has; on the CPU, what the host has left of that."""
    has = environment.device_memory_bytes
    return min(has, host_memory_limit()) if environment.device_kind == "cpu" else has


def run_first(
    launcher: Launcher,
    spec: StudySpec,
    request: Request,
    directory: Path,
    cancel: threading.Event,
    watcher: Watcher | None = None,
) -> RunResult:
    """Make a run on the first devices of a study, in a folder of that name; ``watcher`` is told of its events."""
    devices = spec.devices_of_runs[0]

    def on_event(event: Event) -> None:
        if watcher is not None:
            watcher.event(devices, event)

    return launcher.run(request, devices=devices, on_event=on_event, cancel=cancel, directory=unused(directory))


def proof_request(spec: StudySpec, of: Facts | Stack, configuration: Configuration, verifying: Verifying) -> Request:
    """Make the request of a proof's run from the findings of discovery, or from a bundle."""
    return verify_request(
        spec,
        configuration,
        verifying,
        batch_control=of.batch_control,
        accumulation_control=of.accumulation_control,
        limit_bytes=memory_of(of.environment),
    )


def unused(directory: Path) -> Path:
    """Make the folder, or one beside it if another process or an earlier study of the same name made it."""
    candidate, number = directory, 1
    with suppress(OSError):  # the launcher, which writes into it, says what is wrong
        while True:
            try:
                candidate.mkdir(parents=True)
                break
            except FileExistsError:
                number += 1
                candidate = directory.with_name(f"{directory.name}-{number}")
    return candidate
