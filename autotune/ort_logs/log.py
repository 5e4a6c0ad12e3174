"""A training log as a whole, and what a search may start from.

The memory matrix has one line for each phase of a step::

    rank-0 step 1 memory (MiB) | phase: pre_forward | allocated: 5331 | max allocated: 9039 | ... | buffer: 8

``str`` of a ``PhaseMemory`` writes this. Release 1.16 wrote ``[0/8] step 1`` for rank 0 of 8, and no figures of the
model's parameters. Source: onnxruntime/training/ortmodule/_runtime_inspector.py.

The graph transformer prints the table of opportunities from DEVINFO on, since release 1.17::

    MemoryInsight Summary - User config: Gelu+:1:-1
    |Freq   | Memory Optimization Opportunities (Clustered by node-level activation patterns)     |
    |4      |For each row options are mutually exclusive, only one of them can be enabled.        |
    |       |>>Option 1     : Recompute subgraph Gelu+                                            |
    |       |  Status       : Enabled, requested count=-1, actual applied count=4                 |
    |       |  Stashed Activations:                                                               |
    |       |   - Output 0  : [((ids_dim0)*(ids_dim1)*(1024))], byte/elem: 4, 100% saved          |

Source: orttraining/core/optimizer/memory_optimizer/memory_insight.cc. Rows are nodes of one pattern: several may have
the same subgraph, which are one row here; of the options of one node, one can be on. What they save together is not the
sum of the outputs (some are shared), so savings are left to the plan table, which such a log has as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast, get_args

from ..errors import FormatError, UsageError
from ..records.matrix import MemoryPhase, PhaseMemory
from ..records.plan import ALL, COMPROMISED, NONE, RECOMPUTE, Plan, join_plans, load_mem_opt
from .columns import read_columns, read_summary
from .table import Line, LoggedPlan, PlanTable, asked_plans, clean, listed_plans

_TITLE = re.compile(r"MemoryInsight Summary - User config(?:: (.*)| file path: .*)")
_NODES = re.compile(r"\|\s*(\S*)\s*\|For each row options are mutually exclusive")
_OPTION = re.compile(r">>Option \d+\s*: (\w+) subgraph (\S*)")
_STATUS = re.compile(r"\|\s*Status\s*:\s*(.*?)\s*\|?$")
_OUTPUT = re.compile(r"- Output \d+\s*:\s*\[(.*)\], byte/elem: (\d+), (\d+)% saved")
_STRATEGIES = {"Recompute": RECOMPUTE, "RecomputeWithCompromise": COMPROMISED}


def read_opportunities(lines: Iterable[Line]) -> Iterator[PlanTable]:
    """Read every table of this layout; FormatError names the line that breaks off one."""
    rows: list[LoggedPlan] = []
    groups: list[list[Plan]] = []
    config: tuple[Plan, ...] = ()
    frequency: int | None = None
    is_open = False  # the last row waits for its status
    for line in lines:
        if title := _TITLE.search(line.text):
            yield from _tables(rows, groups, config)
            rows, groups, frequency = [], [], None
            config = () if (title[1] or "").strip() in ("", "not provided") else asked_plans(line, title[1])
        elif nodes := _NODES.search(line.text):
            if not nodes[1].isdecimal():
                raise line.malformed(f"the frequency is no whole number: {nodes[1]!r}")
            frequency = int(nodes[1])
            groups.append([])
        elif option := _OPTION.search(line.text):
            if frequency is None:
                raise line.malformed("no frequency precedes this option")
            if option[1] not in _STRATEGIES:
                raise line.malformed(f"expected Recompute or RecomputeWithCompromise, got {option[1]!r}")
            plans = listed_plans(line, f"{option[2]}:{_STRATEGIES[option[1]]}:{ALL}")
            rows.append(LoggedPlan(line.number, plans, is_on=False, frequency=frequency))
            groups[-1] += plans
            is_open = True
        elif status := _STATUS.search(line.text):
            if not is_open:
                raise line.malformed("no option precedes this status")
            if not status[1].startswith(("Enabled", "Disabled")):
                raise line.malformed(f"expected Enabled or Disabled, got {status[1]!r}")
            rows[-1] = replace(rows[-1], is_on=status[1].startswith("Enabled"))
            is_open = False
        elif (output := _OUTPUT.search(line.text)) and rows:
            shape = f"{output[1]}, {output[2]} bytes each, {output[3]}% saved"
            rows[-1] = replace(rows[-1], shapes=(*rows[-1].shapes, shape))
    yield from _tables(rows, groups, config)


def _tables(rows: list[LoggedPlan], groups: list[list[Plan]], config: tuple[Plan, ...]) -> Iterator[PlanTable]:
    merged: dict[tuple[Plan, ...], LoggedPlan] = {}
    for row in rows:
        before = merged.get(row.plans, replace(row, frequency=0, shapes=(), is_on=False))
        merged[row.plans] = replace(
            before,
            is_on=before.is_on or row.is_on,
            frequency=(before.frequency or 0) + (row.frequency or 0),
            shapes=tuple(dict.fromkeys((*before.shapes, *row.shapes))),
        )
    if merged:
        alternatives = dict.fromkeys(tuple(group) for group in groups if len(group) > 1)
        yield PlanTable(
            "opportunities", rows[0].line, tuple(merged.values()), config=config, alternatives=tuple(alternatives)
        )


_ROW = re.compile(r"(?:rank-(\d+)|(\d+)/\d+\]) step (\d+) memory \((.*?)\)\s*\|(.*)")
_MIB = 2**20


def read_matrix(lines: Iterable[Line]) -> Iterator[PhaseMemory]:
    """Read every line of a memory matrix; FormatError names one that is malformed.

    Sizes are exact to a MiB, as they were written; ``peak`` is not in the log.
    """
    for line in lines:
        if row := _ROW.search(line.text):
            if row[4] != "MiB":
                raise line.malformed(f"expected sizes in MiB, got {row[4]!r}")
            yield _phase(line, int(row[1] or row[2]), int(row[3]), row[5])


def _phase(line: Line, rank: int, step: int, cells: str) -> PhaseMemory:
    named = {name.strip(): value.strip() for name, _, value in (cell.partition(":") for cell in cells.split("|"))}

    def size(name: str) -> int | None:
        text = named.get(name, "n/a")
        if text == "n/a":
            return None
        if not text.isdecimal():
            raise line.malformed(f"{name!r} is no whole number: {text!r}")
        return int(text) * _MIB

    def required(name: str) -> int:
        found = size(name)
        if found is None:
            raise line.malformed(f"{name!r} is missing")
        return found

    phase = named.get("phase", "")
    if phase not in get_args(MemoryPhase):
        raise line.malformed(f"expected a phase, one of {', '.join(get_args(MemoryPhase))}, got {phase!r}")
    return PhaseMemory(
        phase=cast("MemoryPhase", phase),
        step=step,
        allocated=required("allocated"),
        max_allocated=required("max allocated"),
        peak=None,
        parameters=size("param"),
        gradients=size("grad"),
        buffers=size("buffer"),
        cached=size("cached"),
        max_cached=size("max cached"),
        inactive=size("inactive"),
        max_inactive=size("max inactive"),
        rank=rank,
    )


@dataclass(frozen=True)
class TrainingLog:
    """The contents of a log: its tables in the order of their lines, each once, and its memory matrix."""

    tables: tuple[PlanTable, ...] = ()
    memory_matrix: tuple[PhaseMemory, ...] = ()


def read_log(path: Path) -> TrainingLog:
    """Read a log file; FormatError names the line that is malformed, UsageError says why it cannot be read."""
    try:
        return read_log_text(_text(path).split("\n"))
    except FormatError as error:
        raise FormatError(f"{path.name}, {error}", hint=error.hint) from None


def read_log_text(texts: Sequence[str]) -> TrainingLog:
    """Read the lines of a log; FormatError names the one that is malformed."""
    readers = (read_columns, read_summary, read_opportunities)
    tables = sorted((table for read in readers for table in read(clean(texts))), key=lambda table: table.line)
    return TrainingLog(_distinct(tables), tuple(read_matrix(clean(texts))))


def first_to_try(log: TrainingLog) -> tuple[str, ...]:
    """Return what a search may begin with, as entries of ``mem_opt.json``, each to be tried by itself.

    First what was on, together; then each row, what saves most first, and in the table's order where that is not told.
    """
    sets = [table.on for table in log.tables]
    rows = [row for table in log.tables for row in table.rows]
    sets += [row.plans for row in sorted(rows, key=lambda row: -(row.saving_bytes or 0))]
    return tuple(dict.fromkeys(entry for plans in sets if (entry := _entry(plans))))


def read_first(path: Path) -> tuple[str, ...]:
    """Return what a search may begin with, from a training log, or from a ``mem_opt.json``: all of its plans together.

    Raises:
        UsageError: the file cannot be read, or is malformed, or holds no plans.
    """
    if path.suffix == ".json":
        entries = tuple(filter(None, [_entry(load_mem_opt(_text(path), where=path.name))]))
    else:
        entries = first_to_try(read_log(path))
    if not entries:
        raise UsageError(
            f"there are no plans in {path.name!r}",
            hint="ORTModule lists them from DebugOptions(log_level=LogLevel.INFO) on",
        )
    return entries


def _entry(plans: Iterable[Plan]) -> str:
    """Write plans as one entry, without those that recompute nothing."""
    return join_plans(plan for plan in plans if plan.strategy != NONE and plan.count != 0)


def _distinct(tables: Iterable[PlanTable]) -> tuple[PlanTable, ...]:
    """Leave out repeated tables: one is printed for every module, and again for every graph that is built."""
    distinct: dict[str, PlanTable] = {}
    for table in tables:
        rows = tuple(replace(row, line=0) for row in table.rows)
        distinct.setdefault(repr(replace(table, line=0, rows=rows)), table)
    return tuple(distinct.values())


def _text(path: Path) -> str:
    try:
        # Bytes that are no text are some progress bar's or other library's, not the table's.
        return path.read_bytes().decode("utf-8", errors="replace")
    except OSError as error:
        raise UsageError(
            f"cannot read {str(path)!r}: {error.strerror}", hint="name a file with the output of the training"
        ) from None
