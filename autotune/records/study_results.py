"""Results of a study for one configuration: its repetitions, its figures, its proof."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .configuration import Configuration
from .figures import Figures, summary_of
from .gate import Reading
from .measurement import Measurement
from .proof import Proof
from .study import Repeat, StudyRecord


def figures_of(record: StudyRecord, configuration: Configuration) -> Figures | None:
    """Return what was measured of ``configuration``, in its repetitions or else in its trial; None if nothing was."""
    return _figures_of(record, configuration, repetitions_of(record.repeats, configuration))


def script_figures_of(record: StudyRecord, beside: Configuration | None) -> Figures | None:
    """Return what was measured of the script as it is, in the same repetitions as ``beside`` where that was in some.

    Confirmations may be on different machines, so a setting goes with what was measured of the script in turns with it.
    """
    if record.facts is None:
        return None
    baseline, ours = record.facts.baseline, repetitions_of(record.repeats, beside) if beside is not None else ()
    confirmations = {one.confirmation for one in ours}
    own = tuple(
        one for one in record.repeats if one.configuration.key == baseline.key and one.confirmation in confirmations
    )
    return _figures_of(record, baseline, own or repetitions_of(record.repeats, baseline))


def _figures_of(record: StudyRecord, configuration: Configuration, repetitions: Sequence[Repeat]) -> Figures | None:
    measured = [repeat.outcome.measurement for repeat in repetitions if repeat.outcome.measurement]
    measured = measured or trials_of(record, configuration)[:1]
    return summary_of(measured) if measured else None


def trials_of(record: StudyRecord, configuration: Configuration) -> list[Measurement]:
    """Return what the trials of a configuration measured, the first one first."""
    return [
        trial.measured for trial in record.trials if trial.measured and trial.configuration.key == configuration.key
    ]


def as_measured(record: StudyRecord, configuration: Configuration) -> Configuration:
    """Return a configuration with the plans that smaller batches were measured with, where measurements agree.

    Those are its repetitions, or else its first trial.
    """
    repeats = [one.outcome.measurement for one in repetitions_of(record.repeats, configuration)]
    measured = [one for one in repeats if one is not None] or trials_of(record, configuration)[:1]
    found = {one.sized for one in measured}
    return replace(configuration, sized=configuration.sized or (found.pop() if len(found) == 1 else ()))


def repetitions_of(repeats: Sequence[Repeat], configuration: Configuration) -> tuple[Repeat, ...]:
    """Return a configuration's repetitions, in order, of the confirmation with most of them, the latest of several."""
    confirmations: dict[int, list[Repeat]] = {}
    for repeat in repeats:
        if repeat.configuration.key == configuration.key:
            confirmations.setdefault(repeat.confirmation, []).append(repeat)
    if not confirmations:
        return ()
    chosen = max(confirmations, key=lambda confirmation: (len(confirmations[confirmation]), confirmation))
    return tuple(sorted(confirmations[chosen], key=lambda repeat: repeat.repetition))


def readings_of(record: StudyRecord, configuration: Configuration) -> tuple[Reading | None, Reading | None]:
    """Return what each repetition measured of ``configuration``, and of the script in the same repetitions.

    Without such repetitions of the script, those of ``configuration`` alone, or else its only trial. None for what was
    not measured, or not counted.
    """
    baseline = None if record.facts is None else record.facts.baseline
    ours = repetitions_of(record.repeats, configuration)
    own = {
        (one.confirmation, one.repetition): one
        for one in record.repeats
        if baseline and one.configuration.key == baseline.key
    }
    pairs = [
        (mine.outcome.measurement, his.outcome.measurement)
        for mine in ours
        if (his := own.get((mine.confirmation, mine.repetition)))
        and mine.outcome.measurement
        and his.outcome.measurement
    ]
    if pairs:
        setting, script = reading_of([mine for mine, _ in pairs]), reading_of([his for _, his in pairs])
        return setting, None if setting is None else script
    alone = [one.outcome.measurement for one in ours if one.outcome.measurement]
    return reading_of(alone or trials_of(record, configuration)[:1]), None


def reading_of(measurements: Sequence[Measurement]) -> Reading | None:
    """Return what repetitions measured; None if there are none, or a figure is missing that ratios could be made of."""
    reading = Reading(
        tuple(one.samples_per_s for one in measurements), tuple(one.peaks.fit_bytes or 0 for one in measurements)
    )
    return reading if reading.is_usable else None


def proof_of(record: StudyRecord, configuration: Configuration) -> Proof | None:
    """Return the proof of ``configuration``; None if there is none."""
    proofs = () if record.verdict is None else record.verdict.proofs
    return next((proof for proof in proofs if proof.configuration.key == configuration.key), None)
