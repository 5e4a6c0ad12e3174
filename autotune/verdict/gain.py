"""The winner's gain in parts: so much from the batch size, so much from compiling, from choices, from recompute.

Between the script and the winner lie settings that have some of what the winner has. On a way from one to the other
each step adds a kind; where the setting behind a step was measured, its part of the gain is known. Parts multiply to
the whole.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Literal

from ..records.configuration import Configuration, keeps_batch_size
from ..records.engines import COMPILING_ENGINES
from ..records.study import StudyRecord
from ..records.study_results import repetitions_of
from .aim import Aim
from .contention import times_as_fast_alone
from .feasible import is_feasible
from .finalists import baseline_is_finite, feasible_trials
from .sequential import FIRST_LOOK, LEAST_NOISE, student_quantile

Kind = Literal["batch_size", "compilation", "choices", "recompute"]

_KINDS: tuple[Kind, ...] = ("batch_size", "compilation", "choices", "recompute")


@dataclass(frozen=True)
class Part:
    """A step on the way from the script to the winner."""

    kinds: tuple[Kind, ...]  # those that the step adds
    factor: float  # the samples/s or memory of `reached` over those before the step
    reached: Configuration  # the setting behind the step
    fits: bool  # that setting may be an answer itself


@dataclass(frozen=True)
class Missing:
    """A setting that would tell kinds apart."""

    configuration: Configuration
    outcome: str  # how its trial failed; empty where there was none


@dataclass(frozen=True)
class Gain:
    """The winner against the script.

    Of a single part the factor is that of the finalists' repetitions; several parts are from trials, each one
    measurement. ``without_recompute`` is the best trial without recompute that may be an answer, and its factor; None
    where the winner recomputes nothing.
    """

    quantity: Literal["samples_per_s", "memory"]
    factor: float  # of samples/s, or where the objective is memory, of memory
    parts: tuple[Part, ...]
    missing: tuple[Missing, ...] = ()  # empty where each kind is a part of its own
    without_recompute: tuple[Configuration, float] | None = None
    num_without_recompute: int = 0  # such settings that were tried beside the script's own


def gain_of(record: StudyRecord) -> Gain | None:
    """Tell a winner's gain in parts; None where no winner has one over the script as it is."""
    facts, verdict = record.facts, record.verdict
    if facts is None or verdict is None or verdict.kind_of_answer != "winner" or verdict.winner is None:
        return None
    baseline, winner, aim = facts.baseline, verdict.winner, Aim(record.spec.objective, verdict.memory_limit_bytes)
    whole = next((one for one in verdict.comparisons if one.configuration.key == winner.key), None)
    values = _values(record, aim)
    if whole is None or not {baseline.key, winner.key} <= values.keys():
        return None
    way, steps = _way(baseline, winner, values)
    if not way:
        return None
    ends = [end for end, step in enumerate(steps) if step.key in values]
    feasible = feasible_trials(record.trials, facts, aim, record.repeats)
    may_be = {trial.configuration.key for trial in feasible}
    parts = tuple(
        Part(way[low:high], values[steps[high].key] / values[steps[low].key], steps[high], steps[high].key in may_be)
        for low, high in itertools.pairwise(ends)
    )
    if len(parts) == 1:
        parts = (replace(parts[0], factor=whole.peak_ratio if aim.seeks_memory else whole.speedup),)
    plain = next((trial.configuration for trial in feasible if not trial.configuration.recomputed), None)
    return Gain(
        quantity="memory" if aim.seeks_memory else "samples_per_s",
        factor=math.prod(part.factor for part in parts),
        parts=parts,
        missing=tuple(_missing(record, step) for step in steps if step.key not in values),
        without_recompute=None
        if plain is None or not winner.recomputed
        else (plain, values[plain.key] / values[baseline.key]),
        num_without_recompute=len(
            {one.configuration.key for one in record.trials if one.outcome and not one.configuration.recomputed}
            - {baseline.key}
        ),
    )


def _values(record: StudyRecord, aim: Aim) -> dict[str, float]:
    """Return the figures to compare, of each configuration that a trial has measured."""
    values = {
        trial.configuration.key: float(trial.peak_bytes or 0) if aim.seeks_memory else trial.samples_per_s
        for trial in record.trials
        if trial.measured
    }
    return {key: value for key, value in values.items() if value > 0}


def _way(
    baseline: Configuration, winner: Configuration, values: Mapping[str, float]
) -> tuple[tuple[Kind, ...], list[Configuration]]:
    """Find the way with the most settings measured: its kinds in order, and its settings from end to end."""
    has: Mapping[Kind, bool] = {
        "batch_size": not keeps_batch_size(winner.batch_size, baseline.batch_size),
        "compilation": winner.engine in COMPILING_ENGINES,
        "choices": bool(winner.choices),
        "recompute": bool(winner.recomputed),
    }
    # A choice may be one of the engine that compiles, so it is not made before that.
    ways = [
        way
        for way in itertools.permutations(kind for kind in _KINDS if has[kind])
        if "compilation" not in way or not {"choices", "recompute"} & set(way[: way.index("compilation")])
    ]
    every = [[*(_between(baseline, winner, way[:end]) for end in range(len(way))), winner] for way in ways]
    # Of ways that tell as much, the first: it adds the kinds in their usual order.
    return max(zip(ways, every, strict=True), key=lambda one: sum(step.key in values for step in one[1]))


def _between(baseline: Configuration, winner: Configuration, kinds: Sequence[Kind]) -> Configuration:
    """Return the setting that has these kinds from the winner, and the rest from the script."""
    one = baseline
    if "batch_size" in kinds:
        one = replace(one, batch_size=winner.batch_size, accumulation=winner.accumulation)
    if "compilation" in kinds or "recompute" in kinds:
        one = replace(one, engine=winner.engine)
    if "choices" in kinds:
        one = replace(one, choices=winner.choices)
    return replace(one, plans=winner.plans, level=winner.level) if "recompute" in kinds else one


def _missing(record: StudyRecord, configuration: Configuration) -> Missing:
    tried = [trial.outcome for trial in record.trials if trial.configuration.key == configuration.key]
    return Missing(configuration, next((one.kind for one in tried if one is not None), ""))


# What compiling brings is told from here on, and where nothing says how far runs scatter, from there. One run in twenty
# that is no better may seem to be: what is offered is to look for more, and nothing is answered by it.
_WORTH_TELLING, _WITHOUT_REPETITIONS = 1.05, 1.1
_LEVEL = 0.05


def compiled_gain(record: StudyRecord) -> float | None:
    """Return how many times as good as the answer its setting was compiled, in one run; None where that shows no gain.

    A gain is more than one run and repetitions like the answer's may differ by chance. Where the objective is memory,
    the run has to be no slower than the answer's slowest repetition.
    """
    facts, verdict = record.facts, record.verdict
    run, winner = (None, None) if verdict is None else (verdict.compiled, verdict.winner)
    if facts is None or verdict is None or run is None or winner is None or run.answer.key != winner.key:
        return None
    aim = Aim(record.spec.objective, verdict.memory_limit_bytes)
    own = [one.outcome.measurement for one in repetitions_of(record.repeats, winner) if one.outcome.measurement]
    own = own or [one.measured for one in record.trials if one.measured and one.configuration.key == winner.key]
    merits, measurement = [aim.merit_of(one) for one in own], run.outcome.measurement
    if measurement is None or not merits or min(merits) <= 0:
        return None
    is_finite = baseline_is_finite(record.trials, facts)
    if not is_feasible(measurement, aim.limit_bytes, baseline_is_finite=is_finite) or not aim.merit_of(measurement):
        return None
    if aim.seeks_memory and measurement.samples_per_s < min(one.samples_per_s for one in own):
        return None
    logs = [math.log(one) for one in merits]
    gain = math.log(aim.merit_of(measurement)) - fmean(logs)
    alone = 1.0 if aim.seeks_memory else max(map(times_as_fast_alone, own))
    least = math.log(_WITHOUT_REPETITIONS * alone)
    if len(logs) >= FIRST_LOOK:  # how busy the machine was is in how they scatter
        scatter = max(stdev(logs), LEAST_NOISE) * math.sqrt(1 + 1 / len(logs))
        least = max(math.log(_WORTH_TELLING), student_quantile(_LEVEL, len(logs) - 1) * scatter)
    return math.exp(gain) if gain > least else None
