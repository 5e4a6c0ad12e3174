"""Answers of gates over time, as a table and as a drawing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from functools import partial

from ..records.gate import Gauge, PastGate
from ..records.units import format_bytes, format_speed
from .chart import Chart, Frame, Line, Mark, Tick, format_tick, round_ticks
from .tables import Table

_HASH = 8  # as many characters of a hash as git shows
_LEFT, _RIGHT, _TOP, _BOTTOM = 80.0, 20.0, 40.0, 58.0


def gate_table(gates: Iterable[PastGate]) -> Table:
    """Tabulate earlier answers, the newest last."""
    columns = ("when", "answer", "speed", "change", "peak", "change", "repetitions", "script", "on")
    return Table(columns, tuple(map(_row, gates)), numeric=frozenset({2, 4, 6}))


def _row(past: PastGate) -> tuple[str, ...]:
    gate = past.gate
    speed, memory = past.gauge("speed"), past.gauge("memory")
    return (
        _when(past),
        gate.answer.replace("_", " "),
        "" if speed is None else format_speed(speed.now),
        _change(speed),
        "" if memory is None else format_bytes(memory.now),
        _change(memory),
        str(gate.repetitions),
        past.script_sha256[:_HASH],
        "" if gate.environment is None else f"{gate.environment.device_name}, {gate.environment.library}",
    )


def _change(gauge: Gauge | None) -> str:
    if gauge is None:
        return ""
    interval = "" if gauge.low is None or gauge.high is None else f" ({gauge.low:.3f} to {gauge.high:.3f})"
    return f"{gauge.change:.3f}x{interval}"


def draw_gates(gates: Sequence[PastGate], *, width: float = 920.0, height: float = 260.0) -> Chart | None:
    """Draw how the samples per second of a setting changed from gate to gate; None where no gate measured them."""
    seen = [(past, speed) for past in gates if (speed := past.gauge("speed")) is not None]
    if not seen:
        return None
    allowed = 1.0 - max(speed.allowed for _, speed in seen)
    ends = [value for _, speed in seen for value in (speed.change, speed.low, speed.high) if value is not None]
    low, high = min([*ends, allowed, 0.9]), max([*ends, 1.1])
    margin = 0.06 * (high - low)
    low, high = low - margin, high + margin
    frame = Frame(width, height, _LEFT, width - _RIGHT, _TOP, height - _BOTTOM)
    y = partial(frame.y, low=low, high=high)
    places = [frame.x(number + 0.5, len(seen)) for number in range(len(seen))]
    marks = [
        Mark(
            _KINDS.get(past.gate.answer, "fits"),
            x,
            y(speed.change),
            y(speed.change if speed.high is None else speed.high),
            y(speed.change if speed.low is None else speed.low),
            f"{_when(past)}: {past.gate.answer.replace('_', ' ')}, {_change(speed)} the samples per second",
        )
        for x, (past, speed) in zip(places, seen, strict=True)
    ]
    every = max(1, len(seen) // 6)
    return Chart(
        **vars(frame),
        names=("gates, oldest first", "samples per second, as a ratio of before"),
        label="The change of samples per second that each gate found",
        across=tuple(Tick(places[number], _when(seen[number][0])[:10]) for number in range(0, len(seen), every)),
        upward=tuple(Tick(y(value), f"{format_tick(value)}x") for value in round_ticks(low, high, 5)),
        lines=(
            Line("before", f"M{_LEFT:g} {y(1.0):g}H{frame.right:g}"),
            Line("allowed", f"M{_LEFT:g} {y(allowed):g}H{frame.right:g}"),
        ),
        marks=tuple(marks),
    )


# As marks of a search are drawn.
_KINDS = {"pass": "fits", "improvement": "finalist", "regression": "over", "not_comparable": "flawed"}


def _when(past: PastGate) -> str:
    return dt.datetime.fromtimestamp(past.held_at).astimezone().strftime("%Y-%m-%d %H:%M")
