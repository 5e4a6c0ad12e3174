"""Memory against its limit as a bar of characters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from rich.text import Text

from ...records.engines import Target
from ...records.units import format_bytes
from .marks import Marks

_STYLES = ("cyan", "green", "magenta", "blue", "yellow", "white")


def draw_bar(sizes: Sequence[int], limit_bytes: int | None, *, width: int, marks: Marks) -> Text:
    """Draw sizes one after the other, in so many columns: what passes the limit is drawn behind the limit's mark."""
    total = sum(sizes)
    whole = max(total, limit_bytes or 0, 1)
    edges = [round(width * size / whole) for size in accumulate(sizes)]
    bar = Text()
    for number, (begin, end) in enumerate(zip([0, *edges], edges, strict=False)):
        turn = number % len(marks.parts)
        bar.append(marks.parts[turn] * (end - begin), style=_STYLES[turn])
    bar.append(marks.free * (width - len(bar)), style="dim")
    if limit_bytes is None:
        return bar
    at = round(width * limit_bytes / whole)
    return Text.assemble(bar[:at], (marks.limit, "yellow"), bar[at:])


def draw_parts(
    parts: Sequence[tuple[str, int]], limit_bytes: int | None, *, width: int, marks: Marks, target: Target = "script"
) -> list[Text]:
    """Draw what the target's memory is made of: its peak, and where the limit is known the bar and its parts' names."""
    if not parts:
        return []
    title = f"Your {target}: peak {format_bytes(sum(size for _, size in parts))}"
    if limit_bytes is None:
        return [Text(title)]  # a bar is read against its limit
    sizes = [size for _, size in parts]
    legend = [Text()]
    for number, (name, size) in enumerate(parts):
        entry = f"{marks.parts[number % len(marks.parts)]} {name} {format_bytes(size)}  "
        if legend[-1] and len(legend[-1]) + len(entry) > width:
            legend.append(Text())
        legend[-1].append(entry, style=_STYLES[number % len(_STYLES)])
    bar = draw_bar(sizes, limit_bytes, width=width - 1, marks=marks)
    return [Text(f"{title}, limit {format_bytes(limit_bytes)}"), bar, *legend]
