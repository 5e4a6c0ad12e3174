"""From a study's record to its report."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

from ..records.configuration import Configuration
from ..records.facts import Facts
from ..records.figures import Figures, summary_of
from ..records.global_batch import accumulation_seen, accumulation_to_keep, global_batch
from ..records.measurement import Measurement
from ..records.outcome import Measured, OutOfMemory
from ..records.printable import launch_command, printable_strings
from ..records.schedules import schedule_caution
from ..records.study import Comparison, StudyRecord, Verdict
from ..records.study_results import as_measured, figures_of, proof_of, repetitions_of, script_figures_of
from ..records.words import recomputed_words, setting_words, sized_words
from ..verdict.feasible import Flaw, flaws_of, front
from ..verdict.finalists import baseline_is_finite
from ..verdict.gain import compiled_gain, gain_of
from ..verdict.memory_limit import answer_limit_of, limit_of
from .foresight import foreseen_of, steps_of
from .record import (
    DescribedScript,
    Finalist,
    GlobalBatches,
    Launch,
    Point,
    Report,
    ReportedAnswer,
    ReportedCompiled,
    ReportedSetting,
    ReportedStudy,
)
from .tree import model_tree


def build_report(record: StudyRecord, *, bundle: str | None = "BUNDLE", command: str | None = None) -> Report:
    """Return the report of a study, at any stage of it.

    ``bundle`` is the bundle's folder as the command that runs it should name it, None if there is none. ``command`` is
    that command, where it is known better than from names alone.
    """
    limit, answer_limit = limit_of(record), answer_limit_of(record)
    verdict, script = record.verdict, Path(record.spec.title).name
    winner = None if verdict is None else verdict.winner
    baseline = None if record.facts is None else record.facts.baseline
    report = Report(
        **({"dimensions": {}, "per_sample": {}} if record.facts is None else _described(record.facts)),
        study=ReportedStudy(record.name, record.created_at, record.autotune, script),
        verdict=None if verdict is None else _answer(record, verdict),
        launch=_launch(record, bundle, command),
        limit_bytes=limit,
        target_bytes=answer_limit if answer_limit != limit else None,
        baseline=_setting(record, baseline, script_figures_of(record, winner)),
        winner=_setting(record, winner, None if winner is None else figures_of(record, winner)),
        gain=gain_of(record),
        global_batch=GlobalBatches(global_batch(record, baseline), global_batch(record, winner)),
        cautions=() if winner is None else tuple(filter(None, [schedule_caution(record, winner)])),
        finalists=tuple(_finalist(record, one) for one in (verdict.comparisons if verdict else ())),
        points=_points(record, answer_limit, baseline, winner),
        steps=steps_of(record, baseline, winner),
        model=model_tree(record, baseline, winner),
        # Folders belong to the machine, and the arguments stand with the script.
        settings=dataclasses.replace(record.spec, script=script, working_directory="", python="", arguments=()),
        spent=None if verdict is None else verdict.spent,
        compiled=_compiled(record),
    )
    return printable_strings(report)


def describe_facts(facts: Facts) -> DescribedScript:
    """Return the part of a report that discovery alone knows."""
    return printable_strings(DescribedScript(**_described(facts)))


def _finalist(record: StudyRecord, compared: Comparison) -> Finalist:
    setting = compared.configuration
    # Stored before verdicts held figures: the repetitions have them.
    if compared.repetitions and compared.figures is None:
        compared = dataclasses.replace(
            compared, figures=figures_of(record, setting), baseline_figures=script_figures_of(record, setting)
        )
    return Finalist(**_fields(compared), text=str(setting))


def _fields(record: Figures | Comparison) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}


def _described(facts: Facts) -> dict[str, Any]:
    named = {"plans": facts.clusters, "batch_size": facts.baseline.batch_size}
    alike = {field.name for field in dataclasses.fields(DescribedScript)} - named.keys()
    return {name: getattr(facts, name) for name in alike} | named


def _answer(record: StudyRecord, verdict: Verdict) -> ReportedAnswer:
    repetitions = [one.outcome.measurement for one in record.repeats if one.outcome.measurement]
    rests_on = repetitions or [trial.measured for trial in record.shown if trial.measured]
    return ReportedAnswer(
        answer=verdict.kind_of_answer,
        reason=verdict.reason,
        remarks=verdict.remarks,
        stop_reason=verdict.stop_reason,
        is_confirmed=_is_confirmed(record, verdict),
        proof=None if verdict.winner is None else proof_of(record, verdict.winner),
        measured_in="repetitions" if repetitions else "trials",
        num_measured=len(rests_on),
        num_contended=sum(one.contended for one in rests_on),
    )


def _is_confirmed(record: StudyRecord, verdict: Verdict) -> bool:
    winner = verdict.winner
    if verdict.kind_of_answer == "undecided" or verdict.needed_s is not None:
        return False
    if winner is None or (record.facts is not None and winner.key == record.facts.baseline.key):
        return True
    return bool(repetitions_of(record.repeats, winner)) and (
        winner.is_untouched or proof_of(record, winner) is not None
    )


def _setting(
    record: StudyRecord, configuration: Configuration | None, figures: Figures | None
) -> ReportedSetting | None:
    script_accumulation = accumulation_seen(record)
    seen = accumulation_seen(record, configuration)
    if configuration is None or figures is None or record.facts is None or seen is None or script_accumulation is None:
        return None
    return ReportedSetting(
        **_fields(figures),
        configuration=configuration,
        text=str(configuration),
        recomputed=recomputed_words(configuration, record.facts.clusters),
        sized=sized_words(as_measured(record, configuration).sized),
        batch_size=configuration.batch_size,
        accumulation=configuration.accumulation or seen,
        accumulation_for_same_global_batch=accumulation_to_keep(
            script_accumulation, record.facts.baseline.batch_size, configuration.batch_size
        ),
        peak_bytes=figures.peaks.fit_bytes,
    )


def _compiled(record: StudyRecord) -> ReportedCompiled | None:
    run = None if record.verdict is None else record.verdict.compiled
    if run is None or record.facts is None:
        return None
    measured = run.outcome.measurement
    return ReportedCompiled(
        choice=run.choice,
        setting=str(run.configuration),
        words=setting_words(run.configuration, record.facts.clusters),
        outcome=run.outcome.kind,
        cause="" if isinstance(run.outcome, Measured) else run.outcome.cause,
        figures=None if measured is None else summary_of([measured]),
        gain=compiled_gain(record),
    )


def _launch(record: StudyRecord, bundle: str | None, command: str | None) -> Launch:
    script, arguments = Path(record.spec.script).name, record.spec.arguments
    if command is None and bundle is not None:
        command = launch_command(bundle, script, arguments, module=record.spec.module)
    return Launch(bundle, script, arguments, command)


def _points(
    record: StudyRecord, limit: int | None, baseline: Configuration | None, winner: Configuration | None
) -> tuple[Point, ...]:
    trials = record.shown
    # Until the script is known, a loss that is not a number is held against a trial.
    is_finite = record.facts is None or baseline_is_finite(trials, record.facts)
    on_front = {trial.number for trial in front(trials, baseline_is_finite=is_finite)}
    foreseen = foreseen_of(record)
    points = []
    for trial in trials:
        configuration, outcome, measured = trial.configuration, trial.outcome, trial.measured
        failure = None if isinstance(outcome, Measured) else outcome
        flaws: frozenset[Flaw] = frozenset()
        if measured is not None:
            flaws = flaws_of(measured, math.inf if limit is None else limit, baseline_is_finite=is_finite)
        points.append(
            Point(
                number=trial.number,
                configuration=str(configuration),
                engine=configuration.engine,
                level=configuration.level,
                batch_size=configuration.batch_size,
                plans=tuple(map(str, configuration.plans)),
                is_baseline=baseline is not None and configuration.key == baseline.key,
                is_winner=winner is not None and configuration.key == winner.key,
                outcome=trial.state if outcome is None else outcome.kind,
                cause="" if failure is None else failure.cause,
                advice="" if failure is None else failure.advice,
                figures=None if measured is None else summary_of([measured]),
                needed_bytes=outcome.needed_bytes if isinstance(outcome, OutOfMemory) else None,
                foreseen_bytes=foreseen.get(configuration.key),
                fits=measured is not None and not flaws & {"peak_unknown", "over_limit"},
                on_front=trial.number in on_front,
                thrashed="thrashed" in flaws,
                diverged="loss_not_finite" in flaws,
                notes=() if measured is None else _notes(measured, flaws),
                conditions=None if measured is None else measured.conditions,
                started_at=trial.started_at,
                took_s=None if trial.finished_at is None else trial.finished_at - trial.started_at,
            )
        )
    return tuple(points)


def _notes(measured: Measurement, flaws: frozenset[Flaw]) -> tuple[str, ...]:
    notes = list(measured.notes)
    if measured.contended:
        notes.append("contended: other processes were busy here meanwhile")
    if measured.samples_are_guessed:
        notes.append("samples are guessed from the shape of the input")
    if measured.nonfinite_loss and "loss_not_finite" not in flaws:
        notes.append("the loss is NaN or infinite, as that of your script is")
    return tuple(notes)
