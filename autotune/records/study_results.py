"""Results of a study for one configuration: its rounds, its figures, its proof."""

from __future__ import annotations

from collections.abc import Sequence

from .configuration import Configuration
from .figures import Figures, summary_of
from .gate import Reading
from .measurement import Measurement
from .proof import Proof
from .study import Repeat, StudyRecord


def figures_of(record: StudyRecord, configuration: Configuration) -> Figures | None:
    """Return what was measured of ``configuration``, in its rounds or else in its trial; None if nothing was."""
    return _figures_of(record, configuration, rounds_of(record.repeats, configuration))


def script_figures_of(record: StudyRecord, beside: Configuration | None) -> Figures | None:
    """Return what was measured of the script as it is, in the same rounds as ``beside`` where that was in some.

    Finals may be on different machines, so a setting goes with what was measured of the script in turns with it.
    """
    if record.facts is None:
        return None
    baseline, ours = record.facts.baseline, rounds_of(record.repeats, beside) if beside is not None else ()
    finals = {one.final for one in ours}
    own = tuple(one for one in record.repeats if one.configuration.key == baseline.key and one.final in finals)
    return _figures_of(record, baseline, own or rounds_of(record.repeats, baseline))


def _figures_of(record: StudyRecord, configuration: Configuration, rounds: Sequence[Repeat]) -> Figures | None:
    measured = [repeat.outcome.measurement for repeat in rounds if repeat.outcome.measurement]
    measured = measured or _trials_of(record, configuration)[:1]
    return summary_of(measured) if measured else None


def _trials_of(record: StudyRecord, configuration: Configuration) -> list[Measurement]:
    return [
        trial.measured for trial in record.trials if trial.measured and trial.configuration.key == configuration.key
    ]


def rounds_of(repeats: Sequence[Repeat], configuration: Configuration) -> tuple[Repeat, ...]:
    """Return a configuration's rounds, in order, of one final: of the latest among those that have most of them."""
    finals: dict[int, list[Repeat]] = {}
    for repeat in repeats:
        if repeat.configuration.key == configuration.key:
            finals.setdefault(repeat.final, []).append(repeat)
    if not finals:
        return ()
    chosen = max(finals, key=lambda final: (len(finals[final]), final))
    return tuple(sorted(finals[chosen], key=lambda repeat: repeat.round))


def readings_of(record: StudyRecord, configuration: Configuration) -> tuple[Reading | None, Reading | None]:
    """Return what each round measured of ``configuration``, and of the script as it stands in the same rounds.

    Without such rounds of the script, those of ``configuration`` alone, or else its only trial. None for what was not
    measured, or not counted.
    """
    baseline = None if record.facts is None else record.facts.baseline
    ours = rounds_of(record.repeats, configuration)
    own = {(one.final, one.round): one for one in record.repeats if baseline and one.configuration.key == baseline.key}
    pairs = [
        (mine.outcome.measurement, his.outcome.measurement)
        for mine in ours
        if (his := own.get((mine.final, mine.round))) and mine.outcome.measurement and his.outcome.measurement
    ]
    if pairs:
        setting, script = reading_of([mine for mine, _ in pairs]), reading_of([his for _, his in pairs])
        return setting, None if setting is None else script
    alone = [one.outcome.measurement for one in ours if one.outcome.measurement]
    return reading_of(alone or _trials_of(record, configuration)[:1]), None


def reading_of(measurements: Sequence[Measurement]) -> Reading | None:
    """Return what rounds measured; None if there are none, or a figure is missing that ratios could be made of."""
    reading = Reading(
        tuple(one.samples_per_s for one in measurements), tuple(one.peaks.fit_bytes or 0 for one in measurements)
    )
    return reading if reading.is_usable else None


def proof_of(record: StudyRecord, configuration: Configuration) -> Proof | None:
    """Return the proof of ``configuration``; None if there is none."""
    proofs = () if record.verdict is None else record.verdict.proofs
    return next((proof for proof in proofs if proof.configuration.key == configuration.key), None)
