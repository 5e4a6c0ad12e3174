"""Times of a study: by stage, and in each stage by the activity of its runs."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Literal

Stage = Literal["discovery", "search", "rounds", "proof", "compiled"]


@dataclass(frozen=True)
class StageTime:
    """The runs of one stage, added up; runs of several devices at once count each. All times are in seconds.

    ``forked`` of the ``runs`` came out of a fork server, the others are fresh processes. ``start_s`` is up to the first
    training call: the process, the imports, what the script prepares; also all of a run that came to no training call.
    ``compile_s`` is the part of warm-ups in whose steps something was traced or compiled, ``warmup_s`` is the rest of
    them, ``measure_s`` the steps that count, or all steps of a proof. ``describe_s`` is what discovery takes after the
    measurement. ``rest_s`` is what is left: waiting for a node, failed trials, switches between trials, the end.
    """

    stage: Stage
    runs: int = 0
    forked: int = 0
    start_s: float = 0.0
    compile_s: float = 0.0
    warmup_s: float = 0.0
    measure_s: float = 0.0
    describe_s: float = 0.0
    rest_s: float = 0.0

    @property
    def total_s(self) -> float:
        """All of it."""
        return self.start_s + self.compile_s + self.warmup_s + self.measure_s + self.describe_s + self.rest_s

    def __add__(self, other: StageTime) -> StageTime:
        """Both together, of one stage."""
        assert self.stage == other.stage
        added = {one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(self)[1:]}
        return replace(self, **added)


@dataclass(frozen=True)
class TimeSpent:
    """The time from the beginning of a study to its verdict, over all of its sessions that came to one.

    ``between_s`` of the ``total_s`` no run was at work: the search decides, the database is written.
    """

    total_s: float = 0.0
    between_s: float = 0.0
    stages: tuple[StageTime, ...] = ()

    def __add__(self, other: TimeSpent) -> TimeSpent:
        """Both together."""
        stages = {one.stage: one for one in self.stages}
        for one in other.stages:
            stages[one.stage] = stages.get(one.stage, StageTime(one.stage)) + one
        return TimeSpent(self.total_s + other.total_s, self.between_s + other.between_s, tuple(stages.values()))
