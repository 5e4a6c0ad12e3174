"""The data flow: discovery, search, finalists, verdict, bundle. It only calls others, in that order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from .budget import Budget, Interruption, RunCancel
from .discovery import check_limit, judge, script_sha256
from .errors import AutotuneError, UsageError
from .export import Bundle, export_bundle
from .launch import (
    Event,
    Launcher,
    RunResult,
    discovery_request,
    host_memory_limit,
    trial_request,
    verify_request,
)
from .proving import PROOF_RUNS, prove
from .records import (
    Configuration,
    Environment,
    Facts,
    HostOutOfMemory,
    Measured,
    Outcome,
    OutOfMemory,
    Proof,
    Repeat,
    StudyRecord,
    StudySpec,
    Verdict,
    Verifying,
)
from .records.figures import rounds_of
from .report import build_document, render_html
from .search import Asked, Search, build_space, compare, decide, feasible_trials, finalists, tells
from .store import Store, Study

__all__ = ["Discovered", "Watcher", "discover", "export", "memory_limit", "tune", "verify"]

# After so many failures and nothing else, the script is what fails: it can't be run twice, say.
_HOPELESS = 5
_HEARTBEAT_S = 10.0


class Watcher(Protocol):
    """Told what happens, for a display; methods may be called from several threads."""

    def discovering(self) -> None:
        """The script is started as it stands, for the first time in this study."""

    def discovered(self, facts: Facts, baseline: Outcome, limit_bytes: int) -> None:
        """Facts and baseline are known, from just now or from an earlier session."""

    def searching(self, space_size: int) -> None:
        """The search begins."""

    def run_began(self, device: int | None, configurations: tuple[Configuration, ...]) -> None:
        """A run starts: of the search, or of the finalists' rounds."""

    def event(self, device: int | None, event: Event) -> None:
        """Something happened in a run."""

    def trial_ended(self, number: int, configuration: Configuration, outcome: Outcome) -> None:
        """A trial's outcome is stored."""

    def search_ended(self, reason: str) -> None:
        """The search is over."""

    def repeating(self, configurations: tuple[Configuration, ...], num_runs: int) -> None:
        """Finalists and baseline are measured again, in so many runs."""

    def no_time(self, needed_s: float) -> None:
        """There are finalists, but no time to measure them again; that would take so many seconds."""

    def repeated(self, configuration: Configuration, round_number: int, outcome: Outcome) -> None:
        """A finalist's or the baseline's round is stored."""

    def proving(self, configuration: Configuration) -> None:
        """A winner's first steps are compared with the script's."""

    def proved(self, proof: Proof) -> None:
        """What that showed."""


@dataclass(frozen=True)
class Discovered:
    """What discovery brought back: the facts, the baseline's outcome, and where that run's logs are."""

    facts: Facts
    baseline: Outcome
    run_directory: str


def tune(
    study: Study, *, store: Store, launcher: Launcher, watcher: Watcher, interruption: Interruption, runs: Path
) -> StudyRecord:
    """Take a study to its verdict, from wherever it stands; every outcome is stored before anything builds on it.

    The verdict is None, or an earlier one, where another process measures the finalists of the study at this moment.

    Args:
        study: new or resumed.
        store: the study's database.
        launcher: runs configurations.
        watcher: is told what happens.
        interruption: set by Ctrl-C.
        runs: where runs' folders are made.

    Raises:
        DiscoveryError: the script does not train as it stands.
        UsageError: the script has changed since the study began.
        RunError: the limit is below what no plan can change, or the disk or the database failed.
        InterruptionError: it was cancelled before discovery had ended.
    """
    record = study.record()
    budget = Budget(study.spec.time_budget_s, interruption, record.trials)
    found = _known(record) or discover(
        study.spec, launcher=launcher, watcher=watcher, interruption=interruption, budget=budget, runs=runs
    )
    limit_bytes = memory_limit(study.spec.memory_limit_bytes, found.facts)
    watcher.discovered(found.facts, found.baseline, limit_bytes)
    check_limit(found.facts, limit_bytes)
    proofs = [] if record.verdict is None else [one for one in record.verdict.proofs if one.answer != "unknown"]
    tuning = _Tuning(study, launcher, watcher, interruption, budget, runs, found.facts, limit_bytes, proofs)
    with store.guard(), beating(study):
        reason = tuning.search(found)
        watcher.search_ended(reason)
        tuning.conclude(reason)
    return study.record()


def discover(
    spec: StudySpec,
    *,
    launcher: Launcher,
    watcher: Watcher,
    interruption: Interruption,
    budget: Budget,
    runs: Path,
) -> Discovered:
    """One run of the script, on the first device: its facts, and the measurement of the baseline."""
    watcher.discovering()
    device = _devices(spec)[0]
    began = time.monotonic()
    result = launcher.run(
        discovery_request(spec),
        device=device,
        on_event=lambda event: watcher.event(device, event),
        cancel=interruption.cancel,
        directory=_unused(runs / "discovery"),
    )
    baseline = result.outcomes[0]
    if baseline is not None and interruption.explains(baseline):
        baseline = None
    facts = judge(result.facts, baseline, result.failure, reason=result.reason, directory=result.directory)
    assert baseline is not None, "judge raises without one"
    budget.note_run(time.monotonic() - began, alone=False)
    return Discovered(facts, baseline, str(result.directory))


def memory_limit(asked_bytes: int | None, facts: Facts) -> int:
    """The limit that configurations are held against: as asked, at most what the device has or the host has left."""
    has = _memory_of(facts.environment)
    return has if asked_bytes is None else min(asked_bytes, has)


def _memory_of(environment: Environment) -> int:
    has = environment.device_memory_bytes
    return min(has, host_memory_limit()) if environment.device_kind == "cpu" else has


def export(study: Study, directory: Path, *, configuration: Configuration | None = None) -> Path:
    """Write a study's bundle, and its report into it."""
    record = study.record()
    document = build_document(record, bundle=directory.name)
    written = export_bundle(record, directory, configuration=configuration, report_html=render_html(document))
    study.add_bundle(str(written))
    return written


def verify(
    bundle: Bundle,
    spec: StudySpec,
    *,
    launcher: Launcher,
    cancel: threading.Event,
    runs: Path,
    began: Callable[[str], None],
) -> Proof | None:
    """Prove a bundle on a script; None if it was cancelled.

    Args:
        bundle: what to prove.
        spec: the script, its arguments and its device.
        launcher: runs it.
        cancel: ends it.
        runs: where runs' folders are made.
        began: told what each run is, as it starts.
    """
    stack = bundle.stack

    def start(name: str, configuration: Configuration, verifying: Verifying) -> RunResult:
        began(f"{name.replace('-', ' ')}: {configuration}")
        request = verify_request(
            spec.script,
            spec.arguments,
            configuration,
            verifying,
            batch_control=stack.batch_control,
            limit_bytes=_memory_of(stack.environment),
        )
        device = _devices(spec)[0]
        directory = _unused(runs / name)
        return launcher.run(request, device=device, on_event=lambda _: None, cancel=cancel, directory=directory)

    own = stack.script_batch_size if stack.batch_control.how == "arguments" else None
    return prove(bundle.configuration, start, script_batch_size=own)


@dataclass(frozen=True)
class _Tuning:
    """A study at work: what every step of its search and of its finalists' rounds needs."""

    study: Study
    launcher: Launcher
    watcher: Watcher
    interruption: Interruption
    budget: Budget
    runs: Path
    facts: Facts
    limit_bytes: int
    proofs: list[Proof] = field(default_factory=list)

    def search(self, found: Discovered) -> str:
        """Run what the search asks for until it, or the budget, says to stop; gives the reason."""
        study = self.study
        study.recover()
        space = build_space(self.facts, study.spec)
        history = study.record().trials
        search = Search(study.optuna, space, self.facts, study.spec, self.limit_bytes, history=history)
        self._store_baseline(search, found)
        for trial in study.untold():
            assert trial.outcome is not None
            search.tell(trial.number, trial.outcome, trial.environment)
            study.mark_told(trial.number)
        self.watcher.searching(space.num_configurations)
        devices = _devices(study.spec)
        turn, failed = threading.Lock(), threading.Event()
        with ThreadPoolExecutor(len(devices)) as pool:
            reasons = [pool.submit(self._work, search, device, turn, failed) for device in devices]
            return [reason.result() for reason in reasons][-1]

    def _work(self, search: Search, device: int | None, turn: threading.Lock, failed: threading.Event) -> str:
        """Keep a device busy until there is nothing left to ask for; gives the reason."""
        try:
            while not failed.is_set():
                with turn:
                    over = self._why_over() or self._why_hopeless()
                    asked = () if over else search.ask()
                    if not asked:
                        return over or search.stop_reason
                    directory = _unused(self.runs / f"trial-{asked[0].number:04d}")
                    # Another process may have taken some of them at the same moment.
                    mine = tuple(
                        one for one in asked if self.study.begin(one.number, one.configuration, str(directory))
                    )
                if mine:
                    self._run(search, mine, device, directory)
        except BaseException:
            failed.set()  # the other devices end too, once what they measure is stored
            raise
        return "Another device failed."

    def _why_over(self) -> str:
        spec = self.study.spec
        proof = 0 if spec.engine == "eager" else PROOF_RUNS
        return self.budget.why_over(runs_to_keep=2 * spec.finalist_rounds + proof)

    def _why_hopeless(self) -> str:
        """Why more trials would tell no more than those before them, or an empty string."""
        others = (one for one in self.study.record().trials if one.configuration.key != self.facts.baseline.key)
        outcomes = [one.outcome for one in others if one.outcome is not None]
        telling = (Measured, OutOfMemory, HostOutOfMemory)
        if len(outcomes) < _HOPELESS or any(isinstance(outcome, telling) for outcome in outcomes):
            return ""
        return f"The first {len(outcomes)} trials all failed, and not for memory."

    def _run(self, search: Search, asked: tuple[Asked, ...], device: int | None, directory: Path) -> None:
        """One run: each outcome is stored as it comes, then the search is told, and the rest is given back."""
        configurations = tuple(one.configuration for one in asked)
        self.watcher.run_began(device, configurations)
        stored: dict[int, bool] = {}
        cancel = RunCancel(self.interruption.cancel)
        began = time.monotonic()

        def on_event(event: Event) -> None:
            self.watcher.event(device, event)
            if event.kind == "result" and event.outcome is not None and not self.interruption.explains(event.outcome):
                number = asked[event.index].number
                stored[number] = self.study.finish(number, event.outcome, event.environment)
                if stored[number]:
                    self.watcher.trial_ended(number, configurations[event.index], event.outcome)
                if self._why_over():
                    cancel.set()  # nothing new is started, in this run neither

        result = self.launcher.run(
            trial_request(self.study.spec, self.facts, configurations, self.limit_bytes),
            device=device,
            on_event=on_event,
            cancel=cancel,
            directory=directory,
        )
        if all(isinstance(outcome, Measured) for outcome in result.outcomes):  # others end early
            self.budget.note_run(time.monotonic() - began, alone=len(asked) == 1)
        self._tell(search, asked, result, stored)

    def _tell(self, search: Search, asked: tuple[Asked, ...], result: RunResult, stored: dict[int, bool]) -> None:
        for one, outcome in zip(asked, result.outcomes, strict=True):
            if outcome is None or one.number not in stored:
                self.study.release(one.number)
            elif stored[one.number]:
                search.tell(one.number, outcome, result.environment)
                self.study.mark_told(one.number)

    def _store_baseline(self, search: Search, found: Discovered) -> None:
        """Make the baseline a trial like any other, once."""
        number = search.add_baseline(found.baseline)
        environment = self.facts.environment
        self.study.add_trial(number, self.facts.baseline, found.baseline, environment, found.run_directory)
        # Last, so that a crash before this moment repeats the discovery, and none after it does.
        self.study.set_facts(self.facts)

    def conclude(self, reason: str) -> None:
        """Measure the finalists again, decide, and prove the winner; one whose proof fails leaves its place to others.

        The verdict is stored unless another process measures finalists of this study.
        """
        while True:
            is_ours = self.measure_finals()
            verdict = self._decide(reason)
            if not is_ours or verdict.winner is None or not self._prove(verdict.winner):
                break
        if is_ours:
            self.study.set_verdict(self._decide(reason))

    def _decide(self, reason: str) -> Verdict:
        verdict = decide(self._record(), self.limit_bytes, reason)
        refuted = [f"{one.configuration} may not win. {one.statement}" for one in self.proofs if self._is_refuted(one)]
        compared = compare(self.study.record().repeats, self.facts.baseline, self.limit_bytes)
        return replace(
            verdict,
            reason=" ".join([verdict.reason, *refuted]),
            comparisons=compared,
            proofs=tuple(self.proofs),
        )

    def _prove(self, winner: Configuration) -> bool:
        """Compare the winner's first steps with the script's, once; True if that says that it must not win."""
        if winner.engine == "eager" or any(one.configuration.key == winner.key for one in self.proofs):
            return False  # the script's own operations, or known
        if self.interruption.finish.is_set():
            return False
        self.watcher.proving(winner)
        own = self.facts.baseline.batch_size
        proof = prove(winner, self._start_proof, script_batch_size=own)
        if proof is None:
            return False
        self.watcher.proved(proof)
        self.proofs.append(proof)
        return self._is_refuted(proof)

    def _start_proof(self, name: str, configuration: Configuration, verifying: Verifying) -> RunResult:
        device, spec = _devices(self.study.spec)[0], self.study.spec
        if self.interruption.finish.is_set():
            return RunResult((None,), None, None, self.runs)  # as one that was cancelled at once
        self.watcher.run_began(device, (configuration,))
        result = self.launcher.run(
            verify_request(
                spec.script,
                spec.arguments,
                configuration,
                verifying,
                batch_control=self.facts.batch_control,
                limit_bytes=memory_limit(None, self.facts),
            ),
            device=device,
            on_event=lambda event: self.watcher.event(device, event),
            cancel=self.interruption.cancel,
            directory=_unused(self.runs / name),
        )
        outcome = result.outcomes[0]
        return replace(result, outcomes=(None,)) if outcome and self.interruption.explains(outcome) else result

    @staticmethod
    def _is_refuted(proof: Proof) -> bool:
        return proof.answer == "inexact"

    def _record(self) -> StudyRecord:
        """The study without what may not win because its proof failed."""
        record = self.study.record()
        refuted = {one.configuration.key for one in self.proofs if self._is_refuted(one)}
        return replace(
            record,
            trials=tuple(one for one in record.trials if one.configuration.key not in refuted),
            repeats=tuple(one for one in record.repeats if one.configuration.key not in refuted),
        )

    def measure_finals(self) -> bool:
        """Measure finalists and baseline again until there is nothing to tell apart; False if another process is at it.

        A final is measured in one go: rounds of different days are not comparable. One that was cut short is begun
        anew, unless its rounds tell already.
        """
        measured: set[str] = set()
        while True:
            record = self._record()
            candidates = finalists(record.trials, self.facts, self.limit_bytes, record.repeats)
            if all(one.key in measured or self._is_measured(record, one) for one in candidates):
                return True
            entrants = self._entrants(record, candidates)
            if not entrants:
                return True
            final = self.study.begin_final()
            if final is None:
                return False
            if not self._measure_final(final, entrants):
                return True
            self.study.end_final(final)
            measured.update(configuration.key for configuration in entrants)

    def _is_measured(self, record: StudyRecord, candidate: Configuration) -> bool:
        rounds = len(rounds_of(record.repeats, candidate))
        if self._baseline_fits(record):
            return tells(record.repeats, candidate, self.facts.baseline)
        return rounds >= self.study.spec.finalist_rounds

    def _baseline_fits(self, record: StudyRecord) -> bool:
        own = None if record.baseline is None else record.baseline.measured
        return own is not None and own.measurement.peaks.fit_bytes <= self.limit_bytes

    def _entrants(self, record: StudyRecord, candidates: tuple[Configuration, ...]) -> tuple[Configuration, ...]:
        """Who is measured in turns: the baseline first, if it fits, and as many candidates as there is time for.

        Too few rounds tell nothing, so none is begun unless there is time for all.
        """
        own = (self.facts.baseline,) if self._baseline_fits(record) else ()
        for chosen in (candidates, candidates[:1]):
            runs = self.study.spec.finalist_rounds * len((*own, *chosen))
            if self.budget.holds(runs):
                return (*own, *chosen)
        if not self.interruption.finish.is_set():
            self.watcher.no_time(self.budget.needed_s(runs))
        return ()

    def _measure_final(self, final: int, entrants: tuple[Configuration, ...]) -> bool:
        """Measure entrants in turns, each time in a fresh process on one device; False if it was interrupted.

        Every other round runs backwards, so that a machine that warms up or slows down favours nobody. Who fails or
        passes the limit is out. A round in which the baseline failed is measured once more at the end.
        """
        rounds, baseline = self.study.spec.finalist_rounds, self.facts.baseline
        turns = [(n, one) for n in range(rounds) for one in (entrants if n % 2 == 0 else entrants[::-1])]
        self.watcher.repeating(entrants, len(turns))
        while turns:
            number, configuration = turns.pop(0)
            outcome = self._measure_round(final, number, configuration)
            if outcome is None:
                return False
            if configuration.key == baseline.key:
                if not isinstance(outcome, Measured) and number < rounds:
                    turns.append((number + rounds, configuration))
            elif not self._may_win(configuration):
                turns = [turn for turn in turns if turn[1].key != configuration.key]
                if all(one.key == baseline.key for _, one in turns):
                    return True
        return True

    def _may_win(self, configuration: Configuration) -> bool:
        record = self.study.record()
        able = feasible_trials(record.trials, self.facts, self.limit_bytes, record.repeats)
        return any(trial.configuration.key == configuration.key for trial in able)

    def _measure_round(self, final: int, number: int, configuration: Configuration) -> Outcome | None:
        if self.interruption.finish.is_set():
            return None
        device = _devices(self.study.spec)[0]
        self.watcher.run_began(device, (configuration,))
        result = self.launcher.run(
            trial_request(self.study.spec, self.facts, (configuration,), self.limit_bytes),
            device=device,
            on_event=lambda event: self.watcher.event(device, event),
            cancel=self.interruption.cancel,
            directory=_unused(self.runs / f"final-{final}-round-{number + 1}"),
        )
        outcome = result.outcomes[0]
        if outcome is None or self.interruption.explains(outcome):
            return None
        repeat = Repeat(configuration, number, outcome, result.environment, str(result.directory), final)
        self.study.add_repeat(repeat)
        self.watcher.repeated(configuration, number, outcome)
        return outcome


@contextmanager
def beating(study: Study) -> Iterator[None]:
    """Say all the time that this process lives: a run may be silent for longer than others wait for a sign."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(_HEARTBEAT_S):
            with suppress(AutotuneError):  # whoever writes next meets the same failure, and tells
                study.heartbeat()

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _known(record: StudyRecord) -> Discovered | None:
    """What a study knows from its discovery; UsageError if its script has changed since."""
    baseline = record.baseline
    if record.facts is None or baseline is None or baseline.outcome is None:
        return None
    _check_unchanged(record, record.facts)
    return Discovered(record.facts, baseline.outcome, baseline.run_directory)


def _check_unchanged(record: StudyRecord, facts: Facts) -> None:
    """A study's measurements belong to one version of its script."""
    script = Path(record.spec.script)
    if not script.is_file():
        raise UsageError(f"the study's script {record.spec.script!r} is gone", hint="put it back, or start anew")
    if script_sha256(script) != facts.script_sha256:
        raise UsageError(
            f"{script.name} has changed since study {record.name!r} began, so its measurements no longer hold",
            hint="start a new study: `autotune run` with another --study NAME",
        )


def _devices(spec: StudySpec) -> tuple[int | None, ...]:
    return spec.devices or (None,)


def _unused(directory: Path) -> Path:
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
