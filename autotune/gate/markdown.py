"""The answer as Markdown, for a job's summary or a comment."""

from __future__ import annotations

from ..records.figures import format_speed
from ..records.gate import Gate, Gauge
from ..records.printable import markdown
from ..records.units import format_bytes

_TITLES = {
    "pass": "passed",
    "improvement": "passed, with an improvement",
    "regression": "regression",
    "not_comparable": "not comparable",
    "failed": "failed",
}


def render_markdown(gate: Gate, name: str) -> str:
    """Write a heading, the answer, and a table of the figures.

    Args:
        gate: the answer.
        name: of the script.
    """
    first, *rest = gate.sentences
    lines = [f"### autotune gate: {markdown(name)}: {_TITLES[gate.answer]}", "", markdown(first), ""]
    if rest:
        lines += [*(f"- {markdown(one)}" for one in rest), ""]
    if gate.gauges:
        lines += ["| | before | now | change | left open | found |", "|---|---:|---:|---:|---:|---|"]
        lines += [_row(gate, gauge) for gauge in gate.gauges]
        lines.append("")
    return "\n".join(lines)


def _row(gate: Gate, gauge: Gauge) -> str:
    figures = [_figure(gate, gauge, one) for one in (gauge.before, gauge.now)]
    between = "" if gauge.low is None or gauge.high is None else f"{gauge.low:.3f}x to {gauge.high:.3f}x"
    return f"| {gauge.name} | {figures[0]} | {figures[1]} | {gauge.change:.3f}x | {between} | {gauge.found} |"


def _figure(gate: Gate, gauge: Gauge, value: float) -> str:
    if gate.reference == "script":
        return f"{value:.3f} of the script's"
    return format_bytes(value) if gauge.name == "memory" else f"{format_speed(value)}"
