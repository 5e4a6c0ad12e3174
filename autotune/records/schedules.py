"""Learning rate schedules that a script has made for its own batch size, at another one."""

from __future__ import annotations

import math

from .configuration import Configuration, keeps_batch_size
from .global_batch import global_batch
from .measurement import Schedule
from .study import StudyRecord
from .study_results import trials_of
from .units import format_share


def schedule_caution(record: StudyRecord, configuration: Configuration) -> str:
    """Say that a schedule ends too early or too late at a setting's batch size; empty where none does.

    Such a schedule is as long as whole epochs at the script's own batch size, and was no other at the setting's.
    """
    if record.facts is None or keeps_batch_size(configuration.batch_size, record.facts.baseline.batch_size):
        return ""
    baseline, own = record.facts.baseline, record.facts.baseline.batch_size
    before, after = global_batch(record, baseline), global_batch(record, configuration)
    if own is None or before is None or after is None or not before.steps_per_epoch or not after.steps_per_epoch:
        return ""
    seen = [trials_of(record, one)[:1] for one in (baseline, configuration)]
    kept = set.intersection(*({schedule for one in each for schedule in one.schedules} for each in seen))
    for one in sorted(kept, key=lambda schedule: -schedule.steps):
        epochs = _epochs(one.steps, before.steps_per_epoch)
        needed = round(epochs * after.steps_per_epoch)
        # However it rounds: a step in each epoch at the most.
        if epochs and abs(needed - one.steps) > epochs:
            advice = record.facts.batch_control.advice_to_pass(own)
            return f"{_mismatch(one, epochs, needed, configuration.batch_size)} {advice}".rstrip()
    return ""


def _mismatch(schedule: Schedule, epochs: int, needed: int, batch_size: int | None) -> str:
    length = "one epoch" if epochs == 1 else f"{epochs} epochs"
    opening = f"Your {schedule.name} is made for {schedule.steps:,} steps: {length} at your own batch size"
    at = f"At batch size {batch_size}, {length} {'has' if epochs == 1 else 'have'} {needed:,} steps"
    end = f"If you train for {length}, the schedule ends after {format_share(schedule.steps / needed)} of the training"
    if needed < schedule.steps:
        end = f"If you train for {length}, you end after {format_share(needed / schedule.steps)} of the schedule"
    elif schedule.raises_beyond:
        end = f"The script fails at step {schedule.steps + 1:,}"
    return f"{opening}. {at}. {end}."


def _epochs(steps: int, steps_per_epoch: float) -> int:
    """Return how many whole epochs have so many steps, however a script rounds; 0 where none do."""
    epochs = round(steps / steps_per_epoch)
    each = {math.floor(steps_per_epoch), math.ceil(steps_per_epoch)}
    whole = {epochs * one for one in each} | {math.floor(epochs * steps_per_epoch), math.ceil(epochs * steps_per_epoch)}
    return epochs if steps in whole else 0
