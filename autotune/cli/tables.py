"""The report's tables and sentences on a terminal, with rich."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console, RenderableType
from rich.segment import Segment, Segments
from rich.table import Table as RichTable
from rich.text import Text

from ..files.changes import Changes
from ..records.printable import printable
from ..records.units import format_bytes
from ..report.record import DescribedScript
from ..report.tables import Table

_MOST_PLANS = 14
_MOST_OPERATORS = 6
_LOG_WIDTH = 160


class PlainConsole(Console):
    """A console whose reader may go away, as `tee` does at Ctrl-C: what it would have read is not worth failing for."""

    def say(self, text: str, *, style: str = "") -> None:
        """Print a sentence as it is, on one line."""
        self.print(Text(text, style=style), soft_wrap=True)

    def on_broken_pipe(self) -> None:
        self.quiet = True
        # Python flushes once more at its exit, and must find something that takes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


def make_console(*, stderr: bool = True) -> PlainConsole:
    """A console on standard error (or output); no colour when it is no terminal or NO_COLOR is set."""
    plain = bool(os.environ.get("NO_COLOR"))  # rich alone would leave bold and dim
    console = PlainConsole(stderr=stderr, highlight=False, soft_wrap=False, color_system=None if plain else "auto")
    if not console.is_terminal:
        # A log has no width of its own: sentences stay on one line, and tables must not be squeezed into 80 columns.
        console.width, console.soft_wrap = _LOG_WIDTH, True
    return console


def print_table(console: Console, table: Table, *, most: int | None = None) -> None:
    """Print a table without lines around it; ``most`` rows, and how many were left out."""
    drawn = RichTable(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for index, column in enumerate(table.columns):
        numeric = index in table.numeric
        drawn.add_column(column, justify="right" if numeric else "left", no_wrap=numeric, overflow="fold")
    rows = table.rows if most is None else table.rows[:most]
    for row in rows:
        drawn.add_row(*(Text(printable(cell)) for cell in row))
    _print_trimmed(console, drawn)
    if len(rows) < len(table.rows):
        console.print(Text(f"… and {len(table.rows) - len(rows)} more", style="dim"))


def print_rows(console: Console, rows: Iterable[tuple[str, str]]) -> None:
    """Print names and values in two columns."""
    drawn = RichTable.grid(padding=(0, 2, 0, 0))
    drawn.add_column(style="dim", no_wrap=True)
    drawn.add_column(overflow="fold")
    for name, value in rows:
        drawn.add_row(Text(name), Text(printable(value)))
    _print_trimmed(console, drawn)


def print_changes(console: Console, changes: Changes) -> None:
    """Say what runs have changed on disk, and what became of it."""
    for sentence in changes.sentences(Path.cwd()):
        console.print(Text(sentence, style="dim"), soft_wrap=True)


def print_facts(console: Console, described: DescribedScript) -> None:
    """Print what discovery found: what it runs on, the memory's parts and the plan table."""
    from ..report.batches import epoch_sentences
    from ..report.sentences import calibration_sentence, dimensions_sentence, peak_sentence, undescribed_sentence
    from ..report.tables import (
        FORMULA_COLUMN,
        conversion_table,
        environment_rows,
        moment_table,
        operator_table,
        plan_table,
        split_rows,
    )

    print_rows(console, environment_rows(described))
    parts = ", ".join(f"{name} {format_bytes(size)}" for name, size in split_rows(described))
    title = "Memory of a step" if described.target == "script" else "Memory of a run"
    memory = [row for row in ((title, parts), ("Its peak", peak_sentence(described))) if row[1]]
    if memory:
        console.print()
        print_rows(console, memory)
    longest = {operator_table: _MOST_OPERATORS}
    for table_of in (moment_table, operator_table, conversion_table):
        if (table := table_of(described)).rows:
            console.print()
            print_table(console, table, most=longest.get(table_of))
    plans = plan_table(described)
    if plans.rows or described.target == "script":
        console.print()
    if plans.rows:
        print_table(console, plans, most=_MOST_PLANS)
        formulas = [row[FORMULA_COLUMN] for row in plans.rows[:_MOST_PLANS]]
        sizes = dimensions_sentence(described, formulas)
        if described.plans:
            caption = [f"with {sizes}"] if sizes else []
            console.print(Text("; ".join([*caption, "savings of several plans cannot be summed"]), style="dim"))
        if calibration := calibration_sentence(described):
            console.print(Text(calibration, style="dim"))
    elif not described.undescribed and described.target == "script":
        console.print("No plans: nothing in this script can be recomputed.")
    if undescribed := undescribed_sentence(described):
        console.print(Text(undescribed, style="yellow"))
    control = described.batch_control
    if control is not None and control.how == "none":
        advice = control.advice_to_pass(described.batch_size) if described.target == "script" else ""
        console.print(Text(f"Batch size is left alone: {control.reason}. {advice}".rstrip(), style="yellow"))
    accumulation = described.accumulation_control
    if accumulation is not None and (accumulation.steps or 0) > 1:
        console.print(Text(f"Each optimizer step accumulates {accumulation.steps} micro-batches.", style="dim"))
    for said in epoch_sentences(described.ahead):
        console.print(Text(said, style="dim"))
    for note in described.notes:
        console.print(Text(f"note: {note}", style="yellow"))


def _print_trimmed(console: Console, drawn: RenderableType) -> None:
    """Print without the blanks that fill up a table's last column: a log is read, diffed and copied from."""
    for line in console.render_lines(drawn, pad=False):
        while line and not line[-1].text.strip():
            line.pop()
        if line:
            line[-1] = Segment(line[-1].text.rstrip(), line[-1].style)
        console.print(Segments([*line, Segment.line()]), end="")
