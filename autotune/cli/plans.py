"""`autotune plans`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import UsageError
from ..ort_logs.table import PlanTable
from ..records.codec import to_json
from ..records.printable import printable
from ..records.units import format_bytes
from .command import make_app, print_json
from .options import JsonOption

_MOST_PHASES = 16


def plans(
    log: Annotated[Path, typer.Argument(metavar="LOGFILE", help="The output of a training with ORTModule.")],
    json: JsonOption = False,
) -> None:
    """List the plans and the memory matrix in an ONNX Runtime training log.

    autotune reads logs of all releases since 1.13. `autotune run SCRIPT --plans-from LOGFILE` tries these plans first.
    """
    from ..ort_logs.log import read_log
    from ..report.tables import matrix_table
    from .tables import make_console, print_table

    read = read_log(log)
    if not read.tables and not read.memory_matrix:
        raise UsageError(
            f"there are neither plans nor a memory matrix in {log.name!r}",
            hint="ORTModule lists its plans from DebugOptions(log_level=LogLevel.INFO) on",
        )
    if json:
        tables = [_document(table) for table in read.tables]
        print_json({"log": str(log), "tables": tables, "memory_matrix": to_json(read.memory_matrix)})
        return
    for table in read.tables:
        _print_plans(table)
    if read.memory_matrix:
        print_table(make_console(stderr=False), matrix_table(read.memory_matrix), most=_MOST_PHASES)


app = make_app(plans)


def _document(table: PlanTable) -> dict[str, Any]:
    return {
        "layout": table.layout,
        "line": table.line,
        "level": table.level,
        "config": [str(plan) for plan in table.config],
        "on": [str(plan) for plan in table.on],
        "dimensions": table.dimensions,
        "plans": [
            {
                "plan": row.entry,
                "is_on": row.is_on,
                "frequency": row.frequency,
                "saving_bytes": row.saving_bytes,
                "saving_formula": row.saving_formula,
                "shapes": row.shapes,
                "line": row.line,
            }
            for row in table.rows
        ],
    }


def _print_plans(table: PlanTable) -> None:
    from rich.text import Text

    from ..report.tables import Table
    from .tables import make_console, print_table

    console = make_console(stderr=False)
    level = f", level {table.level}" if table.level else ""
    count = f"{len(table.rows)} plan{'' if len(table.rows) == 1 else 's'}"
    num_on = sum(row.is_on for row in table.rows)
    console.print(Text(f"From line {table.line} on: {count}, {num_on} on{level}", style="bold"))
    asked = f"asked for: {' '.join(map(str, table.config))}" if table.config else ""
    sizes = ", ".join(f"{name} = {value}" for name, value in table.dimensions.items())
    rows = tuple(
        (
            row.entry,
            "on" if row.is_on else "",
            "" if row.frequency is None else str(row.frequency),
            "" if row.saving_bytes is None else format_bytes(row.saving_bytes),
            row.saving_formula or "; ".join(row.shapes),
        )
        for row in table.rows
    )
    has_formulas = any(row.saving_formula for row in table.rows)
    columns = ("Plan", "On", "Occurs", "Saves", "Formula (bytes)" if has_formulas else "Saved activations (elements)")
    print_table(console, Table(columns, rows, frozenset({2, 3})))
    for line in filter(None, [asked, f"with {sizes}; savings of several plans cannot be summed" if sizes else ""]):
        console.print(Text(printable(line), style="dim"))
    console.print()
