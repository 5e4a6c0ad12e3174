"""Predictions by discovery alone, without a trial: peaks of settings, and their memory over a step."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from contextlib import suppress

from ..errors import PredictionError
from ..predict.memory_timeline import Moment
from ..predict.prediction import Predictor
from ..records.configuration import Configuration
from ..records.facts import Facts
from ..records.study import StudyRecord
from ..records.study_results import figures_of
from .record import StepMemory

# Each is simulated, which takes milliseconds; so many are enough to see how far off they are.
_MOST = 200
# What can be told apart in a picture.
_MOST_MOMENTS, _MOST_BLOCKS = 80, 8


def foreseen_of(record: StudyRecord) -> dict[str, int]:
    """Return the peaks that discovery alone tells of the measured trials, in bytes, by the keys of their settings.

    A peak is the script's own as measured, and what the graphs say differs from it. Left out are the script's own
    setting, and what cannot be simulated.
    """
    facts, baseline = record.facts, record.baseline
    if facts is None or baseline is None or baseline.peak_bytes is None:
        return {}
    try:
        predictor = Predictor(facts)
        unit = predictor.predict(as_simulated(facts, facts.baseline)).peak_bytes
    except PredictionError:
        return {}
    found: dict[str, int] = {}
    for trial in record.shown[:_MOST]:
        configuration = trial.configuration
        if trial.measured is None or configuration.key == facts.baseline.key:
            continue
        with suppress(PredictionError):
            predicted = predictor.predict(as_simulated(facts, configuration))
            found[configuration.key] = baseline.peak_bytes + predicted.peak_bytes - unit
    return found


def steps_of(
    record: StudyRecord, baseline: Configuration | None, winner: Configuration | None
) -> tuple[StepMemory, ...]:
    """Simulate the memory over a step of the script as it is and, where it is another one, of the answer."""
    if record.facts is None or baseline is None:
        return ()
    try:
        predictor = Predictor(record.facts)
        steps = [_step(f"your {record.facts.target}", record, predictor, baseline)]
    except PredictionError:
        return ()
    if winner is not None and winner.key != baseline.key:
        with suppress(PredictionError):  # its plans may be of another engine than the graphs
            steps.append(_step("this setting", record, predictor, winner))
    return tuple(steps)


def _step(name: str, record: StudyRecord, predictor: Predictor, configuration: Configuration) -> StepMemory:
    facts = record.facts
    assert facts is not None
    planned = as_simulated(facts, configuration)
    timeline, predicted = predictor.timeline(planned), predictor.predict(planned)
    figures, split = figures_of(record, configuration), facts.split
    measured = None if figures is None else figures.peaks.fit_bytes
    found_gradients = predicted.simulated.gradient_bytes
    moments = _fewer(timeline.moments)
    groups = _groups(len(timeline.names))
    return StepMemory(
        name=name,
        parameters=0 if split is None else split.parameters + split.buffers,
        optimizer_state=0 if split is None else split.optimizer_state,
        rest=0 if measured is None else max(0, measured - predicted.peak_bytes),
        gradients=tuple(max(0, found_gradients + moment.gradients) for moment in moments),
        block_names=tuple(_group_name(timeline.names, group) for group in groups),
        blocks=tuple(tuple(sum(moment.blocks[number] for number in group) for moment in moments) for group in groups),
        outside=tuple(moment.outside for moment in moments),
        passing=tuple(
            max(0, moment.level - moment.gradients - moment.outside - sum(moment.blocks)) for moment in moments
        ),
        num_forward=sum(moment.is_forward for moment in moments),
    )


def as_simulated(facts: Facts, configuration: Configuration) -> Configuration:
    """Return the setting under the engine whose graphs there are; PredictionError where it holds other things there."""
    engine = facts.calibration.engine if facts.calibration else "aot"
    if configuration.engine not in ("eager", engine) or configuration.choices:
        raise PredictionError(f"{configuration} keeps other tensors than the script's graphs under engine {engine}")
    return dataclasses.replace(configuration, engine=engine)


def _fewer(moments: Sequence[Moment]) -> list[Moment]:
    """Take of each stretch of a step the highest moment, so that no peak is lost."""
    count = min(len(moments), _MOST_MOMENTS)
    edges = [len(moments) * number // count for number in range(count + 1)]
    return [max(moments[low:high], key=lambda one: one.level) for low, high in itertools.pairwise(edges)]


def _groups(number: int) -> list[range]:
    """Put neighbouring blocks together where there are too many to be told apart."""
    count = min(number, _MOST_BLOCKS)
    edges = [number * one // count for one in range(count + 1)] if count else [0]
    return [range(low, high) for low, high in itertools.pairwise(edges)]


def _group_name(names: Sequence[str], group: range) -> str:
    name = names[group.start].rstrip("+")
    return f"{name} {group.start + 1}" if len(group) == 1 else f"{name} {group.start + 1} to {group.stop}"
