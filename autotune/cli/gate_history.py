"""What `autotune gate --history` prints."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

from ..records import Gauge, PastGate
from ..records.figures import format_rate
from ..records.units import format_bytes
from ..report import Table

__all__ = ["history_table"]

_HASH = 8  # as many characters of a hash as git shows


def history_table(gates: Iterable[PastGate]) -> Table:
    """Earlier answers, the newest last."""
    columns = ("when", "answer", "speed", "", "peak", "", "rounds", "script", "on")
    return Table(columns, tuple(map(_row, gates)), numeric=frozenset({2, 4, 6}))


def _row(past: PastGate) -> tuple[str, ...]:
    gate = past.gate
    speed, memory = past.gauge("speed"), past.gauge("memory")
    return (
        dt.datetime.fromtimestamp(past.held_at).astimezone().strftime("%Y-%m-%d %H:%M"),
        gate.answer.replace("_", " "),
        "" if speed is None else f"{format_rate(speed.now)}/s",
        _change(speed),
        "" if memory is None else format_bytes(memory.now),
        _change(memory),
        str(gate.rounds),
        past.script_sha256[:_HASH],
        "" if gate.environment is None else f"{gate.environment.device_name}, torch {gate.environment.torch}",
    )


def _change(gauge: Gauge | None) -> str:
    if gauge is None:
        return ""
    interval = "" if gauge.low is None or gauge.high is None else f" ({gauge.low:.3f} to {gauge.high:.3f})"
    return f"{gauge.change:.3f}x{interval}"
