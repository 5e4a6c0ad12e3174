"""What follows from a study's records: a configuration's rounds and figures, the front, the limit, the accumulation.

The bundle and the report both state these, so they are worked out in one place.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from .configuration import Configuration
from .measurement import Measurement, Peaks
from .outcome import Measured
from .proof import Proof
from .stack import Figures
from .study import Repeat, StudyRecord, Trial

__all__ = [
    "accumulation_seen",
    "accumulation_to_keep",
    "answer_limit_bytes",
    "figures_of",
    "format_rate",
    "front",
    "memory_limit_bytes",
    "peak_bytes",
    "proof_of",
    "rounds_of",
]

# Samples are counted, and a last batch may be short: a ratio this close to a whole number is that number.
_WHOLE = 0.01


def figures_of(record: StudyRecord, configuration: Configuration) -> Figures | None:
    """What was measured of ``configuration``: over the finalists' rounds where there are any, else by its trial.

    Returns:
        The median of the rounds' samples/s with the slowest and the fastest round, and the peaks of the round that
        took the most memory. Of a single measurement low and high are the interval of its median step. None if the
        configuration was not measured.
    """
    rounds = rounds_of(record.repeats, configuration)
    measured = [repeat.outcome.measurement for repeat in rounds if isinstance(repeat.outcome, Measured)]
    if not measured:
        trials = (t.measured for t in record.trials if t.configuration.key == configuration.key)
        measured = [outcome.measurement for outcome in trials if outcome is not None][:1]
    return _summary(measured) if measured else None


def _summary(rounds: Sequence[Measurement]) -> Figures:
    rates = [one.samples_per_s for one in rounds]
    low, high = (min(rates), max(rates)) if len(rounds) > 1 else rounds[0].samples_per_s_interval
    return Figures(
        samples_per_s=statistics.median(rates),
        samples_per_s_low=low,
        samples_per_s_high=high,
        step_time_s=statistics.median(one.step_time_s for one in rounds),
        peaks=max((one.peaks for one in rounds), key=lambda peaks: peak_bytes(peaks) or 0),
        rounds=len(rounds),
    )


def rounds_of(repeats: Sequence[Repeat], configuration: Configuration) -> tuple[Repeat, ...]:
    """A configuration's rounds, in order, of one final: of the latest among those that have most of them."""
    finals: dict[int, list[Repeat]] = {}
    for repeat in repeats:
        if repeat.configuration.key == configuration.key:
            finals.setdefault(repeat.final, []).append(repeat)
    if not finals:
        return ()
    chosen = max(finals, key=lambda final: (len(finals[final]), final))
    return tuple(sorted(finals[chosen], key=lambda repeat: repeat.round))


def front(trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """Pick the trials for which no other was at least as fast with no more memory; from least to most memory.

    Trials over the memory limit are kept, since a limit can be chosen by looking at the front. Left out is what was
    not measured, thrashed, or trained a loss that is not finite. Of equal trials the first stands for all.
    """
    figures = []
    for trial in trials:
        if isinstance(trial.outcome, Measured):
            measurement = trial.outcome.measurement
            peak = peak_bytes(measurement.peaks)
            if peak is not None and not measurement.allocator_retries and not measurement.nonfinite_loss:
                figures.append((peak, -measurement.samples_per_s, trial.number, trial))
    chosen: list[Trial] = []
    slowest_allowed = math.inf
    for _, negative_rate, _, trial in sorted(figures, key=lambda row: row[:3]):
        if negative_rate < slowest_allowed:
            slowest_allowed = negative_rate
            chosen.append(trial)
    return tuple(chosen)


def peak_bytes(peaks: Peaks) -> int | None:
    """The peak that a memory limit is held against (``Peaks.fit_bytes``); None if none was measured."""
    return None if peaks.reserved is None and peaks.resident is None else peaks.fit_bytes


def proof_of(record: StudyRecord, configuration: Configuration) -> Proof | None:
    """The proof of ``configuration``; None if there is none."""
    proofs = () if record.verdict is None else record.verdict.proofs
    return next((proof for proof in proofs if proof.configuration.key == configuration.key), None)


def memory_limit_bytes(record: StudyRecord) -> int | None:
    """The limit the study's trials are held against: the verdict's, the one asked for, or the device's memory."""
    if record.verdict is not None:
        return record.verdict.memory_limit_bytes
    if record.spec.memory_limit_bytes is not None:
        return record.spec.memory_limit_bytes
    return None if record.facts is None else record.facts.environment.device_memory_bytes


def answer_limit_bytes(record: StudyRecord) -> int | None:
    """What an answer may peak at: the memory limit, or the objective's target below it."""
    limit = memory_limit_bytes(record)
    return record.spec.objective.target_memory_bytes if limit is None else record.spec.objective.limit_bytes(limit)


def format_rate(samples_per_s: float) -> str:
    """Write samples/s with four digits, so that a difference of 0.1 % shows: ``0.532``, ``187.2``, ``12,480``."""
    decimals = 0 if samples_per_s >= 999.95 else 1 if samples_per_s >= 99.995 else 2 if samples_per_s >= 9.9995 else 3
    return f"{samples_per_s:,.{decimals}f}"


def accumulation_seen(record: StudyRecord) -> float | None:
    """How many micro-batches one process of the script takes per optimizer step; None before discovery.

    Samples per step over the micro-batch where both were counted: a script that calls its model several times for
    one batch (a GAN) is not one that accumulates. Else the model's calls per step.
    """
    if record.facts is None:
        return None
    baseline = record.baseline
    if baseline is not None and baseline.measured is not None:
        one = baseline.measured.measurement
        size = one.batch_size or record.facts.batch_size
        if size and not one.samples_are_guessed:
            return _whole(statistics.median(one.samples_per_step) / (size * one.num_processes))
    return _whole(record.facts.calls_per_step)


def accumulation_to_keep(accumulation: float, script_batch_size: int | None, batch_size: int | None) -> float | None:
    """The accumulation that keeps the script's global batch with ``batch_size``; None where no whole number does."""
    if batch_size is None or batch_size == script_batch_size:
        return accumulation
    if script_batch_size is None:
        return None
    kept = _whole(script_batch_size * accumulation / batch_size)
    return kept if kept >= 1 and kept.is_integer() else None


def _whole(value: float) -> float:
    return float(round(value)) if value and abs(value - round(value)) <= _WHOLE * value else value
