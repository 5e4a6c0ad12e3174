"""Batches of an optimizer step, and the accumulation that keeps a script's own."""

from __future__ import annotations

from .configuration import Configuration, keeps_batch_size
from .measurement import nearly_whole
from .stack import GlobalBatch
from .study import StudyRecord
from .study_results import trials_of


def format_count(count: float) -> str:
    """Write how many optimizer steps an epoch has: ``128``, ``12.5``, ``1,250``."""
    return f"{count:,.0f}" if count >= 100 or float(count).is_integer() else f"{count:.3g}"


def accumulation_seen(record: StudyRecord, configuration: Configuration | None = None) -> float | None:
    """Return how many micro-batches a process takes per optimizer step; None before discovery.

    A script may choose its accumulation by the batch size, so that of a measured ``configuration`` is its own. Else it
    is that of the script as it stands.
    """
    if record.facts is None:
        return None
    if configuration is not None:
        own = next((one.micro_batches for one in trials_of(record, configuration)), 0.0)
        if own >= 1 and own.is_integer():
            return own
    measured = record.baseline.measured if record.baseline is not None else None
    return nearly_whole(record.facts.calls_per_step) if measured is None else measured.micro_batches


def global_batch(record: StudyRecord, configuration: Configuration | None) -> GlobalBatch | None:
    """Return what an optimizer step takes with ``configuration``; None where no batch size is known."""
    seen = accumulation_seen(record, configuration)
    if record.facts is None or seen is None or configuration is None or configuration.batch_size is None:
        return None
    accumulation, epoch = configuration.accumulation or seen, record.facts.epoch
    processes = (trial.measured.num_processes for trial in record.trials if trial.measured)
    return GlobalBatch(
        micro_batch=configuration.batch_size,
        accumulation=accumulation,
        num_processes=next(processes, 1),
        steps_per_epoch=None if epoch is None else epoch.batches(configuration.batch_size) / accumulation,
    )


def accumulation_to_keep(accumulation: float, script_batch_size: int | None, batch_size: int | None) -> float | None:
    """Return the accumulation that keeps the script's global batch; None where no whole number does."""
    if batch_size is None or batch_size == script_batch_size:
        return accumulation
    if script_batch_size is None:
        return None
    kept = nearly_whole(script_batch_size * accumulation / batch_size)
    return kept if kept >= 1 and kept.is_integer() else None


def global_batch_sentences(
    batch_size: int | None, own: int | None, before: GlobalBatch | None, after: GlobalBatch | None, kept: float | None
) -> tuple[str, ...]:
    """Say what a setting does to the global batch; empty where it leaves the script's ``own`` batch size alone.

    ``before`` is the global batch of the script, ``after`` that of the setting. ``kept`` is the accumulation that would
    keep the script's (``accumulation_to_keep``). None is for what is not known.
    """
    if keeps_batch_size(batch_size, own):
        return ()
    if before is None or after is None:
        return (f"Batch size {batch_size} per process; the script's own is not known.",)
    if before.samples == after.samples:
        now = f"{format_count(before.samples)} samples per optimizer step, now as {_micro_batches(after)}"
        return (f"The global batch stays {now}.",)
    sentences = [f"The global batch changes from {_taken(before)} to {_taken(after)} samples per optimizer step."]
    if before.steps_per_epoch and after.steps_per_epoch:
        now, then = format_count(after.steps_per_epoch), format_count(before.steps_per_epoch)
        sentences.append(f"An epoch has {now} instead of {then} optimizer steps.")
    if kept is None:
        sentences.append(
            f"No whole number of micro-batches of {batch_size} keeps the global batch, so look at the learning rate."
        )
    else:
        sentences.append(
            f"To keep the global batch, accumulate gradients over {format_count(kept)} micro-batches instead of "
            f"{format_count(before.accumulation)}."
        )
    return tuple(sentences)


def _taken(taken: GlobalBatch) -> str:
    is_plain = taken.accumulation == 1 and taken.num_processes == 1
    samples = format_count(taken.samples)
    return samples if is_plain else f"{samples} ({_micro_batches(taken)})"


def _micro_batches(taken: GlobalBatch) -> str:
    processes = f" in each of {taken.num_processes} processes" if taken.num_processes > 1 else ""
    return f"{format_count(taken.accumulation)} x {format_count(taken.micro_batch)}{processes}"
