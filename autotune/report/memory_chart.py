"""Drawings of the memory over a step: the places of everything in them, in the units of an SVG picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from ..records.units import format_bytes
from .chart import Frame, Tick, size_ticks
from .record import Report, StepMemory

_LEFT, _RIGHT, _TOP, _BOTTOM = 68.0, 12.0, 12.0, 26.0
_NEAR = 1.6


@dataclass(frozen=True)
class Band:
    """One part of the memory: ``kind`` is its colour, ``path`` its outline, ``title`` says what it is."""

    kind: str
    path: str
    title: str


@dataclass(frozen=True, kw_only=True)
class Panel(Frame):
    """A step; all panels of a report have one scale. ``backward`` is where the backward begins."""

    title: str
    upward: tuple[Tick, ...]
    bands: tuple[Band, ...]
    backward: float
    limit: float | None
    limit_text: str


def draw_steps(report: Report, *, width: float = 920.0, height: float = 230.0) -> tuple[Panel, ...]:
    """Draw a panel for the script and one for the answer; none where nothing can be simulated."""
    if not report.steps:
        return ()
    highest = max(max(step.totals) for step in report.steps)
    word, limit = ("target", report.target_bytes) if report.target_bytes is not None else ("limit", report.limit_bytes)
    is_near = limit is not None and limit <= _NEAR * highest
    most = 1.06 * max(highest, limit if limit is not None and is_near else 0, 1)
    frame = Frame(width, height, _LEFT, width - _RIGHT, _TOP, height - _BOTTOM)
    y = partial(frame.y, low=0.0, high=most)
    panels = []
    for step in report.steps:
        count = len(step.gradients)
        across = [frame.x(number, max(1, count - 1)) for number in range(count)]
        peak = max(step.totals)
        bands, below = [], [0] * count
        for kind, name, values in _parts(step):
            above = [low + value for low, value in zip(below, values, strict=True)]
            if any(values):
                title = f"{name}: {format_bytes(max(values))}{'' if min(values) == max(values) else ' at most'}"
                bands.append(Band(kind, _outline(across, [y(one) for one in below], [y(one) for one in above]), title))
            below = above
        panels.append(
            Panel(
                title=f"{step.name}, {format_bytes(peak)} at its peak",
                **vars(frame),
                upward=tuple(Tick(y(size), format_bytes(size) if size else "0") for size in size_ticks(most, 5)),
                bands=tuple(bands),
                backward=across[min(step.num_forward, count - 1)],
                limit=y(limit) if limit is not None and is_near else None,
                limit_text="" if limit is None else f"{word} {format_bytes(limit)}",
            )
        )
    return tuple(panels)


def _parts(step: StepMemory) -> Iterator[tuple[str, str, Sequence[int]]]:
    """Yield the parts from the bottom, beginning with what is always there."""
    count = len(step.gradients)
    yield "rest", "the rest: Python, libraries, contexts, caches", [step.rest] * count
    yield "parameters", "parameters and buffers", [step.parameters] * count
    yield "optimizer", "optimizer state", [step.optimizer_state] * count
    yield "gradients", "gradients", step.gradients
    for number, (name, values) in enumerate(zip(step.block_names, step.blocks, strict=True)):
        yield f"block-{number % 2}", f"activations kept by {name}", values
    yield "outside", "activations kept outside of blocks", step.outside
    yield "passing", "in use while operators run", step.passing


def _outline(across: Sequence[float], low: Sequence[float], high: Sequence[float]) -> str:
    # Half a unit is less than a pixel, and decimals would be half of the page.
    there = " ".join(f"{x:.0f} {y:.0f}" for x, y in zip(across, high, strict=True))
    back = " ".join(f"{x:.0f} {y:.0f}" for x, y in zip(reversed(across), reversed(low), strict=True))
    return f"M{there} {back}z"
