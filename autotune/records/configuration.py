"""Configurations of trials: engine, plans, level, batch size, choices and accumulation."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from .engines import COMPILING_ENGINES, ENGINES, PLAIN_ENGINES, Engine, plain_engine_of
from .plan import Plan, parse_plans

Shapes = tuple[tuple[int, ...], ...]
"""The shapes of all tensors that a model gets in a call."""


@dataclass(frozen=True)
class SizedPlans:
    """The plans of smaller batches: those whose tensors are in no dimension larger than ``shapes``."""

    shapes: Shapes
    plans: tuple[Plan, ...] = ()  # none to recompute nothing

    def hold_for(self, shapes: Shapes) -> bool:
        """Return whether a call with tensors of these shapes runs under these plans."""
        return (
            bool(shapes)
            and [*map(len, shapes)] == [*map(len, self.shapes)]
            and all(
                size <= most
                for shape, largest in zip(shapes, self.shapes, strict=True)
                for size, most in zip(shape, largest, strict=True)
            )
        )

    @property
    def size(self) -> str:
        """Return the shape of the largest tensor, in words."""
        return "x".join(map(str, max(self.shapes, key=math.prod, default=())))

    def __str__(self) -> str:
        recomputed = " ".join(map(str, self.plans)) or "nothing"
        return f"{recomputed} up to {self.size}"


@dataclass(frozen=True)
class Configuration:
    """Plans, level, batch size and the other stack choices of one trial.

    ``batch_size`` is the micro-batch per process. It is None, and left alone, where nobody knows it: in the run that
    discovers it, and for a script whose samples cannot be seen. Engine ``eager`` is the script itself, without plans.
    ``choices`` are those that are made otherwise than the engine does by itself, each ``name=value`` with a whole
    number. ``accumulation`` is the number of micro-batches per optimizer step, 0 where it stays what the script has.
    ``sized`` has the plans of smaller batches in place of ``plans`` and ``level``, the smallest batches first.
    """

    engine: Engine = "eager"
    plans: tuple[Plan, ...] = ()
    level: int = 0
    batch_size: int | None = None
    choices: tuple[str, ...] = ()
    accumulation: int = 0
    sized: tuple[SizedPlans, ...] = ()

    @cached_property
    def key(self) -> str:
        """Return what two configurations share if and only if they are the same."""
        plans = [str(plan) for plan in sorted(self.plans)]
        parts: list[object] = [self.engine, plans, self.level, self.batch_size]
        # Keys are in databases: where later fields say nothing they are what they were before there were any.
        if self.choices or self.accumulation or self.sized:
            parts.append(sorted(self.choices))
        if self.accumulation or self.sized:
            parts.append(self.accumulation)
        if self.sized:
            parts.append([[one.shapes, [*map(str, one.plans)]] for one in self.sized])
        return json.dumps(parts, separators=(",", ":"))

    @classmethod
    def from_key(cls, key: str) -> Configuration:
        """Return the configuration of a key; ValueError for any other text."""
        engine, plans, level, batch_size, *others = json.loads(key)
        defaults: list[Any] = [(), 0, ()]
        choices, accumulation, sized = others + defaults[len(others) :]
        by_size = tuple(SizedPlans(tuple(map(tuple, shapes)), parse_plans(some)) for shapes, some in sized)
        return cls(engine, parse_plans(plans), level, batch_size, tuple(choices), accumulation, by_size)

    @property
    def is_untouched(self) -> bool:
        """Return whether it is the script as it stands, but for its batch size."""
        return self.engine in PLAIN_ENGINES and not self.choices

    @property
    def untouched(self) -> Configuration:
        """Return the script as it stands at the same sizes."""
        return replace(self, engine=plain_engine_of(self.engine), plans=(), level=0, choices=(), sized=())

    @property
    def as_searched(self) -> Configuration:
        """Return the configuration as a study tries it: a trial finds the plans for smaller batches by itself."""
        return replace(self, sized=())

    def makes(self, choice: str) -> bool:
        """Return whether the choice of this name is made otherwise than by itself."""
        return any(one.partition("=")[0] == choice for one in self.choices)

    @property
    def batch(self) -> str:
        """Return the micro-batch for people, with an accumulation that is set; empty where the size is not known."""
        accumulated = f" (accumulation {self.accumulation})" if self.accumulation else ""
        return f"batch {self.batch_size}{accumulated}" if self.batch_size else ""

    @property
    def recomputed(self) -> str:
        """Return what is recomputed, for people: a level, plans, or both; empty for nothing."""
        level = [f"level {self.level}"] if self.level else []
        sized = [f"({', '.join(map(str, self.sized))})"] if self.sized else []
        return " ".join([*level, *map(str, self.plans), *sized])

    def __str__(self) -> str:
        return self.listed(self.recomputed)

    def listed(self, recomputed: str) -> str:
        """Write the setting part by part, with these words for what is recomputed."""
        plain = "no plans" if ENGINES[self.engine].target == "script" else ""
        engine = self.engine if self.engine in COMPILING_ENGINES else ""
        return ", ".join(filter(None, (self.batch, engine, *self.choices, recomputed or plain)))


def keeps_batch_size(batch_size: int | None, own: int | None) -> bool:
    """Return whether a setting leaves the script's batch size alone: it is the script's ``own``, or nobody knows it."""
    return batch_size in (None, own)
