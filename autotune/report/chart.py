"""Charts of a search: the places of everything in them, in the units of an SVG picture.

Settings that were measured in repetitions are drawn by their repetitions, which the answer goes by, the others by their
trial.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from ..records.figures import Figures, format_figures
from ..records.units import format_bytes, format_speed
from ..records.words import cut_names
from .record import Point, Report, winner_word

_LEFT, _RIGHT, _TOP, _BOTTOM, _FAILED = 68.0, 18.0, 30.0, 46.0, 40.0
# A limit that lies further off than so many times the largest peak is an arrow: to scale, it would crush the rest.
_NEAR = 2.5
# Of a label, as the page's font has it.
_LABEL_WIDTH, _LABEL_HEIGHT = 95.0, 17.0
# Fewer batch sizes make no curve.
_LEAST_BATCHES = 3


@dataclass(frozen=True)
class Frame:
    """The size of a drawing, and the edges of the field that its axes span."""

    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float

    def x(self, value: float, most: float) -> float:
        """Place a value between zero at the left edge and the most at the right."""
        return round(self.left + (self.right - self.left) * value / most, 1)

    def y(self, value: float, low: float, high: float) -> float:
        """Place a value between the lowest at the bottom and the highest at the top."""
        return round(self.bottom - (self.bottom - self.top) * (value - low) / (high - low), 1)


@dataclass(frozen=True)
class Tick:
    """A line of the grid and what stands at it."""

    at: float
    text: str


@dataclass(frozen=True)
class Mark:
    """A setting that was measured: its place, the ends of its interval, and what is said of it.

    ``kind`` is ``winner``, ``best``, ``baseline``, ``finalist``, ``fits``, ``over`` or ``flawed``. ``label`` stands to
    the right, near the edge to the left, and ``lowered`` where another label is in its place.
    """

    kind: str
    x: float
    y: float
    top: float
    bottom: float
    title: str
    label: str = ""
    is_left: bool = False
    lowered: float = 0.0


@dataclass(frozen=True)
class Failure:
    """A trial that ran out of memory, at what it would have needed at least."""

    x: float
    title: str


@dataclass(frozen=True)
class Line:
    """A line and its colour: ``front``, ``plain`` or ``planned``."""

    kind: str
    path: str


@dataclass(frozen=True)
class Limit:
    """The memory limit, or the target; ``is_beyond`` if it lies beyond the right edge."""

    x: float
    text: str
    is_beyond: bool


@dataclass(frozen=True, kw_only=True)
class Chart(Frame):
    """Everything that is drawn; ``names`` are those of the axes, across first, ``label`` replaces the picture."""

    names: tuple[str, str]
    label: str
    across: tuple[Tick, ...]
    upward: tuple[Tick, ...]
    lines: tuple[Line, ...]
    marks: tuple[Mark, ...]
    failures: tuple[Failure, ...] = ()
    failures_at: float = 0.0
    limit: Limit | None = None

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of marks, those that are drawn last first."""
        return tuple(dict.fromkeys(mark.kind for mark in reversed(self.marks)))


class _Seen(NamedTuple):
    point: Point
    kind: str
    figures: Figures

    @property
    def rate(self) -> float:
        return self.figures.samples_per_s

    @property
    def peak(self) -> int:
        return self.figures.peaks.fit_bytes or 0


def draw_chart(report: Report, *, width: float = 920.0, height: float = 430.0) -> Chart | None:
    """Draw samples/s against peak memory; None where no trial has ended."""
    seen = sorted(_seen(report), key=lambda one: (one.kind in ("winner", "best", "baseline", "finalist"), one.rate))
    failed = [point for point in report.points if point.outcome == "out_of_memory"]
    if not seen and not failed:
        return None
    word, limit = ("target", report.target_bytes) if report.target_bytes is not None else ("limit", report.limit_bytes)
    needed = [point.needed_bytes or report.limit_bytes or 0 for point in failed]
    largest = max([one.peak for one in seen] + needed)
    is_near = limit is not None and limit <= _NEAR * largest
    most = 1.06 * max(largest, limit if limit is not None and is_near else 0, 1)
    lowest, highest = _span([one.figures for one in seen])
    frame = _frame(width, height, below=_FAILED if failed else 0.0)
    x, y = partial(frame.x, most=most), partial(frame.y, low=lowest, high=highest)
    marks = []
    for one in seen:
        at = x(one.peak)
        is_left = at > frame.left + 0.72 * (frame.right - frame.left)
        label = {"winner": "winner", "best": "best so far", "baseline": f"your {report.target}"}.get(one.kind, "")
        what = f"your {report.target} as it is" if one.point.is_baseline else cut_names(one.point.configuration)
        title = f"Trial {one.point.number}, {what}: {format_figures(one.figures)}"
        marks.append(Mark(one.kind, at, *_heights(one.figures, y), title, label, is_left))
    front = sorted((one for one in seen if one.point.on_front), key=lambda one: (one.peak, one.rate))
    stairs = _stairs([(x(one.peak), y(one.rate)) for one in front])
    step = 2 if width < 600 else 1
    return Chart(
        **vars(frame),
        names=("peak memory", "samples per second"),
        label="Samples per second against peak memory, one mark per trial",
        across=tuple(Tick(x(value), format_bytes(value) if value else "0") for value in size_ticks(most, 7)[::step]),
        upward=tuple(Tick(y(value), format_tick(value)) for value in round_ticks(lowest, highest, 6)),
        lines=(Line("front", stairs),) if stairs else (),
        marks=_apart(marks),
        failures=tuple(
            Failure(x(size), f"Trial {point.number}, {cut_names(point.configuration)}: out of memory")
            for point, size in zip(failed, needed, strict=True)
        ),
        failures_at=height - _BOTTOM - 14.0,
        limit=None if limit is None else Limit(x(min(limit, most)), f"{word} {format_bytes(limit)}", not is_near),
    )


def _apart(marks: Sequence[Mark]) -> tuple[Mark, ...]:
    """Move the labels of the two marks that have one so far apart that both can be read."""
    labelled = sorted((mark for mark in marks if mark.label), key=lambda mark: mark.y)
    if len(labelled) < 2 or abs(labelled[0].x - labelled[1].x) > _LABEL_WIDTH:
        return tuple(marks)
    missing = max(0.0, _LABEL_HEIGHT - (labelled[1].y - labelled[0].y))
    moved = {id(labelled[0]): -missing / 2, id(labelled[1]): missing / 2}
    return tuple(replace(mark, lowered=moved.get(id(mark), 0.0)) for mark in marks)


def draw_batches(report: Report, *, width: float = 460.0, height: float = 340.0) -> Chart | None:
    """Draw the fastest trial that fits at each batch size, with plans and without; None below three sizes."""
    fastest: dict[tuple[str, int], Point] = {}
    for point in report.points:
        if point.batch_size is None or point.samples_per_s is None or not point.may_win:
            continue
        place = ("planned" if point.plans or point.level else "plain", point.batch_size)
        best = fastest.get(place)
        if best is None or (best.samples_per_s or 0.0) < point.samples_per_s:
            fastest[place] = point
    sizes = sorted({size for _, size in fastest})
    if len(sizes) < _LEAST_BATCHES:
        return None
    seen = {place: point.figures for place, point in fastest.items() if point.figures is not None}
    lowest, highest = _span(seen.values())
    frame, most = _frame(width, height), 1.06 * sizes[-1]
    x, y = partial(frame.x, most=most), partial(frame.y, low=lowest, high=highest)
    marks: list[Mark] = []
    lines: list[Line] = []
    for kind in ("plain", "planned"):
        corners = []
        for size in (one for one in sizes if (kind, one) in seen):
            point, one = fastest[kind, size], seen[kind, size]
            title = f"Trial {point.number}, {cut_names(point.configuration)}: {format_speed(one.samples_per_s)}"
            marks.append(Mark(kind, x(size), *_heights(one, y), f"{title}, measured once"))
            corners.append(f"{marks[-1].x:g} {marks[-1].y:g}")
        if len(corners) > 1:
            lines.append(Line(kind, f"M{'L'.join(corners)}"))
    return Chart(
        **vars(frame),
        names=("batch size", "samples per second"),
        label="Samples per second of the fastest trial at each batch size, with plans and without",
        across=tuple(Tick(x(value), format_tick(value)) for value in round_ticks(0.0, most, 6)),
        upward=tuple(Tick(y(value), format_tick(value)) for value in round_ticks(lowest, highest, 6)),
        lines=tuple(lines),
        marks=tuple(marks),
    )


def _frame(width: float, height: float, *, below: float = 0.0) -> Frame:
    return Frame(width, height, _LEFT, width - _RIGHT, _TOP, height - _BOTTOM - below)


def round_ticks(low: float, high: float, count: int) -> list[float]:
    """Return about so many round numbers from low to high: multiples of 1, 2 or 5 times a power of ten."""
    raw = (high - low) / max(1, count - 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= raw)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def format_tick(value: float) -> str:
    """Write a number at an axis."""
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.3g}"


def _seen(report: Report) -> Iterator[_Seen]:
    finalists = {one.text: one for one in report.finalists}
    is_sure = winner_word(report) == "winner"
    for point in report.points:
        figures = point.figures
        if figures is None or figures.peaks.fit_bytes is None:
            continue
        kind = "flawed" if point.thrashed or point.diverged else "fits" if point.fits else "over"
        of_repetitions = finalists.get(point.configuration)
        if of_repetitions is not None and of_repetitions.repetitions and of_repetitions.figures is not None:
            figures, kind = of_repetitions.figures, "finalist"
        if point.is_winner:
            kind = "winner" if is_sure else "best"
        if point.is_baseline:
            kind = "baseline"
        setting = report.baseline if point.is_baseline else report.winner if point.is_winner else None
        yield _Seen(point, kind, setting or figures)


def _heights(figures: Figures, y: Callable[[float], float]) -> tuple[float, float, float]:
    return y(figures.samples_per_s), y(figures.samples_per_s_high), y(figures.samples_per_s_low)


def _span(shown: Collection[Figures]) -> tuple[float, float]:
    low = min((one.samples_per_s_low for one in shown), default=0.0)
    high = max((one.samples_per_s_high for one in shown), default=1.0)
    margin = 0.12 * (high - low or high or 1.0)
    return max(0.0, low - margin), high + margin


def size_ticks(most: float, count: int) -> list[float]:
    """Return about so many round sizes in bytes, from nothing to the most."""
    unit = 1 << 30 if most > 2 << 30 else 1 << 20 if most > 2 << 20 else 1 << 10
    return [value * unit for value in round_ticks(0.0, most / unit, count)]


def _stairs(corners: Sequence[tuple[float, float]]) -> str:
    """Draw the front from the least memory on, by the best point up to each; up is less, as on a page."""
    # Points measured again in repetitions may lie below another one by now.
    rising: list[tuple[float, float]] = []
    for across, up in corners:
        if not rising or up < rising[-1][1]:
            rising.append((across, up))
    if len(rising) < 2:
        return ""
    path = f"M{rising[0][0]:g} {rising[0][1]:g}"
    return path + "".join(f"H{across:g}V{up:g}" for across, up in rising[1:])
