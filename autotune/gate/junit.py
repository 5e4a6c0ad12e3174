"""The answer as JUnit's XML, which CI systems show among the tests: one test case for each figure."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from ..records.gate import Gate
from ..records.printable import printable

_FAILS = {"regression": "failure", "failed": "error", "not_comparable": "skipped"}


def render_junit(gate: Gate, name: str) -> str:
    """Write the file's contents; XML has no way to write control characters, so what does not print is escaped."""
    cases: list[tuple[str, str]] = [(gauge.name, _element_of(gate, gauge.found)) for gauge in gate.gauges]
    called_for = _FAILS.get(gate.answer, "")
    if gate.answer == "failed":
        cases = []
    if not cases or called_for not in [element for _, element in cases] + [""]:
        # It ran out of memory after rounds that were well, say.
        cases.append(("measured", called_for))
    elements = [element for _, element in cases]
    counts = {
        "tests": len(cases),
        "failures": elements.count("failure"),
        "errors": elements.count("error"),
        "skipped": elements.count("skipped"),
    }
    # Schemas of this format count what was skipped in suites only.
    root = ET.Element("testsuites", {one: str(count) for one, count in counts.items() if one != "skipped"})
    suite = ET.SubElement(
        root,
        "testsuite",
        {"name": printable(f"autotune gate: {name}"), **{one: str(count) for one, count in counts.items()}},
    )
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
