"""Memory limits of a study's runs, and of its answer: the one place that says what the limit is."""

from __future__ import annotations

from ..records.measurement import Peaks
from ..records.study import StudyRecord


def memory_limit(asked_bytes: int | None, has_bytes: int) -> int:
    """Return what runs may use: as much as was asked for, and at most what there is."""
    return has_bytes if asked_bytes is None else min(asked_bytes, has_bytes)


def may_fit_below(peaks: Peaks, limit_bytes: int) -> bool:
    """Tell whether a run that passed a limit on a GPU may stay below it where torch's allocator is held to it.

    The allocator keeps more than tensors take as long as there is room, and lets go of that where there is none.
    """
    if peaks.allocated is None or peaks.fit_bytes is None:
        return False
    return peaks.fit_bytes > limit_bytes >= peaks.allocated + (peaks.non_torch or 0)


def passed(peak_bytes: int, run_limit_bytes: int | None) -> str:
    """Name the limit that a peak passes: ``limit``, that of runs, or ``target``, which lies below it."""
    return "limit" if run_limit_bytes is None or peak_bytes > run_limit_bytes else "target"


def limit_of(record: StudyRecord) -> int | None:
    """Return the bytes that the runs of a stored study may use; before discovery only what was asked for, if anything.

    With an answer it is the limit that was decided with. Before that, on a CPU, the host may have less left than it
    has: only a process that runs the study there can tell.
    """
    if record.verdict is not None:
        return record.verdict.memory_limit_bytes
    if record.facts is None:
        return record.spec.memory_limit_bytes
    return memory_limit(record.spec.memory_limit_bytes, record.facts.environment.device_memory_bytes)


def answer_limit_of(record: StudyRecord) -> int | None:
    """Return the bytes that the answer may peak at, if known: the limit of runs, or the objective's target below it."""
    limit_bytes, objective = limit_of(record), record.spec.objective
    return objective.target_memory_bytes if limit_bytes is None else objective.limit_bytes(limit_bytes)
