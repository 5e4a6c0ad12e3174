"""Objectives of studies: throughput, or memory, each with its limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .units import format_bytes, format_share

Goal = Literal["throughput", "memory"]


@dataclass(frozen=True)
class Objective:
    """The criterion by which one setting is a better answer than another.

    ``throughput``: the most samples per second, within ``target_memory_bytes`` where there is such a target. Runs may
    use all of the memory limit even so. ``memory``: the lowest peak at no more than ``max_slowdown``, a share, fewer
    samples per second than the script as it stands. Where the script does not fit, the fastest setting found takes its
    place.
    """

    goal: Goal = "throughput"
    max_slowdown: float = 0.03
    target_memory_bytes: int | None = None

    def __str__(self) -> str:
        if self.goal == "memory":
            return f"least memory at no more than {format_share(self.max_slowdown)} fewer samples/s"
        target = self.target_memory_bytes
        return "most samples/s" + ("" if target is None else f" within {format_bytes(target)}")

    def limit_bytes(self, memory_limit_bytes: int) -> int:
        """Return what an answer may peak at: the target, or as much as a run may use."""
        return min(memory_limit_bytes, self.target_memory_bytes or memory_limit_bytes)
