"""The answer of a gate as files for CI: JUnit's XML, one test case for each figure or device, and Markdown."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from ...records.gate import AnyGate, Gate, Gauge, LimitFound, LimitGate, MemoryGate
from ...records.printable import markdown, printable
from ...records.units import format_bytes
from .decision import figure, left_open

_ELEMENTS: dict[LimitFound, str] = {"within": "", "near": "failure", "over": "failure", "not_known": "error"}
_MOST_ROWS = 10
_FAILS = {"regression": "failure", "failed": "error", "not_comparable": "skipped"}


def render_junit(gate: AnyGate, name: str) -> str:
    """Write the file's contents; XML has no way to write control characters, so what does not print is escaped."""
    if isinstance(gate, MemoryGate):
        cases = [("memory", _FAILS.get(gate.answer, ""))]
    else:
        cases = _checked(gate) if isinstance(gate, LimitGate) else _compared(gate)
    elements = [element for _, element in cases]
    counts = {"tests": str(len(cases))} | {f"{one}s": str(elements.count(one)) for one in ("failure", "error")}
    # Schemas of this format count what was skipped in suites only.
    root, skipped = ET.Element("testsuites", counts), str(elements.count("skipped"))
    attributes = {"name": printable(f"autotune gate: {name}"), **counts, "skipped": skipped}
    suite = ET.SubElement(root, "testsuite", attributes)
    for case, element in cases:
        made = ET.SubElement(suite, "testcase", {"classname": printable(f"autotune.gate.{name}"), "name": case})
        if element:
            ET.SubElement(made, element, {"message": printable(gate.sentences[0])})
        ET.SubElement(made, "system-out").text = printable(gate.reason)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _compared(gate: Gate) -> list[tuple[str, str]]:
    """Return the cases of a comparison: their names, and elements that tell of failures, empty for none."""
    cases: list[tuple[str, str]] = [(gauge.name, _element_of(gate, gauge.found)) for gauge in gate.gauges]
    called_for = _FAILS.get(gate.answer, "")
    if gate.answer == "failed":
        cases = []
    if not cases or called_for not in [element for _, element in cases] + [""]:
        # It ran out of memory after repetitions that were well, say.
        cases.append(("measured", called_for))
    return cases


def _checked(gate: LimitGate) -> list[tuple[str, str]]:
    if not gate.checks:
        return [("measured", "error")]
    return [(f"memory on {check.device}", _ELEMENTS[check.found]) for check in gate.checks]


def _element_of(gate: Gate, found: str) -> str:
    if gate.answer == "regression":
        return "failure" if found == "worse" else ""
    return _FAILS.get(gate.answer, "") if found == "open" or gate.answer != "not_comparable" else ""


_TITLES = {
    "pass": "passed",
    "improvement": "passed, with an improvement",
    "regression": "regression",
    "not_comparable": "not comparable",
    "failed": "failed",
    "over_limit": "over the limit",
}


def render_markdown(gate: AnyGate, name: str) -> str:
    """Write a heading, the answer, and a table of the figures."""
    first, *rest = gate.sentences
    lines = [f"### autotune gate: {markdown(name)}: {_TITLES[gate.answer]}", "", markdown(first), ""]
    if rest:
        lines += [*(f"- {markdown(one)}" for one in rest), ""]
    if isinstance(gate, LimitGate):
        return "\n".join(lines + _table_of_limits(gate))
    if isinstance(gate, MemoryGate):
        return "\n".join(lines + _table_of_growth(gate))
    if gate.gauges:
        lines += ["| | before | now | change | interval | result |", "|---|---:|---:|---:|---:|---|"]
        lines += [_row(gate, gauge) for gauge in gate.gauges]
        lines.append("")
    return "\n".join(lines)


def _row(gate: Gate, gauge: Gauge) -> str:
    before, now = (figure(gauge, value, gate.reference) for value in (gauge.before, gauge.now))
    return f"| {gauge.name} | {before} | {now} | {gauge.change:.3f}x | {left_open(gauge)} | {gauge.found} |"


def _table_of_growth(gate: MemoryGate) -> list[str]:
    rows = [
        f"| {markdown(one.name)} | {markdown(one.line)} | {format_bytes(one.before_bytes)} "
        f"| {format_bytes(one.now_bytes)} |"
        for one in gate.growth[:_MOST_ROWS]
    ]
    return ["| | line | before | now |", "|---|---|---:|---:|", *rows, ""] if rows else []


def _table_of_limits(gate: LimitGate) -> list[str]:
    if not gate.checks:
        return []
    rows = [
        f"| {markdown(check.device)} | {'' if check.peak_bytes is None else format_bytes(check.peak_bytes)} "
        f"| {format_bytes(check.limit_bytes)} | {check.found.replace('_', ' ')} |"
        for check in gate.checks
    ]
    return ["| | peak | limit | result |", "|---|---:|---:|---|", *rows, ""]
