"""The data flow: discovery, search, finalists, verdict, bundle. It only calls others, in that order."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from .budget import Budget, Interruption, RunCancel
from .discovery import check_limit, judge, script_sha256
from .errors import UsageError
from .export import export_bundle
from .launch import Event, Launcher, RunResult, discovery_request, host_memory_limit, trial_request
from .records import (
    Configuration,
    Facts,
    HostOutOfMemory,
    Measured,
    Outcome,
    OutOfMemory,
    Repeat,
    StudyRecord,
    StudySpec,
)
from .report import build_document, render_html
from .search import Asked, Search, build_space, decide, finalists
from .store import Store, Study

__all__ = ["Discovered", "Watcher", "discover", "export", "memory_limit", "tune"]

# After so many failures and nothing else, the script is what fails: it can't be run twice, say.
_HOPELESS = 5


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

    def repeated(self, configuration: Configuration, round_number: int, outcome: Outcome) -> None:
        """A finalist's or the baseline's round is stored."""


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
    tuning = _Tuning(study, launcher, watcher, interruption, budget, runs, found.facts, limit_bytes)
    with store.guard():
        reason = tuning.search(found)
    watcher.search_ended(reason)
    tuning.repeat_finalists()
    study.set_verdict(decide(study.record(), limit_bytes, reason))
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
    """One run of the script: its facts, and the measurement of the baseline."""
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
    has = facts.environment.device_memory_bytes
    if facts.environment.device_kind == "cpu":
        has = min(has, host_memory_limit())
    return has if asked_bytes is None else min(asked_bytes, has)


def export(study: Study, directory: Path, *, configuration: Configuration | None = None) -> Path:
    """Write a study's bundle, and its report into it."""
    record = study.record()
    document = build_document(record, bundle=directory.name)
    written = export_bundle(record, directory, configuration=configuration, report_html=render_html(document))
    study.add_bundle(str(written))
    return written


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
                    over = (
                        self.budget.why_over(runs_to_keep=2 * self.study.spec.finalist_rounds) or self._why_hopeless()
                    )
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
            self.study.heartbeat()
            self.watcher.event(device, event)
            if event.kind == "result" and event.outcome is not None and not self.interruption.explains(event.outcome):
                number = asked[event.index].number
                stored[number] = self.study.finish(number, event.outcome, event.environment)
                if stored[number]:
                    self.watcher.trial_ended(number, configurations[event.index], event.outcome)
                if self.interruption.finish.is_set():
                    cancel.set()  # nothing new is started, in this run neither

        result = self.launcher.run(
            trial_request(self.study.spec, self.facts, configurations, self.limit_bytes),
            device=device,
            on_event=on_event,
            cancel=cancel,
            directory=directory,
        )
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

    def repeat_finalists(self) -> None:
        """Measure finalists and baseline again, interleaved, each in a fresh process on one device."""
        record = self.study.record()
        candidates = finalists(record.trials, self.facts, self.limit_bytes)
        if not candidates:
            return
        device = _devices(self.study.spec)[0]
        rounds = self._rounds(record, candidates)
        if not self.budget.holds(len(rounds)):
            candidates = candidates[:1]
            rounds = self._rounds(record, candidates)
        # Too few rounds tell nothing, so they are begun only if there is time for all, and then all are run.
        if not rounds or not self.budget.holds(len(rounds)):
            return
        entrants = {configuration.key: configuration for _, configuration in rounds}
        self.watcher.repeating(tuple(entrants.values()), len(rounds))
        for number, configuration in rounds:
            if self.interruption.finish.is_set():
                return
            self.watcher.run_began(device, (configuration,))
            result = self.launcher.run(
                trial_request(self.study.spec, self.facts, (configuration,), self.limit_bytes),
                device=device,
                on_event=lambda event: self.watcher.event(device, event),
                cancel=self.interruption.cancel,
                directory=_unused(self.runs / f"round-{number + 1}"),
            )
            outcome = result.outcomes[0]
            if outcome is None or self.interruption.explains(outcome):
                return
            self.study.add_repeat(Repeat(configuration, number, outcome, result.environment, str(result.directory)))
            self.watcher.repeated(configuration, number, outcome)

    def _rounds(
        self, record: StudyRecord, candidates: tuple[Configuration, ...]
    ) -> tuple[tuple[int, Configuration], ...]:
        """What is left to measure, in order.

        Every other round runs backwards, so that a machine that warms up or slows down favours nobody.
        """
        own = None if record.baseline is None else record.baseline.measured
        fits = own is not None and own.measurement.peaks.fit_bytes <= self.limit_bytes
        entrants = (self.facts.baseline, *candidates) if fits else candidates
        done = {(repeat.round, repeat.configuration.key) for repeat in record.repeats}
        return tuple(
            (number, configuration)
            for number in range(self.study.spec.finalist_rounds)
            for configuration in (entrants if number % 2 == 0 else entrants[::-1])
            if (number, configuration.key) not in done
        )


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
    """The folder, or one beside it if an earlier study of the same name left it there."""
    candidate, number = directory, 1
    while candidate.exists():
        number += 1
        candidate = directory.with_name(f"{directory.name}-{number}")
    return candidate
