"""The memory optimizer's plans as a log tells them, whichever layout it has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from ..errors import FormatError, PlanError
from ..records.plan import Plan, join_plans, parse_plan, parse_plans

# Colours and cursor movements, and what `mpirun --tag-output` writes in front of each write, so inside of words too.
_NOISE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\[\d+,\d+\]<std(?:out|err)>:")
_SHOWN = 120


@dataclass(frozen=True)
class Line:
    """A line of a log, or what a carriage return left of it. ``number`` counts from 1, as editors do."""

    number: int
    text: str

    def malformed(self, reason: str) -> FormatError:
        """Make the error that says where and why."""
        shown = self.text.strip()
        shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
        return FormatError(
            f"line {self.number}: {reason}: {shown!r}", hint="mend the line, or cut its table out of the log"
        )


def clean(texts: Iterable[str]) -> Iterator[Line]:
    """Give the lines of a log without noise; a progress bar's carriage returns part lines, but are not counted."""
    for number, text in enumerate(texts, start=1):
        for part in text.rstrip("\r\n").split("\r"):
            yield Line(number, _NOISE.sub("", part))


@dataclass(frozen=True)
class LoggedPlan:
    """One row. Several plans are a combination: they save this together, none of them alone.

    ``frequency`` is how often the cluster occurs; of a layout ``summary`` it is the number of stashed outputs, since a
    cluster with two is counted twice there. ``saving_bytes`` is what all occurrences save at the dimensions of the
    first batch, and ``saving_formula`` the same as an expression; None and empty where the layout has none. ``shapes``
    are those of the stashed outputs, as the log spells them, in elements. ``line`` is the row's in the log.
    """

    line: int
    plans: tuple[Plan, ...]
    is_on: bool
    frequency: int | None = None
    saving_bytes: int | None = None
    saving_formula: str = ""
    shapes: tuple[str, ...] = ()

    @property
    def entry(self) -> str:
        """Write the row as an entry of ``mem_opt.json``."""
        return join_plans(self.plans)


@dataclass(frozen=True)
class PlanTable:
    """One table of a log.

    ``columns``: the table that ORTModule prints from INFO on, since release 1.17; ``summary``: what the graph
    transformer printed before; ``opportunities``: what it prints since, from DEVINFO on. ``level`` is as ORTModule
    spells it, ``USER_SPECIFIED`` and others, empty where it is not told. ``config`` are the plans that the user asked
    for, where the log has them: a table itself tells no counts. ``dimensions`` are the values of the symbols in the
    formulas. ``line`` is the first row's. ``alternatives`` are the plans of rows that exclude each other, as far as a
    layout tells them.
    """

    layout: Literal["columns", "summary", "opportunities"]
    line: int
    rows: tuple[LoggedPlan, ...]
    level: str = ""
    config: tuple[Plan, ...] = ()
    dimensions: dict[str, int] = field(default_factory=dict)
    alternatives: tuple[tuple[Plan, ...], ...] = ()

    @property
    def on(self) -> tuple[Plan, ...]:
        """Return the plans that were on, by cluster id; with counts where the log tells what the user asked for."""
        asked = {(plan.cluster_id, plan.strategy): plan for plan in self.config}
        plans = {plan.cluster_id: plan for row in self.rows if row.is_on for plan in row.plans}
        return tuple(asked.get((name, plan.strategy), plan) for name, plan in sorted(plans.items()))


def listed_plans(line: Line, entry: str) -> tuple[Plan, ...]:
    """Read a row's plans, one or a combination; FormatError if they are malformed."""
    try:
        plans = tuple(parse_plan(text) for text in entry.split(","))
    except PlanError as error:
        raise line.malformed(str(error)) from None
    for plan in plans:
        if not plan.cluster_id.endswith("+"):
            raise line.malformed(f"a cluster id ends with '+', this is {plan.cluster_id!r}")
    return plans


def asked_plans(line: Line, text: str) -> tuple[Plan, ...]:
    """Read what the user asked for; of two plans for one cluster the last one counts."""
    return parse_plans(map(str, listed_plans(line, text)))
