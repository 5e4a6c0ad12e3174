"""The answer as Markdown, for a job's summary or a comment."""

from __future__ import annotations

from ..records.gate import Gate, Gauge
from ..records.printable import markdown
from .decision import figure, left_open

_TITLES = {
    "pass": "passed",
    "improvement": "passed, with an improvement",
    "regression": "regression",
    "not_comparable": "not comparable",
    "failed": "failed",
}


def render_markdown(gate: Gate, name: str) -> str:
    """Write a heading, the answer, and a table of the figures."""
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
    before, now = (figure(gauge, value, gate.reference) for value in (gauge.before, gauge.now))
    return f"| {gauge.name} | {before} | {now} | {gauge.change:.3f}x | {left_open(gauge)} | {gauge.found} |"
