"""The data flow: discovery, search, finalists, verdict, bundle. It only calls others, in that order."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from .discovery import check_limit, judge, script_sha256
from .errors import UsageError
from .export import export_bundle
from .launch import Event, Launcher, RunResult, discovery_request, host_memory_limit, trial_request
from .records import Configuration, Facts, Measured, Outcome, Repeat, StudyRecord, StudySpec
from .report import build_document, render_html
from .search import Asked, Search, build_space, decide, finalists
from .store import Store, Study

__all__ = ["Budget", "Interruption", "Watcher", "discover", "export", "known", "memory_limit", "tune"]


class Watcher(Protocol):
    """Told what happens, for a display; methods may be called from several threads."""

    def discovering(self) -> None: ...
    def discovered(self, facts: Facts, baseline: Outcome, limit_bytes: int) -> None: ...
    def searching(self, space_size: int) -> None: ...
    def run_began(self, device: int | None, configurations: tuple[Configuration, ...]) -> None: ...
    def event(self, device: int | None, event: Event) -> None: ...
    def trial_ended(self, number: int, configuration: Configuration, outcome: Outcome) -> None: ...
    def search_ended(self, reason: str) -> None: ...
    def repeating(self, configurations: tuple[Configuration, ...], rounds: int) -> None: ...
    def repeated(self, configuration: Configuration, round_number: int, outcome: Outcome) -> None: ...


@dataclass(frozen=True)
class Interruption:
    """Ctrl-C once sets ``finish``: nothing new is started. Twice sets ``cancel`` too: what runs is ended."""

    finish: threading.Event
    cancel: threading.Event


class Budget:
    """The time a study may take from now on, and what its finalists will need of it."""

    def __init__(self, seconds: float, interruption: Interruption) -> None:
        self._ends_at = time.monotonic() + seconds
        self._interruption = interruption
        self._run_times_s: list[float] = []

    def note_run(self, seconds: float) -> None:
        """Learn how long a fresh run takes."""
        self._run_times_s.append(seconds)

    def why_over(self, *, runs_to_keep: int = 0) -> str:
        """Why nothing new may start, or an empty string; ``runs_to_keep`` runs are left for later."""
        if self._interruption.finish.is_set():
            return "You interrupted the search."
        typical_s = sorted(self._run_times_s)[len(self._run_times_s) // 2] if self._run_times_s else 0.0
        if time.monotonic() + runs_to_keep * typical_s >= self._ends_at:
            return "The time budget is spent."
        return ""


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
        RunError: the limit is below what no plan can change, or the disk or the database failed.
    """
    budget = Budget(study.spec.time_budget_s, interruption)
    facts, baseline = known(study.record()) or discover(
        study.spec, launcher=launcher, watcher=watcher, interruption=interruption, budget=budget
    )
    limit_bytes = memory_limit(study.spec.memory_limit_bytes, facts)
    watcher.discovered(facts, baseline, limit_bytes)
    check_limit(facts, limit_bytes)
    with store.guard():
        reason = _search(study, facts, baseline, limit_bytes, launcher, watcher, interruption, budget, runs)
    watcher.search_ended(reason)
    _repeat_finalists(study, facts, limit_bytes, launcher, watcher, interruption, budget)
    study.set_verdict(decide(study.record(), limit_bytes, reason))
    return study.record()


def known(record: StudyRecord) -> tuple[Facts, Outcome] | None:
    """The facts and the baseline's outcome that a study already has; UsageError if its script has changed since."""
    if record.facts is None or record.baseline is None or record.baseline.outcome is None:
        return None
    _check_unchanged(record)
    return record.facts, record.baseline.outcome


def discover(
    spec: StudySpec, *, launcher: Launcher, watcher: Watcher, interruption: Interruption, budget: Budget
) -> tuple[Facts, Outcome]:
    """One run of the script: its facts, and the measurement of the baseline."""
    watcher.discovering()
    device = _devices(spec)[0]
    began = time.monotonic()
    result = launcher.run(
        discovery_request(spec),
        device=device,
        on_event=lambda event: watcher.event(device, event),
        cancel=interruption.cancel,
    )
    facts = judge(result.facts, result.outcomes[0], result.failure)
    budget.note_run(time.monotonic() - began)
    assert result.outcomes[0] is not None
    return facts, result.outcomes[0]


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


def _search(
    study: Study,
    facts: Facts,
    baseline: Outcome,
    limit_bytes: int,
    launcher: Launcher,
    watcher: Watcher,
    interruption: Interruption,
    budget: Budget,
    runs: Path,
) -> str:
    """Run what the search asks for until it, or the budget, says to stop; gives the reason."""
    study.recover()
    space = build_space(facts, study.spec)
    history = study.record().trials
    search = Search(study.optuna, space, facts, study.spec, limit_bytes, history=history)
    _store_baseline(study, search, facts, baseline)
    for trial in study.untold():
        assert trial.outcome is not None
        search.tell(trial.number, trial.outcome, trial.environment)
        study.mark_told(trial.number)
    watcher.searching(space.num_configurations)
    to_keep = 2 * study.spec.finalist_rounds
    turn = threading.Lock()
    reasons: list[str] = []

    def work(device: int | None) -> None:
        while True:
            with turn:
                over = budget.why_over(runs_to_keep=to_keep)
                asked = () if over else search.ask()
                directory = runs / f"trial-{asked[0].number:04d}" if asked else runs
                mine = tuple(one for one in asked if study.begin(one.number, one.configuration, str(directory)))
                if not mine:
                    reasons.append(over or search.stop_reason)
                    if over or not asked:
                        return
                    continue
            result = _run(study, mine, facts, limit_bytes, launcher, watcher, interruption, budget, device, directory)
            with turn:
                _learn(study, search, mine, result, watcher)

    devices = _devices(study.spec)
    with ThreadPoolExecutor(len(devices)) as pool:
        for future in [pool.submit(work, device) for device in devices]:
            future.result()
    return reasons[-1]


def _run(
    study: Study,
    asked: tuple[Asked, ...],
    facts: Facts,
    limit_bytes: int,
    launcher: Launcher,
    watcher: Watcher,
    interruption: Interruption,
    budget: Budget,
    device: int | None,
    directory: Path,
) -> RunResult:
    configurations = tuple(one.configuration for one in asked)
    watcher.run_began(device, configurations)
    began = time.monotonic()

    def on_event(event: Event) -> None:
        study.heartbeat()
        watcher.event(device, event)

    result = launcher.run(
        trial_request(study.spec, facts, configurations, limit_bytes),
        device=device,
        on_event=on_event,
        cancel=interruption.cancel,
        directory=directory,
    )
    if len(asked) == 1:
        budget.note_run(time.monotonic() - began)
    return result


def _learn(study: Study, search: Search, asked: tuple[Asked, ...], result: RunResult, watcher: Watcher) -> None:
    """Store each outcome, then tell the search; give back what was not reached."""
    for one, outcome in zip(asked, result.outcomes, strict=True):
        if outcome is None:
            study.release(one.number)
        elif study.finish(one.number, outcome, result.environment):
            search.tell(one.number, outcome, result.environment)
            study.mark_told(one.number)
            watcher.trial_ended(one.number, one.configuration, outcome)


def _store_baseline(study: Study, search: Search, facts: Facts, baseline: Outcome) -> None:
    """Make the baseline a trial like any other, once."""
    number = search.add_baseline(baseline)
    if all(trial.number != number for trial in study.record().trials):
        study.begin(number, facts.baseline, "")
        study.finish(number, baseline, facts.environment)
        study.mark_told(number)
    # Last, so that a crash before this moment repeats the discovery, and none after it does.
    study.set_facts(facts)


def _repeat_finalists(
    study: Study,
    facts: Facts,
    limit_bytes: int,
    launcher: Launcher,
    watcher: Watcher,
    interruption: Interruption,
    budget: Budget,
) -> None:
    """Measure finalists and baseline again, interleaved, each in a fresh process on one device."""
    record = study.record()
    candidates = finalists(record.trials, facts, limit_bytes)
    if not candidates:
        return
    fits = any(trial.configuration.key == facts.baseline.key and trial.measured for trial in record.trials)
    entrants = (facts.baseline, *candidates) if fits and _baseline_fits(record, limit_bytes) else candidates
    watcher.repeating(entrants, study.spec.finalist_rounds)
    done = {(repeat.configuration.key, repeat.round) for repeat in record.repeats}
    for number in range(study.spec.finalist_rounds):
        # Every other round runs backwards, so that a machine that warms up or slows down favours nobody.
        for configuration in entrants if number % 2 == 0 else entrants[::-1]:
            if (configuration.key, number) in done:
                continue
            if budget.why_over():
                return
            result = launcher.run(
                trial_request(study.spec, facts, (configuration,), limit_bytes),
                device=_devices(study.spec)[0],
                on_event=lambda event: watcher.event(_devices(study.spec)[0], event),
                cancel=interruption.cancel,
            )
            outcome = result.outcomes[0]
            if outcome is None:
                return
            study.add_repeat(Repeat(configuration, number, outcome, result.environment, str(result.directory)))
            watcher.repeated(configuration, number, outcome)


def _baseline_fits(record: StudyRecord, limit_bytes: int) -> bool:
    baseline = record.baseline
    return (
        baseline is not None
        and isinstance(baseline.outcome, Measured)
        and baseline.outcome.measurement.peaks.fit_bytes <= limit_bytes
    )


def _check_unchanged(record: StudyRecord) -> None:
    """A study's measurements belong to one version of its script."""
    assert record.facts is not None
    script = Path(record.spec.script)
    if not script.is_file():
        raise UsageError(f"the study's script {record.spec.script!r} is gone", hint="put it back, or start anew")
    if script_sha256(script) != record.facts.script_sha256:
        raise UsageError(
            f"{script.name} has changed since study {record.name!r} began, so its measurements no longer hold",
            hint="start a new study with --study NAME",
        )


def _devices(spec: StudySpec) -> tuple[int | None, ...]:
    return spec.devices or (None,)
