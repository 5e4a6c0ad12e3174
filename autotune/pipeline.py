"""The data flow of a study: discovery, search, finalists, verdict, bundle. This module calls others in that order."""

from __future__ import annotations

import functools
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from .errors import AutotuneError, DiscoveryError, ExportError, InterruptionError, NotPermittedError, UsageError
from .export.atomic_file import check_free, write_whole
from .export.bundle import Bundle, export_bundle
from .export.exporters import Exporter
from .export.stack import choose_configuration
from .export.trackers import sending
from .export.trackers.sending import Sent, tracked
from .launch.port import Event, Launcher, RunResult
from .launch.requests import (
    audit_request,
    description_request,
    discovery_request,
    limit_request,
    region_request,
    searched_by,
    trace_request,
    trial_request,
    with_setting,
)
from .predict.explaining import explain as explain_trace
from .records.allocations import Traced
from .records.audit import Audit
from .records.cards import Card, CardFit
from .records.configuration import Configuration
from .records.engines import ENGINES
from .records.explanation import Explanation
from .records.facts import BatchControl, Facts
from .records.gate import Gate, GateBaseline, LimitGate, Reference
from .records.outcome import Measured, Outcome, TimedOut
from .records.printable import shell_word
from .records.proof import Proof
from .records.run import Request, Searched, Verifying
from .records.stack import Stack
from .records.study import Fit, StudyRecord, StudySpec
from .report.batches import batch_sentences, neediest
from .report.build import build_report
from .report.cards import cautions
from .report.page import render_html
from .search.fit import fits_of
from .search.space import build_space
from .store.study import Study
from .tuning.budget import Budget, Interruption, RunCancel
from .tuning.card_fit import trace_cards, trace_once, trace_setting
from .tuning.checks import (
    check_batch_sizes,
    check_choices,
    check_global_batch,
    check_limit,
    described_at_smaller,
    described_later,
    judge,
    smaller_to_describe,
)
from .tuning.confirmation import Confirmation
from .tuning.context import Context, Snapshot, memory_of, proof_request, run_first, unused
from .tuning.exporting import ExportedFile, FileExport
from .tuning.gating import Entrant, Sitting
from .tuning.memory_changes import try_changes
from .tuning.proving import prove
from .tuning.region_proof import prove_regions
from .tuning.side_by_side import most_at_once, say_nothing
from .tuning.stopwatch import Stopwatch
from .tuning.trials import Trials, open_search
from .tuning.watcher import Watcher
from .verdict.feasible import is_feasible
from .verdict.gate.comparison import Allowed
from .verdict.gate.decision import not_comparable
from .verdict.gate.limit import decide_by_cards, decide_by_run, decide_without_answer
from .verdict.memory_limit import answer_limit_of, may_fit_below, memory_limit

_HEARTBEAT_S = 10.0


@dataclass(frozen=True)
class Discovered:
    """The findings of discovery: the facts, the baseline's outcome, and the folder of that run's logs.

    ``took_s`` is how long the baseline took from the start of the run, in seconds. The time after it is the
    description's.
    """

    facts: Facts
    baseline: Outcome
    run_directory: str
    took_s: float = 0.0


def tune(study: Study, *, launcher: Launcher, watcher: Watcher, interruption: Interruption, runs: Path) -> StudyRecord:
    """Take a study to its verdict, from wherever it stands; every outcome is stored before anything builds on it.

    The verdict is None, or an earlier one, where another process measures the finalists of the study at this moment.

    Raises:
        DiscoveryError: the script does not train as it stands.
        UsageError: the script has changed since the study began, or cannot have what the spec allows.
        RunError: the limit is below what no plan can change, or the disk or the database failed.
        InterruptionError: it was cancelled before discovery had ended.
    """
    snapshot = Snapshot(study)
    record = snapshot.record
    budget = Budget(study.spec.time_budget_s, interruption, record.trials)
    stopwatch = Stopwatch(None if record.verdict is None else record.verdict.spent)
    known = _known(record)
    find = discover if known is None else functools.partial(_describe_again, known)
    found = find(
        study.spec,
        searches=searched_by(study.spec),
        launcher=stopwatch.timed(launcher, "discovery"),
        watcher=watcher,
        interruption=interruption,
        budget=budget,
        runs=runs,
    )
    limit_bytes = memory_limit(study.spec.memory_limit_bytes, memory_of(found.facts.environment))
    answer_bytes = study.spec.objective.limit_bytes(limit_bytes)
    watcher.discovered(found.facts, found.baseline, limit_bytes)
    check_limit(found.facts, answer_bytes, name="limit" if answer_bytes == limit_bytes else "target")
    check_choices(study.spec.engine, study.spec.choices, found.facts)
    check_batch_sizes(study.spec, found.facts)
    check_global_batch(study.spec, found.facts)
    proofs = [] if record.verdict is None else [one for one in record.verdict.proofs if one.answer != "unknown"]
    fits = _baseline_fits(found, answer_bytes)
    context = Context(
        study,
        snapshot,
        launcher,
        watcher,
        interruption,
        budget,
        runs,
        found.facts,
        limit_bytes,
        fits,
        stopwatch,
        proofs,
    )
    with study.guard(), beating(study):
        search = open_search(context, found.baseline, found.run_directory, took_s=found.took_s)
        trials = Trials(context, search)
        Confirmation(context, trials.run_again).conclude(trials.run())
        return study.record()


def discover(
    spec: StudySpec,
    *,
    searches: tuple[Searched, ...] = (),
    launcher: Launcher,
    watcher: Watcher,
    interruption: Interruption,
    budget: Budget,
    runs: Path,
) -> Discovered:
    """Run the script once on the first devices, for its facts and the measurement of the baseline.

    Without a limit torch's allocator keeps what it need not. Where the script passes the limit by that alone, its
    measurement is one below the limit. Describing a script that was measured may take too much memory. Then run the
    script again at half its batch. ``searches`` is what the study does afterwards.
    """
    watcher.discovering()
    devices = spec.devices_of_runs[0]
    began = time.monotonic()
    measured_s = 0.0

    def on_event(event: Event) -> None:
        nonlocal measured_s
        watcher.event(devices, event)
        if event.kind == "result":
            measured_s = time.monotonic() - began

    def run(request: Request) -> RunResult:
        cancel = RunCancel(interruption.cancel, budget.latest_end)
        return run_first(launcher, spec, request, runs / "discovery", cancel, watcher)

    paced = replace(spec, measuring=spec.measuring.paced(budget.seconds))
    result = launcher.run(
        replace(discovery_request(paced, ends_at=budget.ends_at, searches=searches), script_sha256=_hash_of(spec)),
        devices=devices,
        on_event=on_event,
        cancel=interruption.cancel,
        directory=unused(runs / "discovery"),
    )
    baseline = result.outcomes[0]
    if baseline is not None and interruption.explains(baseline):
        baseline = None
    facts = result.facts
    if facts is not None and facts.undescribed is not None and interruption.explains(facts.undescribed):
        facts = None
    target = ENGINES[spec.engine].target
    facts = judge(facts, baseline, result.failure, reason=result.reason, directory=result.directory, target=target)
    assert baseline is not None, "judge raises without one"
    # What comes after the measurement is the description's, which no later run has.
    budget.costs.note_trial(facts.baseline, baseline, measured_s, is_fresh=True)
    limit_bytes = memory_limit(spec.memory_limit_bytes, memory_of(facts.environment))
    first_s = time.monotonic() - began
    if facts.clusters:
        budget.costs.note_description(first_s - measured_s)
    passes = isinstance(baseline, Measured) and may_fit_below(baseline.measurement.peaks, limit_bytes)
    if passes and budget.holds(measured_s):
        again = run(trial_request(paced, facts, (facts.baseline,), limit_bytes, kernel_search=False))
        baseline = again.outcomes[0] if isinstance(again.outcomes[0], Measured) else baseline
    smaller = smaller_to_describe(facts)
    # What the first has taken, the second may need again; and plans that nobody has time to try gain nothing.
    if smaller is not None and budget.holds(first_s):
        second = run(description_request(spec, facts, smaller, ends_at=budget.ends_at, searches=searches)).facts
        if second is not None:
            facts = described_at_smaller(facts, second)
    return Discovered(facts, baseline, str(result.directory), measured_s)


def _describe_again(
    known: Discovered,
    spec: StudySpec,
    *,
    searches: tuple[Searched, ...],
    launcher: Launcher,
    watcher: Watcher,
    interruption: Interruption,
    budget: Budget,
    runs: Path,
) -> Discovered:
    """Return a study's discovery, with the description for which an earlier session had no time.

    The measurements stay. The discovery is returned unchanged where there is still no time, or no description comes.
    """
    is_cut_off = isinstance(known.facts.undescribed, TimedOut) and not known.facts.knows_plans
    if not is_cut_off or budget.why_over() is not None:
        return known
    watcher.discovering()
    own = known.facts.baseline.batch_size
    request = description_request(spec, known.facts, own, ends_at=budget.ends_at, searches=searches)
    cancel = RunCancel(interruption.cancel, budget.latest_end)
    later = run_first(launcher, spec, request, runs / "discovery", cancel, watcher).facts
    if later is None or not later.knows_plans:
        return known
    return replace(known, facts=described_later(known.facts, later))


def export(study: Study, directory: Path, *, configuration: Configuration | None = None) -> Path:
    """Write a study's bundle, and its report into it."""
    written = write_bundle(study.record(), directory, configuration=configuration)
    with suppress(NotPermittedError):  # whoever may only read a study may have what it found
        study.add_bundle(str(written))
    return written


def export_file(
    record: StudyRecord,
    exporter: Exporter,
    path: Path,
    *,
    configuration: Configuration | None = None,
    nearest: bool = False,
    repetitions: int,
    launcher: Launcher,
    interruption: Interruption,
    runs: Path,
    told: Callable[[str, Outcome | None], None],
) -> ExportedFile:
    """Write a study's answer as a file that works without autotune, measured and checked.

    Raises:
        ExportError: there is nothing to export, it cannot be written so, or the file failed its check.
        UsageError: the script has changed, or nothing of this kind can be written for it.
        InterruptionError: it was interrupted.
    """
    chosen = choose_configuration(record, configuration)
    if ENGINES[chosen.engine].target == "model":
        raise UsageError("--as is for scripts", hint="a model's bundle has session.py, which does without autotune")
    limit = answer_limit_of(record)
    assert record.facts is not None, "there is a setting"
    assert limit is not None, "likewise"
    if chosen.key == record.facts.baseline.key:
        raise ExportError(
            "the setting is the unmodified script: there is nothing to write",
            hint=f"name another one with --trial N: autotune show {shell_word(record.name)}",
        )
    _check_unchanged(record, record.facts)
    check_free(path)
    exporting = FileExport(
        record, exporter, path, limit_bytes=limit, launcher=launcher, interruption=interruption, runs=runs, told=told
    )
    taken = exporting.write(chosen, nearest=nearest, repetitions=repetitions)
    if taken is None:
        raise InterruptionError(
            "stopped before the file was checked, so it was not written", hint="the same command again starts it anew"
        )
    write_whole(path, taken.text)
    return taken


def write_bundle(record: StudyRecord, directory: Path, *, configuration: Configuration | None = None) -> Path:
    """Write the bundle of a study's record, and its report into it; the study's database gets no note of it."""
    report = build_report(record, bundle=directory.name)
    return export_bundle(record, directory, configuration=configuration, report_html=render_html(report))


def send(study: Study, to: str, folder: Path, *, with_bundle: bool) -> Sent:
    """Send a study to a tracker, with the bundle of its answer if asked for; event files go to ``folder``."""
    record = study.record()
    report = build_report(record)
    with tempfile.TemporaryDirectory(prefix="autotune-bundle-") as made:
        bundle = None
        if with_bundle and report.winner is not None:
            bundle = write_bundle(record, Path(made) / "bundle")
        return sending.send(tracked(report), to, folder=folder, bundle=bundle)


def fit(
    spec: StudySpec, *, launcher: Launcher, watcher: Watcher, interruption: Interruption, budget: Budget, runs: Path
) -> tuple[Facts, int, tuple[Fit, ...]]:
    """Run discovery; return the facts, the limit in bytes, and what should fit the limit by discovery alone.

    Raises:
        DiscoveryError: the script does not train as it stands, or does not fit the device as it stands.
        RunError: the limit is below what no plan can change.
    """
    found = discover(spec, launcher=launcher, watcher=watcher, interruption=interruption, budget=budget, runs=runs)
    limit_bytes = memory_limit(spec.memory_limit_bytes, memory_of(found.facts.environment))
    watcher.discovered(found.facts, found.baseline, limit_bytes)
    check_limit(found.facts, limit_bytes)
    check_batch_sizes(spec, found.facts)
    assert isinstance(found.baseline, Measured), "judge raises without it"
    space = build_space(found.facts, spec, baseline_fits=_baseline_fits(found, limit_bytes))
    return found.facts, limit_bytes, fits_of(space, found.facts, found.baseline, limit_bytes)


def fit_cards(
    spec: StudySpec,
    cards: Sequence[Card],
    *,
    launcher: Launcher,
    progress: Callable[[int, int], None],
    interruption: Interruption,
    runs: Path,
    look_ahead: int = 0,
) -> tuple[Traced, tuple[CardFit, ...]]:
    """Follow the script's first steps by the sizes of its tensors; return the trace, and what fits each card.

    With ``look_ahead`` so many batches are read ahead, and the steps with all of them are simulated.
    ``progress`` is told how many runs have ended, and how many were asked for.

    Raises:
        DiscoveryError: the script does not come to its second optimizer step so.
        InterruptionError: it was cancelled before. What is cancelled later has no changes.
    """
    run = _following(spec, launcher, interruption, runs)
    return trace_cards(spec, cards, run, look_ahead=look_ahead, at_once=most_at_once(), progress=progress)


def explain(
    spec: StudySpec,
    card: Card,
    *,
    launcher: Launcher,
    interruption: Interruption,
    runs: Path,
    name: str = "trace",
    tries_changes: bool = False,
    look_ahead: int = 0,
    progress: Callable[[int, int], None] = say_nothing,
) -> Explanation:
    """Follow the script's first steps by the sizes of its tensors; return what their peak holds on a card.

    The run is made in a folder of the ``name``. ``tries_changes`` makes some more, of which ``progress`` is told how
    many have ended, and how many were asked for. With ``look_ahead`` so many batches are read ahead, and
    the steps with all of them are simulated.

    Raises:
        DiscoveryError: the script does not come to its second optimizer step so.
        InterruptionError: it was cancelled before.
    """
    run = _following(spec, launcher, interruption, runs)
    request = replace(trace_request(spec, card, look_ahead=look_ahead), tells_places=True)
    traced = trace_once(request, run, name)
    explained = explain_trace(traced, card, script=Path(spec.script).name)
    if not tries_changes:
        return explained
    try:
        changes, untried = try_changes(traced, spec, card, run, at_once=most_at_once(), progress=progress)
    except InterruptionError:
        return explained
    return replace(explained, changes=tuple(changes), untried=tuple(untried))


def _following(
    spec: StudySpec, launcher: Launcher, interruption: Interruption, runs: Path
) -> Callable[[Request, str], RunResult]:
    """Return what makes runs without the GPU; they raise InterruptionError after Ctrl-C.

    A run whose first step shows that the script trains in evaluation mode is made again: of that step its plans, its
    checkpointed blocks and its phases were missed.
    """
    in_evaluation_mode = threading.Event()

    def run(request: Request, name: str) -> RunResult:
        control = request.batch_control or BatchControl("none")
        if in_evaluation_mode.is_set():
            control = replace(control, in_evaluation_mode=True)
            request = replace(request, batch_control=control)
        result = run_once(request, name)
        if result.traced is None or result.traced.batch_control.in_evaluation_mode == control.in_evaluation_mode:
            return result
        in_evaluation_mode.set()
        return run(request, name)

    def run_once(request: Request, name: str) -> RunResult:
        stopped = InterruptionError("stopped before the script was followed", hint="the same command starts it anew")
        if interruption.finish.is_set():
            raise stopped
        result = run_first(launcher, spec, request, runs / name, interruption.cancel)
        if result.traced is None and interruption.finish.is_set():
            raise stopped
        if result.traced is not None:  # what the script has printed is of no use then
            shutil.rmtree(result.directory, ignore_errors=True)
        return result

    return run


def audit(
    spec: StudySpec, *, launcher: Launcher, watcher: Watcher, interruption: Interruption, runs: Path
) -> tuple[Audit, Outcome]:
    """Run the script once as it stands, on the first devices; return its audit and its measurement.

    The audit tells what the script's own checkpointing, offloading and compiling do to saved activations. Where it has
    any of the first two, its first steps are also made with them and without, and compared.

    Raises:
        DiscoveryError: the script does not train as it stands.
        InterruptionError: it was cancelled before that.
    """
    request = replace(audit_request(spec), script_sha256=_hash_of(spec))
    result = run_first(launcher, spec, request, runs / "audit", interruption.cancel, watcher)
    baseline = result.outcomes[0]
    if baseline is not None and interruption.explains(baseline):
        baseline = None
    found = judge(
        result.audit, baseline, result.failure, reason=result.reason, directory=result.directory, wanted="audited"
    )
    assert baseline is not None, "judge raises without one"
    if not found.regions:
        return found, baseline

    def start(name: str, verifying: Verifying) -> RunResult:
        stopped = InterruptionError("the audit was stopped", hint="the same command again starts it anew")
        if interruption.finish.is_set():
            raise stopped
        made = run_first(launcher, spec, region_request(spec, verifying), runs / name, interruption.cancel, watcher)
        if not made.compared and interruption.finish.is_set():
            raise stopped
        return made

    with suppress(InterruptionError):  # what was audited is told
        found = replace(found, proof=prove_regions(start))
    return found, baseline


def verify(
    bundle: Bundle,
    spec: StudySpec,
    *,
    launcher: Launcher,
    cancel: threading.Event,
    runs: Path,
    began: Callable[[str], None],
) -> Proof | None:
    """Prove a bundle on a script; None if it was cancelled."""
    stack = bundle.stack

    def start(name: str, configuration: Configuration, verifying: Verifying) -> RunResult:
        words = name.replace("-", " ").replace("script", ENGINES[configuration.engine].target)
        began(f"{words}: {configuration}")
        request = proof_request(spec, stack, configuration, verifying)
        return run_first(launcher, spec, request, runs / name, cancel)

    return prove(bundle.configuration, start, script_batch_size=_own_batch_size(stack), max_error=stack.max_error)


def gate(
    bundle: Bundle,
    spec: StudySpec,
    baseline: GateBaseline | None,
    *,
    reference: Reference | None,
    other: StudySpec | None,
    allowed: Allowed,
    launcher: Launcher,
    interruption: Interruption,
    runs: Path,
    told: Callable[[str, int, Outcome | None], None],
    least_repetitions: int = 0,
) -> Gate | None:
    """Compare a bundle's setting with its earlier figures; None if the gate was interrupted."""
    stack = bundle.stack
    sitting = Sitting(
        Entrant("setting", spec, bundle.configuration),
        Entrant("script", spec, Configuration(batch_size=_own_batch_size(stack))),
        None if other is None else Entrant("other", other, bundle.configuration),
        batch_control=stack.batch_control,
        accumulation_control=stack.accumulation_control,
        allowed=allowed,
        launcher=launcher,
        interruption=interruption,
        runs=runs,
        told=told,
    )
    before = spec.script_sha256()
    found = sitting.hold(baseline, reference, script_sha256=before, least_repetitions=least_repetitions)
    if found is None or spec.script_sha256() == before:
        return found
    reason = (
        "The script was edited while it was measured, so repetitions of two versions were mixed. Run the gate again."
    )
    return not_comparable(reason, found.reference, (), found.environment)


def gate_limit(
    spec: StudySpec,
    limit_bytes: int,
    bundle: Bundle | None,
    *,
    launcher: Launcher,
    interruption: Interruption,
    runs: Path,
) -> LimitGate | None:
    """Run the first steps of a script, or of a bundle's setting, below a memory limit; None if interrupted."""
    request = limit_request(spec, limit_bytes)
    if bundle is not None:
        request = with_setting(request, spec, bundle.stack, bundle.configuration)
    result = run_first(launcher, spec, request, runs / "limit", interruption.cancel)
    outcome = result.outcomes[0] or result.failure
    if outcome is None or interruption.explains(outcome):
        return None
    return decide_by_run(outcome, result.environment, limit_bytes, setting=_setting_of(bundle))


def gate_cards(
    spec: StudySpec,
    cards: Sequence[Card],
    bundle: Bundle | None,
    *,
    launcher: Launcher,
    interruption: Interruption,
    runs: Path,
    look_ahead: int = 0,
) -> LimitGate:
    """Follow the first steps of a script, or of a bundle's setting, by the sizes of its tensors, for each card.

    With ``look_ahead`` so many batches are read ahead, and the steps with all of them are simulated.

    Raises:
        InterruptionError: it was cancelled before.
    """

    def request_for(card: Card) -> Request:
        request = trace_request(spec, card, look_ahead=look_ahead)
        return request if bundle is None else with_setting(request, spec, bundle.stack, bundle.configuration)

    run = _following(spec, launcher, interruption, runs)
    try:
        traced, fits = trace_setting(cards, request_for, run, at_once=most_at_once())
    except DiscoveryError as error:
        return decide_without_answer(error, cards)
    return decide_by_cards(
        fits,
        batch_size=traced.batch_size,
        steps=traced.steps,
        cautions=(*batch_sentences(traced.ahead, neediest(fits), fits), *cautions(traced, fits)),
        setting=_setting_of(bundle),
    )


def _setting_of(bundle: Bundle | None) -> str:
    return "" if bundle is None else str(bundle.configuration)


@contextmanager
def beating(study: Study) -> Iterator[None]:
    """Write heartbeats of this process in the block: a run may be silent for longer than other processes wait."""
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
    """Return what a study knows from its discovery; None without facts or baseline.

    Raises:
        UsageError: the study's script has changed since.
    """
    baseline = record.baseline
    if record.facts is None or baseline is None or baseline.outcome is None:
        return None
    _check_unchanged(record, record.facts)
    return Discovered(record.facts, baseline.outcome, baseline.run_directory)


def _own_batch_size(stack: Stack) -> int | None:
    """Return whatever the script does by itself, unless its arguments have to say it."""
    return stack.script_batch_size if stack.batch_control.how == "arguments" else None


def _baseline_fits(found: Discovered, limit_bytes: int) -> bool:
    """Return whether the script as it stands may be the answer, as far as its memory goes."""
    measured = found.baseline.measurement if isinstance(found.baseline, Measured) else None
    return measured is not None and is_feasible(measured, limit_bytes, baseline_is_finite=not measured.nonfinite_loss)


def _check_unchanged(record: StudyRecord, facts: Facts) -> None:
    """Raise UsageError if the script has changed: a study's measurements belong to one version of its script."""
    if _hash_of(record.spec) != facts.script_sha256:
        raise UsageError(
            f"{record.spec.title} has changed since study {record.name!r} began, so its measurements are not valid",
            hint="start a new study: `autotune run` with another --study NAME",
        )


def _hash_of(spec: StudySpec) -> str:
    """Return the hash of the script as it is now; UsageError if the script is gone."""
    try:
        return spec.script_sha256()
    except OSError as error:
        raise UsageError(
            f"the study's script {spec.script!r} is gone: {error.strerror}", hint="put it back, or start anew"
        ) from None
