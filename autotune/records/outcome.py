"""Outcomes of trials: one tagged union, a measurement or a named failure. A failed trial is data, not an exception."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from .measurement import Measurement

Phase = Literal["start", "forward", "backward", "optimizer"]


@dataclass(frozen=True)
class Measured:
    """The trial was measured. Whether it fits the limit is the reader's to judge, by ``measurement.peaks``."""

    kind: ClassVar[str] = "measured"
    measurement: Measurement


@dataclass(frozen=True)
class _Failure:
    """The fields of every failure: the cause in a sentence, the last log lines, and what to do next."""

    cause: str
    log_tail: tuple[str, ...] = ()
    advice: str = ""


@dataclass(frozen=True)
class OutOfMemory(_Failure):
    """The device's memory (or the limit) did not hold the trial.

    ``needed_bytes`` is a lower bound where known. ``idle_bytes`` is what torch's allocator held then without any tensor
    in it, None where it did not say.
    """

    kind: ClassVar[str] = "out_of_memory"
    phase: Phase = "start"
    limit_bytes: int | None = None
    needed_bytes: int | None = None
    idle_bytes: int | None = None


@dataclass(frozen=True)
class ScriptError(_Failure):
    """The script raised; ``traceback`` is its own, without our frames."""

    kind: ClassVar[str] = "script_error"
    traceback: str = ""


@dataclass(frozen=True)
class InvalidPlan(_Failure):
    """A plan names a cluster that the script's graphs do not have."""

    kind: ClassVar[str] = "invalid_plan"


@dataclass(frozen=True)
class NoTrainingStep(_Failure):
    """The script ended, or too few of its steps were left, before anything could be measured."""

    kind: ClassVar[str] = "no_training_step"
    steps_seen: int = 0


@dataclass(frozen=True)
class Fallback(_Failure):
    """The engine would have run without the plan; the trial was not counted as if it had one."""

    kind: ClassVar[str] = "fallback"


@dataclass(frozen=True)
class TimedOut(_Failure):
    """A deadline passed; ``phase`` is where the trial was."""

    kind: ClassVar[str] = "timed_out"
    phase: Phase = "start"


@dataclass(frozen=True)
class Died(_Failure):
    """The process ended without a result; ``signal`` is its name where a signal ended it."""

    kind: ClassVar[str] = "died"
    signal: str | None = None
    exit_status: int | None = None
    phase: Phase = "start"


@dataclass(frozen=True)
class HostOutOfMemory(_Failure):
    """The host killed the process for its memory, or the resident set passed the host's limit."""

    kind: ClassVar[str] = "host_out_of_memory"
    phase: Phase = "start"


Outcome = (
    Measured | OutOfMemory | ScriptError | InvalidPlan | NoTrainingStep | Fallback | TimedOut | Died | HostOutOfMemory
)
