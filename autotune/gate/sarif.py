"""The answer as SARIF 2.1.0, which code hosts show beside the lines of a pull request."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from .. import __version__
from ..records.gate import Gate

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_RULES = {
    "slower": "The setting trains fewer samples per second than it did.",
    "more-memory": "The setting's peak is higher than it was.",
    "out-of-memory": "The setting does not fit any more.",
    "not-comparable": "Nothing could be told about the setting.",
}
_RULE_OF = {"speed": "slower", "memory": "more-memory"}


def render_sarif(gate: Gate, script: str) -> str:
    """Write the file's contents: a result for each figure that is worse, on the first line of the script.

    A gate that failed has no result: the run is said to have failed, with the cause.

    Args:
        gate: the answer.
        script: the script's path in the repository.
    """
    location = {
        "physicalLocation": {
            "artifactLocation": {"uri": quote(script, errors="surrogateescape")},
            "region": {"startLine": 1},
        }
    }
    results = [
        {"ruleId": rule, "level": level, "message": {"text": gate.reason}, "locations": [location]}
        for rule, level in _results(gate)
    ]
    invocation: dict[str, Any] = {"executionSuccessful": gate.answer != "failed"}
    if gate.answer == "failed":
        invocation["toolExecutionNotifications"] = [{"level": "error", "message": {"text": gate.reason}}]
    rules = [{"id": rule, "shortDescription": {"text": text}} for rule, text in _RULES.items()]
    driver = {"name": "autotune gate", "version": __version__, "rules": rules}
    run = {"tool": {"driver": driver}, "invocations": [invocation], "results": results}
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _results(gate: Gate) -> list[tuple[str, str]]:
    """Rule and level of each result."""
    if gate.answer == "not_comparable":
        return [("not-comparable", "note")]
    if gate.answer != "regression":
        return []
    worse = [(_RULE_OF[gauge.name], "error") for gauge in gate.gauges if gauge.found == "worse"]
    return worse or [("out-of-memory", "error")]
