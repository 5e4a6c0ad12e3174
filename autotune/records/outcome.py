"""Outcomes of trials: one tagged union, a measurement or a named failure. A failed trial is data, not an exception.

A new outcome is a class here, a member of ``Outcome``, and a line in docs/reference/outcomes.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from .measurement import Measurement

Phase = Literal["start", "forward", "backward", "optimizer"]


@dataclass(frozen=True)
class Measured:
    """The trial was measured. Its reader judges by ``measurement.peaks`` whether it fits the limit."""

    kind: ClassVar[str] = "measured"
    label: ClassVar[str] = "measured"
    for_memory: ClassVar[bool] = False
    measurement: Measurement


@dataclass(frozen=True)
class _Failure:
    """The fields of every failure: the cause in a sentence, the last log lines, and what to do next.

    ``label`` is the outcome's name in tables. ``for_memory``: memory ran out, so that the limit is near.
    """

    label: ClassVar[str]
    for_memory: ClassVar[bool] = False
    measurement: ClassVar[None] = None
    cause: str
    log_tail: tuple[str, ...] = ()
    advice: str = ""


@dataclass(frozen=True)
class OutOfMemory(_Failure):
    """The device's memory (or the limit) did not hold the trial.

    ``needed_bytes`` is a lower bound where known, ``idle_bytes`` what torch's allocator held without a tensor in it.
    """

    kind: ClassVar[str] = "out_of_memory"
    label: ClassVar[str] = "out of memory"
    for_memory: ClassVar[bool] = True
    phase: Phase = "start"
    limit_bytes: int | None = None
    needed_bytes: int | None = None
    idle_bytes: int | None = None


@dataclass(frozen=True)
class ScriptError(_Failure):
    """The script raised; ``traceback`` is its own, without our frames."""

    kind: ClassVar[str] = "script_error"
    label: ClassVar[str] = "script error"
    traceback: str = ""


@dataclass(frozen=True)
class InvalidPlan(_Failure):
    """A plan names a cluster that the script's graphs do not have."""

    kind: ClassVar[str] = "invalid_plan"
    label: ClassVar[str] = "invalid plan"


@dataclass(frozen=True)
class NoTrainingStep(_Failure):
    """The script ended, or too few of its steps were left, before anything could be measured."""

    kind: ClassVar[str] = "no_training_step"
    label: ClassVar[str] = "no training step"
    steps_seen: int = 0


@dataclass(frozen=True)
class Fallback(_Failure):
    """The engine would have run without the plan; the trial was not counted as if it had one."""

    kind: ClassVar[str] = "fallback"
    label: ClassVar[str] = "not applied"


@dataclass(frozen=True)
class NoEffect(Fallback):
    """The batches of the steps, or their number, were not what was asked for; plans and choices are not to blame."""

    kind: ClassVar[str] = "no_effect"
    label: ClassVar[str] = "no effect"


@dataclass(frozen=True)
class TimedOut(_Failure):
    """A deadline passed; ``phase`` is where the trial was."""

    kind: ClassVar[str] = "timed_out"
    label: ClassVar[str] = "timed out"
    phase: Phase = "start"


@dataclass(frozen=True)
class Died(_Failure):
    """The process ended without a result; ``signal`` is its name where a signal ended it."""

    kind: ClassVar[str] = "died"
    label: ClassVar[str] = "died"
    signal: str | None = None
    exit_status: int | None = None
    phase: Phase = "start"


@dataclass(frozen=True)
class HostOutOfMemory(_Failure):
    """The host killed the process for its memory, or the resident set passed the host's limit."""

    kind: ClassVar[str] = "host_out_of_memory"
    label: ClassVar[str] = "host out of memory"
    for_memory: ClassVar[bool] = True
    phase: Phase = "start"


Outcome = (
    Measured
    | OutOfMemory
    | ScriptError
    | InvalidPlan
    | NoTrainingStep
    | Fallback
    | NoEffect
    | TimedOut
    | Died
    | HostOutOfMemory
)

OUTCOMES: dict[str, type[Outcome]] = {one.kind: one for one in get_args(Outcome)}
"""The outcomes by the kinds that are stored of them."""
