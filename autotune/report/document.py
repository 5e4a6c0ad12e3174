"""One versioned JSON document that says everything a report shows, so that terminal, page and dashboard agree.

Names, figures and sentences only: the folders of the machine that ran the study are left out, because a report is
passed on. Every string in it prints (see ``records.printable``).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..records import Comparison, Configuration, Facts, Measured, OutOfMemory, StudyRecord, Trial, to_json
from ..records.command import launch_command
from ..records.figures import (
    accumulation_seen,
    accumulation_to_keep,
    answer_limit_bytes,
    figures_of,
    front,
    memory_limit_bytes,
    peak_bytes,
    proof_of,
)
from ..records.printable import printable_json

__all__ = ["DOCUMENT_VERSION", "build_document", "describe_facts"]

DOCUMENT_VERSION = 1

# Left out of the settings: folders, which belong to the machine, and the arguments, which stand with the script.
_PRIVATE = frozenset({"script", "working_directory", "python", "arguments"})


def build_document(record: StudyRecord, *, bundle: str | None = "BUNDLE", command: str | None = None) -> dict[str, Any]:
    """Give the report document of a study, at any stage of it; what is not known yet is None or empty.

    Args:
        record: The study.
        bundle: The bundle's folder as the command that runs it should name it; None if there is none.
        command: That command, where it is known better than from names alone.

    Returns:
        JSON: ``document_version``, ``study``, ``verdict``, ``launch``, ``limit_bytes`` (of trials), ``target_bytes``
        (of the answer, where that is less), the keys of ``describe_facts``, ``baseline``, ``winner``, ``finalists``,
        ``points`` (one per trial; ``fits`` says whether it may be the answer as far as memory goes, ``on_front``
        whether no other trial was as fast with no more memory) and ``settings``, ``objective`` among them.
    """
    limit, answer_limit = memory_limit_bytes(record), answer_limit_bytes(record)
    verdict = record.verdict
    winner = None if verdict is None else verdict.winner
    baseline = None if record.facts is None else record.facts.baseline
    document = {
        "document_version": DOCUMENT_VERSION,
        "study": {
            "name": record.name,
            "created_at": record.created_at,
            "autotune": record.autotune,
            "script": Path(record.spec.script).name,
        },
        "verdict": None
        if verdict is None
        else {
            "answer": verdict.kind_of_answer,
            "reason": verdict.reason,
            "stop_reason": verdict.stop_reason,
            "proof": None if winner is None else to_json(proof_of(record, winner)),
        },
        "launch": _launch(record, bundle, command),
        "limit_bytes": limit,
        "target_bytes": answer_limit if answer_limit != limit else None,
        **(describe_facts(record.facts) if record.facts is not None else _NO_FACTS),
        "baseline": _described(record, baseline),
        "winner": _described(record, winner),
        "finalists": [_finalist(one) for one in (verdict.comparisons if verdict is not None else ())],
        "points": _points(record.trials, answer_limit, baseline, winner),
        "settings": {name: value for name, value in to_json(record.spec).items() if name not in _PRIVATE},
    }
    shown: dict[str, Any] = printable_json(document)
    return shown


def describe_facts(facts: Facts) -> dict[str, Any]:
    """Give the part of the document that discovery alone knows.

    Returns:
        JSON: ``environment``, ``split``, ``memory_matrix``, ``plans``, ``dimensions``, ``batch_size``,
        ``batch_control``, ``roots``, ``optimizers``, ``precision``, ``notes``, ``calibration`` and ``fork_refusal``.
    """
    described: dict[str, Any] = printable_json(
        {
            "environment": to_json(facts.environment),
            "split": to_json(facts.split),
            "memory_matrix": to_json(facts.memory_matrix),
            "plans": [to_json(row) for row in facts.clusters],
            "dimensions": facts.dimensions,
            "batch_size": facts.batch_size,
            "batch_control": to_json(facts.batch_control),
            "roots": to_json(facts.roots),
            "optimizers": to_json(facts.optimizers),
            "precision": to_json(facts.precision),
            "notes": list(facts.notes),
            "calibration": to_json(facts.calibration),
            "fork_refusal": facts.fork_refusal,
        }
    )
    return described


_NO_FACTS: dict[str, Any] = {
    "environment": None,
    "split": None,
    "memory_matrix": [],
    "plans": [],
    "dimensions": {},
    "batch_size": None,
    "batch_control": None,
    "roots": [],
    "optimizers": [],
    "precision": None,
    "notes": [],
    "calibration": None,
    "fork_refusal": "",
}


def _described(record: StudyRecord, configuration: Configuration | None) -> dict[str, Any] | None:
    """A configuration with its figures, and what it means for the global batch."""
    figures = None if configuration is None else figures_of(record, configuration)
    accumulation = accumulation_seen(record)
    if configuration is None or figures is None or record.facts is None or accumulation is None:
        return None
    script_batch_size = record.facts.batch_size
    batch_size = configuration.batch_size if configuration.batch_size is not None else script_batch_size
    return {
        "configuration": to_json(configuration),
        "text": str(configuration),
        "batch_size": batch_size,
        "accumulation": accumulation,
        "accumulation_for_same_global_batch": accumulation_to_keep(accumulation, script_batch_size, batch_size),
        "peak_bytes": peak_bytes(figures.peaks),
        **to_json(figures),
    }


def _launch(record: StudyRecord, bundle: str | None, command: str | None) -> dict[str, Any]:
    script, arguments = Path(record.spec.script).name, record.spec.arguments
    if command is None and bundle is not None:
        command = launch_command(bundle, script, arguments)
    return {"bundle": bundle, "script": script, "arguments": list(arguments), "command": command}


def _finalist(comparison: Comparison) -> dict[str, Any]:
    shown: dict[str, Any] = to_json(comparison)
    return shown | {"text": str(comparison.configuration)}


def _points(
    trials: Iterable[Trial], limit: int | None, baseline: Configuration | None, winner: Configuration | None
) -> list[dict[str, Any]]:
    # A recovered trial was given back before it was measured; another number stands for its configuration.
    own = [trial for trial in trials if not trial.recovered]
    on_front = {trial.number for trial in front(own)}
    return [_point(trial, limit, baseline, winner) | {"on_front": trial.number in on_front} for trial in own]


def _point(
    trial: Trial, limit: int | None, baseline: Configuration | None, winner: Configuration | None
) -> dict[str, Any]:
    configuration = trial.configuration
    point: dict[str, Any] = {
        "number": trial.number,
        "configuration": str(configuration),
        "engine": configuration.engine,
        "level": configuration.level,
        "batch_size": configuration.batch_size,
        "plans": [str(plan) for plan in configuration.plans],
        "is_baseline": baseline is not None and configuration.key == baseline.key,
        "is_winner": winner is not None and configuration.key == winner.key,
        "outcome": trial.state if trial.outcome is None else trial.outcome.kind,
        "cause": "",
        "advice": "",
        "samples_per_s": None,
        "low": None,
        "high": None,
        "peak_bytes": None,
        "needed_bytes": None,
        "fits": False,
        "thrashed": False,
        "notes": [],
        "started_at": trial.started_at,
        "took_s": None if trial.finished_at is None else trial.finished_at - trial.started_at,
    }
    if isinstance(trial.outcome, Measured):
        return point | _measured(trial.outcome, limit)
    if trial.outcome is not None:
        point |= {"cause": trial.outcome.cause, "advice": trial.outcome.advice}
    if isinstance(trial.outcome, OutOfMemory):
        point["needed_bytes"] = trial.outcome.needed_bytes
    return point


def _measured(outcome: Measured, limit: int | None) -> dict[str, Any]:
    measurement = outcome.measurement
    low, high = measurement.samples_per_s_interval
    peak = peak_bytes(measurement.peaks)
    notes = list(measurement.notes)
    if measurement.contended:
        notes.append("contended: other processes were busy here meanwhile")
    if measurement.nonfinite_loss:
        notes.append("the loss was not finite")
    if measurement.samples_are_guessed:
        notes.append("samples are guessed from the shape of the input")
    return {
        "samples_per_s": measurement.samples_per_s,
        "low": low,
        "high": high,
        "peak_bytes": peak,
        "fits": peak is not None and (limit is None or peak <= limit),
        "thrashed": measurement.allocator_retries > 0,
        "notes": notes,
    }
