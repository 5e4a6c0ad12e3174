"""What a trial is a trial of."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from .plan import Plan

__all__ = ["COMPILING_ENGINES", "SWITCHING_ENGINES", "Configuration", "Engine"]

Engine = Literal["eager", "aot", "inductor", "ortmodule"]

SWITCHING_ENGINES: frozenset[Engine] = frozenset({"aot"})
"""The engines that change plans at a step boundary; under others each configuration takes a process of its own."""

COMPILING_ENGINES: frozenset[Engine] = frozenset({"inductor", "ortmodule"})
"""The engines that run a model faster even without plans, so that the script under them is worth a trial."""


@dataclass(frozen=True)
class Configuration:
    """Plans, level, batch size and the other stack choices of one trial.

    ``batch_size`` is the micro-batch per process; None leaves the script's own alone. Engine ``eager`` is the script
    untouched, so it has no plans. ``aot`` runs the model's graphs as they are, which is worth it for its plans only;
    ``inductor`` compiles them and ``ortmodule`` hands the model to ONNX Runtime, with plans or without.
    """

    engine: Engine = "eager"
    plans: tuple[Plan, ...] = ()
    level: int = 0
    batch_size: int | None = None

    @property
    def key(self) -> str:
        """Two configurations are the same if and only if their keys are equal."""
        plans = [str(plan) for plan in sorted(self.plans)]
        return json.dumps([self.engine, plans, self.level, self.batch_size], separators=(",", ":"))

    def __str__(self) -> str:
        parts = [] if self.batch_size is None else [f"batch {self.batch_size}"]
        parts += [self.engine] if self.engine in COMPILING_ENGINES else []
        parts += [f"level {self.level}"] if self.level else []
        parts += [" ".join(map(str, self.plans)) or "no plans"]
        return ", ".join(parts)
