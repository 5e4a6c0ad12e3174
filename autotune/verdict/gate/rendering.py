"""The answer of a gate as files for CI: JUnit's XML, one test case for each figure, and Markdown."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from ...records.gate import Gate, Gauge
from ...records.printable import markdown, printable
from .decision import figure, left_open

_FAILS = {"regression": "failure", "failed": "error", "not_comparable": "skipped"}


def render_junit(gate: Gate, name: str) -> str:
    """Write the file's contents; XML has no way to write control characters, so what does not print is escaped."""
    cases: list[tuple[str, str]] = [(gauge.name, _element_of(gate, gauge.found)) for gauge in gate.gauges]
    called_for = _FAILS.get(gate.answer, "")
    if gate.answer == "failed":
        cases = []
    if not cases or called_for not in [element for _, element in cases] + [""]:
        # It ran out of memory after repetitions that were well, say.
        cases.append(("measured", called_for))
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
}


def render_markdown(gate: Gate, name: str) -> str:
    """Write a heading, the answer, and a table of the figures."""
    first, *rest = gate.sentences
    lines = [f"### autotune gate: {markdown(name)}: {_TITLES[gate.answer]}", "", markdown(first), ""]
    if rest:
        lines += [*(f"- {markdown(one)}" for one in rest), ""]
    if gate.gauges:
        lines += ["| | before | now | change | interval | result |", "|---|---:|---:|---:|---:|---|"]
        lines += [_row(gate, gauge) for gauge in gate.gauges]
        lines.append("")
    return "\n".join(lines)


def _row(gate: Gate, gauge: Gauge) -> str:
    before, now = (figure(gauge, value, gate.reference) for value in (gauge.before, gauge.now))
    return f"| {gauge.name} | {before} | {now} | {gauge.change:.3f}x | {left_open(gauge)} | {gauge.found} |"
