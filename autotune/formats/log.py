"""A training log as a whole, and what a search may start from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import FormatError, UsageError
from ..records.matrix import PhaseMemory
from ..records.plan import NONE, Plan, join_plans, load_mem_opt
from .columns import read_columns
from .lines import clean
from .matrix import read_matrix
from .opportunities import read_opportunities
from .summary import read_summary
from .table import PlanTable

_READERS = (read_columns, read_summary, read_opportunities)


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
    tables = sorted((table for read in _READERS for table in read(clean(texts))), key=lambda table: table.line)
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
    """Plans as one entry; those that recompute nothing are left out."""
    return join_plans(plan for plan in plans if plan.strategy != NONE and plan.count != 0)


def _distinct(tables: Iterable[PlanTable]) -> tuple[PlanTable, ...]:
    """Each table once: one is printed for every module, and again for every graph that is built."""
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
            f"cannot read {str(path)!r}: {error.strerror}", hint="name a file that holds what the training printed"
        ) from None
