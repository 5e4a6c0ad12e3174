"""What a trial is a trial of."""

from __future__ import annotations

import json
from dataclasses import dataclass

from .engines import COMPILING_ENGINES, Engine
from .plan import Plan

__all__ = ["Configuration"]


@dataclass(frozen=True)
class Configuration:
    """Plans, level, batch size and the other stack choices of one trial.

    ``batch_size`` is the micro-batch per process; None leaves the script's own alone. Engine ``eager`` is the script
    itself, so it has no plans. ``aot`` runs the model's graphs as they are, which is worth it for its plans only;
    ``inductor`` compiles them and ``ortmodule`` hands the model to ONNX Runtime, with plans or without. ``choices`` are
    those of the engine that are made otherwise than it does by itself, each ``name=0`` or ``name=1``, by name.
    """

    engine: Engine = "eager"
    plans: tuple[Plan, ...] = ()
    level: int = 0
    batch_size: int | None = None
    choices: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Two configurations are the same if and only if their keys are equal."""
        plans = [str(plan) for plan in sorted(self.plans)]
        parts = [self.engine, plans, self.level, self.batch_size]
        # Keys are in databases: those of configurations without choices are as they were before there were any.
        return json.dumps([*parts, sorted(self.choices)] if self.choices else parts, separators=(",", ":"))

    @property
    def is_untouched(self) -> bool:
        """Whether it is the script as it stands, but for its batch size."""
        return self.engine == "eager" and not self.choices

    def makes(self, choice: str) -> bool:
        """Whether the choice of this name is made otherwise than by itself."""
        return any(one.partition("=")[0] == choice for one in self.choices)

    @property
    def recomputed(self) -> str:
        """What is recomputed, for people: a level, plans, or both; empty for nothing."""
        level = [f"level {self.level}"] if self.level else []
        return " ".join([*level, *map(str, self.plans)])

    def __str__(self) -> str:
        parts = [] if self.batch_size is None else [f"batch {self.batch_size}"]
        parts += [self.engine] if self.engine in COMPILING_ENGINES else []
        parts += self.choices
        parts += [self.recomputed or "no plans"]
        return ", ".join(parts)
