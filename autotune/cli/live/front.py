"""A sketch of samples/s against peak memory, in characters: one cell may stand for several trials."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.text import Text

from ...records.engines import Target
from ...records.figures import format_rate
from ...records.units import format_bytes
from .marks import Marks
from .state import Point

# A limit that lies further off than so many times the largest peak is an arrow: to scale, it would crush the rest.
_NEAR = 2.5
# What is drawn over what, where they share a cell, and in which style.
_ORDER = ("over", "fits", "own", "best")
_STYLES = {"over": "red", "fits": "", "own": "bold", "best": "bold green"}


def draw_front(
    points: Sequence[Point], limit_bytes: int | None, *, width: int, height: int, marks: Marks
) -> list[Text]:
    """Draw the trials.

    Args:
        points: what was measured; what has no finite samples/s or no peak is left out.
        limit_bytes: what the answer may peak at, or None.
        width: columns of all.
        height: lines of all, the axis and its figures included: at least four.
        marks: the characters.

    Returns:
        ``height`` lines of at most ``width`` columns; nothing for less than two points, which make no picture.
    """
    seen = [one for one in points if 0 < one.samples_per_s < math.inf and one.peak_bytes > 0]
    if len(seen) < 2:
        return []
    rates, peaks = [one.samples_per_s for one in seen], [one.peak_bytes for one in seen]
    is_near = _is_near(limit_bytes, seen)
    sizes = [*peaks, limit_bytes] if is_near and limit_bytes is not None else peaks
    top, bottom = format_rate(max(rates)), format_rate(min(rates))
    margin = max(len(top), len(bottom))
    columns, rows = width - margin - 1, height - 2

    cells = [[(" ", "")] * columns for _ in range(rows)]
    if is_near and limit_bytes is not None:
        at = _place(limit_bytes, sizes, columns)
        for row in cells:
            row[at] = (marks.limit, "yellow")
    signs = {"over": marks.trial, "fits": marks.trial, "own": marks.own, "best": marks.best}
    for one in sorted(seen, key=lambda one: _ORDER.index(one.kind)):
        level = rows - 1 - _place(one.samples_per_s, rates, rows)
        cells[level][_place(one.peak_bytes, sizes, columns)] = (signs[one.kind], _STYLES[one.kind])

    lines = []
    for number, row in enumerate(cells):
        label = top if number == 0 else bottom if number == rows - 1 else ""
        lines.append(Text.assemble((f"{label:>{margin}}{marks.wall}", "dim"), *row))
    lines.append(Text(" " * margin + marks.corner + marks.floor * columns, style="dim"))
    low, high = format_bytes(min(sizes)), format_bytes(max(sizes))
    if limit_bytes is not None and not is_near:
        high += f" {marks.beyond} limit {format_bytes(limit_bytes)}"
    gap = max(1, columns - len(low) - len(high))
    lines.append(Text(f"{'':{margin + 1}}{low}{'':{gap}}{high}"[:width], style="dim"))
    return lines


def legend(points: Sequence[Point], limit_bytes: int | None, *, marks: Marks, target: Target = "script") -> Text:
    """What the marks of the same sketch mean."""
    limit = f"  {marks.limit} limit" if _is_near(limit_bytes, points) else ""
    return Text(f"{marks.own} your {target}  {marks.best} best{limit}", style="dim")


def _is_near(limit_bytes: int | None, points: Sequence[Point]) -> bool:
    return limit_bytes is not None and limit_bytes <= _NEAR * max(one.peak_bytes for one in points)


def _place(value: float, values: Sequence[float], cells: int) -> int:
    """Which of the cells a value falls into, that of the least value being 0; the middle one where all are alike."""
    low, high = min(values), max(values)
    return cells // 2 if low == high else round((cells - 1) * (value - low) / (high - low))
