"""The plan table of ORTModule 1.17 to 1.19 in columns, and the memory optimizer's summary of 1.13 to 1.16.

The table has a row for each plan::

    Memory Optimizer     :  ON   :  Memory Optimization Level: [USER_SPECIFIED], Optimization Config: [Gelu+:1:2]
                                    Configs            Freq  Max Saving(Bytes)  Saving Symbolic(Bytes)
     - Plan 1            :  ON   :  Gelu+:1:-1         4     16,777,216         16384.0*ids_dim0*ids_dim1
     - Plan 2            :  OFF  :  Cast+:2:-1,Add+:1:-1  1  2,048              2.0*ids_dim0*(ids_dim1 - 1)
    ...
    Note 3: [Memory Optimizer] Memory saving is calculated based on the 1st batch symbolic dim values:
      ids_dim0=8,  ids_dim1=128,

Source: ``display_memory_optimization_plans`` in onnxruntime/training/ortmodule/_runtime_inspector.py, and
docs/Memory_Optimizer.md. Some builds have no symbolic column, and none of the three figures where details are off.
Where the first batch left a dimension open, the saving itself is an expression. The configuration is the name of
a file in newer releases, and the plans themselves in older ones.

The summary::

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
from dataclasses import dataclass, field, replace

from ..records.plan import ALL, COMPROMISED, RECOMPUTE, Plan
from .table import Line, LoggedPlan, PlanTable, asked_plans, listed_plans

_TITLE = re.compile(r"Memory(?:Optimizer|Alleviation) Summary:")
_SECTION = re.compile(r"#{4,}(Recompute|RecomputeWithCompromise)#{4,}")
_CLUSTER = re.compile(r"\bSubgraph:\s*(\S*)")
_STATE = re.compile(r"(?:Optimization|Alleviation)Type:\s*(.*)")
_APPLIED = re.compile(r"Recomputed?(?: \(requested_count=(-?\d+), actual applied_count=\d+\))?")
_SHAPE = re.compile(r"PatternShape:(.*)")
_OCCURS = re.compile(r"(.*?)\s*x?\s*Frequency:(\d+)")


@dataclass
class _Subgraph:
    """A subgraph of a summary, as far as it was read."""

    line: Line
    plans: tuple[Plan, ...]
    is_on: bool | None = None
    shapes: list[str] = field(default_factory=list)
    frequency: int = 0

    def note_state(self, line: Line, text: str) -> None:
        state = text.strip(" *")
        self.is_on = _APPLIED.fullmatch(state) is not None
        if not self.is_on and state != "Disabled":
            raise line.malformed(f"expected Disabled or Recompute, got {state!r}")

    def note_shape(self, line: Line, text: str) -> None:
        occurs = _OCCURS.match(text.strip())
        if occurs is None:
            raise line.malformed("no frequency follows the shape")
        self.shapes.append(occurs[1])
        self.frequency += int(occurs[2])

    def row(self) -> LoggedPlan:
        if self.is_on is None:
            raise self.line.malformed("no OptimizationType follows this subgraph")
        if not self.shapes:
            raise self.line.malformed("no PatternShape follows this subgraph")
        return LoggedPlan(self.line.number, self.plans, self.is_on, self.frequency, shapes=tuple(self.shapes))


def read_summary(lines: Iterable[Line]) -> Iterator[PlanTable]:
    """Read every summary; FormatError names the line that breaks off one."""
    strategy = RECOMPUTE
    config: tuple[Plan, ...] = ()
    subgraphs: list[_Subgraph] = []
    config_follows = False
    for whole in lines:
        # Quoted on one line, its parts have slashes between them.
        for line in (Line(whole.number, part) for part in whole.text.split(" / ")):
            if _TITLE.search(line.text):
                yield from _summary(subgraphs, config)
                strategy, config, subgraphs = RECOMPUTE, (), []
            elif config_follows:
                config = _config(line)
            elif section := _SECTION.search(line.text):
                strategy = COMPROMISED if section[1] == "RecomputeWithCompromise" else RECOMPUTE
            elif cluster := _CLUSTER.search(line.text):
                subgraphs.append(_Subgraph(line, listed_plans(line, f"{cluster[1]}:{strategy}:{ALL}")))
            elif detail := _STATE.search(line.text) or _SHAPE.search(line.text):
                if not subgraphs:
                    raise line.malformed("no subgraph precedes it")
                note = subgraphs[-1].note_state if detail.re is _STATE else subgraphs[-1].note_shape
                note(line, detail[1])
            config_follows = line.text.strip() == "User config:"
    yield from _summary(subgraphs, config)


def _summary(subgraphs: list[_Subgraph], config: tuple[Plan, ...]) -> Iterator[PlanTable]:
    rows = tuple(subgraph.row() for subgraph in subgraphs)
    if rows:
        yield PlanTable("summary", rows[0].line, rows, config=config)


def _config(line: Line) -> tuple[Plan, ...]:
    """Read what the user asked for; in 2022 it was printed without counts."""
    entries = [entry for entry in line.text.strip(" \t*").split(",") if entry]
    whole = ",".join(f"{entry}:{ALL}" if entry.count(":") == 1 else entry for entry in entries)
    return asked_plans(line, whole) if whole else ()


_OPTIMIZER = re.compile(r"(?:^|\s)Memory Optimizer\s*:\s*(?:ON|OFF)\s*:\s*(.*)")
_LEVEL = re.compile(r"Memory Optimization Level: \[(\w+)\]")
_CONFIG = re.compile(r"Optimization Config: \[(.*?)\]|User config: (.*?), probe level")
_A_PLAN = re.compile(r":\d+:-?\d+")
_HEADER = re.compile(r"(?:^|\s)Configs?\s+Freq\s+Max Saving\(Bytes\)(?P<formula>\s+Saving Symbolic\(Bytes\))?\s*$")
_ROW = re.compile(r"(?:^|\s)- Plan\s+(\d+)\s*:(.*)")
_NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+|\d+")
_EXPRESSION = re.compile(r"[\w.+\-*/(), ]*[A-Za-z][\w.+\-*/(), ]*")
_DIMENSIONS = re.compile(r"1st batch symbolic dim values:\s*(.*)$")
_DIMENSION = re.compile(r"([^\s=,]+)=(\d+)")


def read_columns(lines: Iterable[Line]) -> Iterator[PlanTable]:
    """Read every table of this layout; FormatError names the line that breaks off one."""
    table: PlanTable | None = None
    level, columns = "", None
    config: tuple[Plan, ...] = ()
    dimensions_follow = False
    for line in lines:
        if dimensions_follow:
            assert table is not None
            yield _with_dimensions(table, line, line.text)
            table, dimensions_follow = None, False
        elif optimizer := _OPTIMIZER.search(line.text):
            if table is not None:
                yield table
            table, columns = None, None
            level, config = _asked(line, optimizer[1])
        elif header := _HEADER.search(line.text):
            columns = 4 if header["formula"] else 3
        elif row := _ROW.search(line.text):
            number, rest = int(row[1]), row[2]
            if number == 1:
                if table is not None:
                    yield table
                table = PlanTable("columns", line.number, (), level, config)
            if table is None or number != len(table.rows) + 1:
                before = f"plan {len(table.rows)}" if table is not None else "the table's beginning"
                raise line.malformed(f"plan {number} follows {before}, so lines are missing")
            table = replace(table, rows=(*table.rows, _row(line, rest, columns)))
        elif table is not None and (values := _DIMENSIONS.search(line.text)):
            if values[1]:
                yield _with_dimensions(table, line, values[1])
                table = None
            else:
                dimensions_follow = True
    if table is not None:
        yield table


def _asked(line: Line, text: str) -> tuple[str, tuple[Plan, ...]]:
    """Return the level and the plans that the user asked for; no plans where that is the name of a file."""
    level, config = _LEVEL.search(text), _CONFIG.search(text)
    asked = "" if config is None else (config[1] or config[2] or "")
    return "" if level is None else level[1], asked_plans(line, asked) if _A_PLAN.search(asked) else ()


def _row(line: Line, rest: str, columns: int | None) -> LoggedPlan:
    state, colon, cells = (part.strip() for part in rest.partition(":"))
    if state not in ("ON", "OFF") or not colon:
        raise line.malformed(f"expected ON or OFF behind the plan's number, got {state!r}")
    entry, *figures = cells.split(None, 2) if cells else [""]
    row = LoggedPlan(line.number, listed_plans(line, entry), state == "ON")
    if not figures:
        if columns is not None:
            raise line.malformed("the frequency and the saving are missing")
        return row
    if not figures[0].isdecimal():
        raise line.malformed(f"the frequency is no whole number: {figures[0]!r}")
    if len(figures) == 1:
        raise line.malformed("the saving is missing")
    saving, formula = _saving(line, figures[1].strip())
    if columns == 4 and not formula:
        raise line.malformed("the symbolic saving is missing")
    if columns == 3 and formula and saving is not None:
        raise line.malformed(f"{formula!r} follows the last column")
    return replace(row, frequency=int(figures[0]), saving_bytes=saving, saving_formula=formula)


def _saving(line: Line, text: str) -> tuple[int | None, str]:
    """Read the saving in bytes and as an expression. Expressions hold single blanks, columns are two or more apart."""
    number, _, formula = text.partition(" ")
    if _NUMBER.fullmatch(number):
        return int(number.replace(",", "")), formula.strip()
    value, *rest = re.split(r"\s{2,}", text, maxsplit=1)
    if not _EXPRESSION.fullmatch(value):
        raise line.malformed(f"the saving is neither a number nor an expression: {value!r}")
    return None, rest[0] if rest else value


def _with_dimensions(table: PlanTable, line: Line, text: str) -> PlanTable:
    parts = [part for part in (part.strip() for part in text.split(",")) if part]
    pairs = [_DIMENSION.fullmatch(part) for part in parts]
    if not all(pairs):
        raise line.malformed("expected the dimensions of the first batch, as in 'ids_dim0=8,  ids_dim1=128,'")
    dimensions = {pair[1]: int(pair[2]) for pair in pairs if pair is not None}
    return replace(table, dimensions=dimensions)
