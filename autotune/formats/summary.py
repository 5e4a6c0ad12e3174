"""The memory optimizer's summary, as releases 1.13 to 1.16 print it.

::

    MemoryOptimizer Summary:
        User config:
        FastGelu+:1:12
        =================================
        ########Recompute########
        Subgraph: FastGelu+
            OptimizationType: Recompute (requested_count=12, actual applied_count=12)
            Patterns:
            PatternShape:input_ids_dim0 x input_ids_dim1 x 4096 x   Frequency:24
        --------------------------------
        ########RecomputeWithCompromise########
        ...

In 2022 it was called MemoryAlleviation, had ``AlleviationType:`` and knew recompute only. Sources: ``PrintSummary`` in
orttraining/core/optimizer/memory_optimizer.cc and memory_alleviation.cc, docs/Memory_Optimizer.md of those releases.
Shapes are in elements: the summary does not tell how many bytes they have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ..records.plan import ALL, COMPROMISED, RECOMPUTE, Plan
from .lines import Line
from .table import LoggedPlan, PlanTable, asked_plans, listed_plans

_TITLE = re.compile(r"Memory(?:Optimizer|Alleviation) Summary:")
_SECTION = re.compile(r"#{4,}(Recompute|RecomputeWithCompromise)#{4,}")
_CLUSTER = re.compile(r"\bSubgraph:\s*(\S*)")
_STATE = re.compile(r"(?:Optimization|Alleviation)Type:\s*(.*)")
_APPLIED = re.compile(r"Recomputed?(?: \(requested_count=(-?\d+), actual applied_count=\d+\))?")
_SHAPE = re.compile(r"PatternShape:(.*)")
_OCCURS = re.compile(r"(.*?)\s*x?\s*Frequency:(\d+)")


@dataclass
class _Subgraph:
    """A subgraph as far as it was read."""

    line: Line
    plans: tuple[Plan, ...]
    is_on: bool | None = None
    shapes: list[str] = field(default_factory=list)
    frequency: int = 0

    def row(self) -> LoggedPlan:
        if self.is_on is None:
            raise self.line.malformed("no OptimizationType follows this subgraph")
        if not self.shapes:
            raise self.line.malformed("no PatternShape follows this subgraph")
        return LoggedPlan(self.line.number, self.plans, self.is_on, self.frequency, shapes=tuple(self.shapes))


@dataclass
class _Summary:
    """A summary as far as it was read."""

    strategy: int = RECOMPUTE
    config: tuple[Plan, ...] = ()
    subgraphs: list[_Subgraph] = field(default_factory=list)

    def tables(self) -> Iterator[PlanTable]:
        rows = tuple(subgraph.row() for subgraph in self.subgraphs)
        if rows:
            yield PlanTable("summary", rows[0].line, rows, config=self.config)


def read_summary(lines: Iterable[Line]) -> Iterator[PlanTable]:
    """Read every summary; FormatError names the line that breaks off one."""
    summary = _Summary()
    config_follows = False
    for whole in lines:
        # Quoted on one line, its parts have slashes between them.
        for line in (Line(whole.number, part) for part in whole.text.split(" / ")):
            if _TITLE.search(line.text):
                yield from summary.tables()
                summary = _Summary()
            elif config_follows:
                summary.config = _config(line)
            elif section := _SECTION.search(line.text):
                summary.strategy = COMPROMISED if section[1] == "RecomputeWithCompromise" else RECOMPUTE
            elif cluster := _CLUSTER.search(line.text):
                summary.subgraphs.append(_Subgraph(line, listed_plans(line, f"{cluster[1]}:{summary.strategy}:{ALL}")))
            elif state := _STATE.search(line.text):
                _note_state(_last(line, summary), line, state[1].strip(" *"))
            elif shape := _SHAPE.search(line.text):
                _note_shape(_last(line, summary), line, shape[1])
            config_follows = line.text.strip() == "User config:"
    yield from summary.tables()


def _note_state(subgraph: _Subgraph, line: Line, state: str) -> None:
    applied = _APPLIED.fullmatch(state)
    if applied is None and state != "Disabled":
        raise line.malformed(f"expected Disabled or Recompute, got {state!r}")
    subgraph.is_on = applied is not None


def _note_shape(subgraph: _Subgraph, line: Line, text: str) -> None:
    occurs = _OCCURS.match(text.strip())
    if occurs is None:
        raise line.malformed("no frequency stands behind the shape")
    subgraph.shapes.append(occurs[1])
    subgraph.frequency += int(occurs[2])


def _last(line: Line, summary: _Summary) -> _Subgraph:
    if not summary.subgraphs:
        raise line.malformed("no subgraph stands before it")
    return summary.subgraphs[-1]


def _config(line: Line) -> tuple[Plan, ...]:
    """Return what the user asked for; in 2022 it was printed without counts."""
    entries = [entry for entry in line.text.strip(" \t*").split(",") if entry]
    whole = ",".join(f"{entry}:{ALL}" if entry.count(":") == 1 else entry for entry in entries)
    return asked_plans(line, whole) if whole else ()
