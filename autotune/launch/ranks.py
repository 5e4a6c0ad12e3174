"""The rank that a failure of several training processes began with: one that is gone, or that came less far."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence

from ..records.outcome import Measured, NoTrainingStep, Outcome, OutOfMemory, ScriptError
from ..records.progress import Progress


@dataclasses.dataclass(frozen=True)
class Lost:
    """A training process that is gone without a word; ``code`` is as ``subprocess`` gives it, None if not known."""

    progress: Progress
    code: int | None


def first_lost(
    training: Sequence[Progress], heard: Collection[int], end_of: Callable[[int], tuple[bool, int | None]]
) -> Lost | None:
    """Find a training process that is gone.

    ``heard`` are the ranks that have written how their trial ended; ``end_of`` is that of a ``ProcessTree``.
    """
    for progress in training:
        if progress.trains and progress.rank not in heard:
            is_gone, code = end_of(progress.process)
            if is_gone:
                return Lost(progress, code)
    return None


def named(rank: int, num_processes: int) -> str:
    """Name a rank, as in "rank 1 of 2"."""
    return f"rank {rank} of {num_processes}"


def with_rank(failure: Outcome, rank: int, num_processes: int) -> Outcome:
    """Begin the cause of a failure that one of several ranks may have alone with that rank."""
    may_be_alone = isinstance(failure, (OutOfMemory, ScriptError, NoTrainingStep))
    return begun_with(failure, rank, num_processes) if num_processes > 1 and rank >= 0 and may_be_alone else failure


def begun_with(failure: Outcome, rank: int, num_processes: int) -> Outcome:
    """Begin the cause of a failure with a rank."""
    assert not isinstance(failure, Measured)
    return dataclasses.replace(failure, cause=f"{named(rank, num_processes)}: {failure.cause}")


def least_far(training: Sequence[Progress]) -> Progress | None:
    """Return the process that came less far than all others; None where that cannot be told."""
    ordered = sorted(training, key=lambda progress: progress.place)
    return ordered[0] if len(ordered) > 1 and ordered[0].place < ordered[1].place else None
