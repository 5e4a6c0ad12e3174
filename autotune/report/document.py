"""One versioned JSON document that says everything a report shows, so that terminal, page and dashboard agree.

Names, figures and sentences only: the folders of the machine that ran the study are left out, because a report is
passed on. Every string in it prints (see ``records.printable``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..records import (
    Comparison,
    Configuration,
    Facts,
    Measured,
    OutOfMemory,
    PhaseMemory,
    StudyRecord,
    Trial,
    Verdict,
    from_json,
    to_json,
)
from ..records.command import launch_command
from ..records.figures import (
    accumulation_seen,
    accumulation_to_keep,
    figures_of,
    global_batch,
    peak_bytes,
    proof_of,
    rounds_of,
)
from ..records.printable import printable_json
from ..records.words import recomputed_words, setting_words
from ..verdict import Gain, answer_limit_of, baseline_is_finite, flaws_of, front, gain_of, limit_of

__all__ = ["DOCUMENT_VERSION", "Document", "build_document", "describe_facts", "memory_matrix_of", "winner_word"]

DOCUMENT_VERSION = 1

Document = Mapping[str, Any]
"""What ``build_document`` gives, or the part of it that ``describe_facts`` does."""

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
        (of the answer, where that is less), the keys of ``describe_facts``, ``baseline``, ``winner``, ``gain`` (the
        winner's, in parts), ``global_batch`` (what an optimizer step takes ``before`` and ``after``), ``finalists``,
        ``points`` (one per trial; ``fits`` says whether it may be the answer as far as memory goes, ``on_front``
        whether no other trial was as fast with no more memory) and ``settings``, ``objective`` among them.
    """
    limit, answer_limit = limit_of(record), answer_limit_of(record)
    verdict = record.verdict
    winner = None if verdict is None else verdict.winner
    baseline = None if record.facts is None else record.facts.baseline
    document = {
        "document_version": DOCUMENT_VERSION,
        "study": {
            "name": record.name,
            "created_at": record.created_at,
            "autotune": record.autotune,
            "script": Path(record.spec.title).name,
        },
        "verdict": None
        if verdict is None
        else {
            "answer": verdict.kind_of_answer,
            "reason": verdict.reason,
            "stop_reason": verdict.stop_reason,
            "is_confirmed": _is_confirmed(record, verdict),
            "proof": None if winner is None else to_json(proof_of(record, winner)),
        },
        "launch": _launch(record, bundle, command),
        "limit_bytes": limit,
        "target_bytes": answer_limit if answer_limit != limit else None,
        **(describe_facts(record.facts) if record.facts is not None else _NO_FACTS),
        "baseline": _described(record, baseline),
        "winner": _described(record, winner),
        "gain": _gain(gain_of(record), record),
        "global_batch": {"before": _global_batch(record, baseline), "after": _global_batch(record, winner)},
        "finalists": [_finalist(one) for one in (verdict.comparisons if verdict is not None else ())],
        "points": _points(record, answer_limit, baseline, winner),
        "settings": {name: value for name, value in to_json(record.spec).items() if name not in _PRIVATE},
    }
    shown: dict[str, Any] = printable_json(document)
    return shown


def describe_facts(facts: Facts) -> dict[str, Any]:
    """Give the part of the document that discovery alone knows.

    Returns:
        JSON: ``environment``, ``split``, ``memory_matrix``, ``plans``, ``outside``, ``dimensions``, ``batch_size``,
        ``batch_control``, ``accumulation_control``, ``epoch``, ``roots``, ``optimizers``, ``precision``, ``notes``,
        ``calibration``, ``fork_refusal``, ``per_sample`` and ``undescribed``.
    """
    described: dict[str, Any] = printable_json(
        {
            "environment": to_json(facts.environment),
            "split": to_json(facts.split),
            "memory_matrix": to_json(facts.memory_matrix),
            "plans": [to_json(row) for row in facts.clusters],
            "outside": [to_json(row) for row in facts.outside],
            "dimensions": facts.dimensions,
            "batch_size": facts.baseline.batch_size or None,
            "batch_control": to_json(facts.batch_control),
            "accumulation_control": to_json(facts.accumulation_control),
            "epoch": to_json(facts.epoch),
            "roots": to_json(facts.roots),
            "optimizers": to_json(facts.optimizers),
            "precision": to_json(facts.precision),
            "notes": list(facts.notes),
            "calibration": to_json(facts.calibration),
            "fork_refusal": facts.fork_refusal,
            "per_sample": facts.per_sample,
            "undescribed": None if facts.undescribed is None else to_json(facts.undescribed),
        }
    )
    return described


def _is_confirmed(record: StudyRecord, verdict: Verdict) -> bool:
    """Whether the answer was measured in rounds and proven, or is the script itself."""
    winner = verdict.winner
    if verdict.kind_of_answer == "undecided" or verdict.needed_s is not None:
        return False
    if winner is None or (record.facts is not None and winner.key == record.facts.baseline.key):
        return True
    return bool(rounds_of(record.repeats, winner)) and (winner.is_untouched or proof_of(record, winner) is not None)


def winner_word(document: Document) -> str:
    """What the setting is called that the answer names: ``winner``, or ``best so far`` while nothing confirmed it.

    Where the baseline does not fit there is nothing to be better than, and what is left to confirm is that the setting
    was measured again and that it trains as the script does.
    """
    verdict = document["verdict"]
    return "winner" if verdict is None or verdict["is_confirmed"] else "best so far"


def memory_matrix_of(document: Document) -> list[PhaseMemory]:
    """The rows of the document's memory matrix."""
    return [from_json(PhaseMemory, row) for row in document["memory_matrix"]]


_NO_FACTS: dict[str, Any] = {
    "environment": None,
    "split": None,
    "memory_matrix": [],
    "plans": [],
    "outside": [],
    "dimensions": {},
    "batch_size": None,
    "batch_control": None,
    "accumulation_control": None,
    "epoch": None,
    "roots": [],
    "optimizers": [],
    "precision": None,
    "notes": [],
    "calibration": None,
    "fork_refusal": "",
    "per_sample": {},
    "undescribed": None,
}


def _described(record: StudyRecord, configuration: Configuration | None) -> dict[str, Any] | None:
    """A configuration with its figures, and what it means for the global batch."""
    figures = None if configuration is None else figures_of(record, configuration)
    seen = accumulation_seen(record)
    if configuration is None or figures is None or record.facts is None or seen is None:
        return None
    batch_size = configuration.batch_size
    kept = accumulation_to_keep(seen, record.facts.baseline.batch_size, batch_size)
    return {
        "configuration": to_json(configuration),
        "text": str(configuration),
        "recomputed": recomputed_words(configuration, record.facts.clusters),
        "batch_size": batch_size or None,
        "accumulation": configuration.accumulation or seen,
        "accumulation_for_same_global_batch": kept,
        "peak_bytes": peak_bytes(figures.peaks),
        **to_json(figures),
    }


def _gain(gain: Gain | None, record: StudyRecord) -> dict[str, Any] | None:
    if gain is None:
        return None
    clusters = () if record.facts is None else record.facts.clusters

    def words(configuration: Configuration) -> str:
        return setting_words(configuration, clusters)

    plain = gain.without_recompute
    return {
        "quantity": gain.quantity,
        "factor": gain.factor,
        "parts": [
            {
                "kinds": list(part.kinds),
                "factor": part.factor,
                "reached": str(part.reached),
                "words": words(part.reached),
                "fits": part.fits,
            }
            for part in gain.parts
        ],
        "missing": [
            {"setting": str(one.configuration), "words": words(one.configuration), "outcome": one.outcome}
            for one in gain.missing
        ],
        "without_recompute": None
        if plain is None
        else {"setting": str(plain[0]), "words": words(plain[0]), "factor": plain[1]},
    }


def _global_batch(record: StudyRecord, configuration: Configuration | None) -> dict[str, Any] | None:
    taken = None if configuration is None else global_batch(record, configuration)
    return None if taken is None else to_json(taken) | {"samples": taken.samples}


def _launch(record: StudyRecord, bundle: str | None, command: str | None) -> dict[str, Any]:
    script, arguments, module = Path(record.spec.script).name, record.spec.arguments, record.spec.module
    if command is None and bundle is not None:
        command = launch_command(bundle, script, arguments, module=module)
    return {"bundle": bundle, "script": script, "arguments": list(arguments), "command": command}


def _finalist(comparison: Comparison) -> dict[str, Any]:
    shown: dict[str, Any] = to_json(comparison)
    return shown | {"text": str(comparison.configuration)}


def _points(
    record: StudyRecord, limit: int | None, baseline: Configuration | None, winner: Configuration | None
) -> list[dict[str, Any]]:
    own = record.shown
    is_finite = record.facts is None or baseline_is_finite(own, record.facts)
    on_front = {trial.number for trial in front(own, baseline_is_finite=is_finite)}
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
        "batch_size": configuration.batch_size or None,
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
    notes = list(measurement.notes)
    if measurement.contended:
        notes.append("contended: other processes were busy here meanwhile")
    if measurement.nonfinite_loss:
        notes.append("the loss was not finite")
    if measurement.samples_are_guessed:
        notes.append("samples are guessed from the shape of the input")
    flaws = flaws_of(measurement, math.inf if limit is None else limit, baseline_is_finite=True)
    return {
        "samples_per_s": measurement.samples_per_s,
        "low": low,
        "high": high,
        "peak_bytes": peak_bytes(measurement.peaks),
        "fits": not flaws & {"peak_unknown", "over_limit"},
        "thrashed": "thrashed" in flaws,
        "notes": notes,
    }
