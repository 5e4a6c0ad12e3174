"""``action.yml`` and ``templates/gate.yml``: valid by their hosts' schemas; their steps run as far as they can here."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from .processes import DEADLINE_S

ROOT = Path(__file__).resolve().parents[2]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
HEAD, JOB = yaml.safe_load_all((ROOT / "templates/gate.yml").read_text())

# Says what it was called with, writes files as the gate does unless it was called wrongly, and ends as it is told.
PRETENDED = """#!/bin/bash
printf '%s\\n' "$@" > "$CALLED"
if [ "$STATUS" != 2 ]; then
    for word in "$@"; do case "$word" in */autotune-gate.*) touch "$word" ;; esac; done
fi
exit "$STATUS"
"""
INPUTS = {
    "bundle": "autotune-study 1",
    "script": "my train.py",
    "limit": "",
    "for": "",
    "against": "",
    "options": "--repetitions 8\n--against base/train.py\n",
    "arguments": "--lr 0.1\n$(touch harm) *\n",
    "python": "./pretended",
    "install": "false",
    "fail-if-not-comparable": "true",
}
WORDS = ["--repetitions", "8", "--against", "base/train.py"]
ARGUMENTS = ["--lr", "0.1", "$(touch", "harm)", "*"]


def schema(name: str) -> Any:
    return json.loads((files("check_jsonschema") / "builtin_schemas" / "vendor" / f"{name}.json").read_text())


def filled(text: str, inputs: dict[str, str]) -> str:
    """Put inputs where both hosts' expressions stand."""
    return re.sub(r"\$(?:\{\{|\[\[) inputs\.([\w-]+) (?:\}\}|\]\])", lambda found: inputs[found[1]], text)


def run_step(folder: Path, script: str, env: dict[str, str], status: int) -> tuple[int, list[str]]:
    """Run a step's script as a runner does; its exit code, and what the pretended interpreter was called with."""
    (folder / "pretended").write_text(PRETENDED)
    (folder / "pretended").chmod(0o755)
    called = folder / "called"
    own = {
        "CALLED": str(called),
        "STATUS": str(status),
        "RUNNER_TEMP": str(folder),
        "GITHUB_OUTPUT": str(folder / "out"),
    }
    ended = subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script],
        cwd=folder,
        env=os.environ | env | own,
        timeout=DEADLINE_S,
        check=False,
    )
    assert not (folder / "harm").exists(), "an input was run"
    return ended.returncode, called.read_text().splitlines() if called.exists() else []


def test_they_are_valid_by_their_hosts_schemas() -> None:
    jsonschema.validate(ACTION, schema("github-actions"))
    for document in (HEAD, JOB):
        jsonschema.validate(document, schema("gitlab-ci"))


@pytest.mark.parametrize(
    ("status", "strict", "answer", "expected"),
    [
        (0, "true", "pass", 0),
        (3, "true", "regression", 3),
        (4, "true", "not-comparable", 4),
        (4, "false", "not-comparable", 0),
        (1, "false", "failed", 1),
        (2, "true", "failed", 2),
    ],
)
def test_the_action_says_what_the_gate_said(
    tmp_path: Path, status: int, strict: str, answer: str, expected: int
) -> None:
    (step,) = (step for step in ACTION["runs"]["steps"] if step.get("id") == "gate")
    inputs = INPUTS | {"fail-if-not-comparable": strict}
    env = {name: filled(value, inputs) for name, value in step["env"].items()}

    (tmp_path / "autotune-gate.xml").touch()  # of an earlier gate in the same job
    ended, called = run_step(tmp_path, step["run"], env, status)

    assert ended == expected
    written = dict(line.split("=", 1) for line in (tmp_path / "out").read_text().splitlines())
    assert written["answer"] == answer
    assert set(written) == ({"answer"} if status == 2 else set(ACTION["outputs"]))
    junit = str(tmp_path / "autotune-gate.xml")
    assert written.get("junit") in (None, junit)
    said = [
        "-P",
        "-m",
        "autotune",
        "gate",
        *WORDS,
        "--junit",
        junit,
        "autotune-study 1",
        "my train.py",
        "--",
        *ARGUMENTS,
    ]
    assert called == said


def test_gitlabs_job_runs_the_gate_and_keeps_what_it_wrote(tmp_path: Path) -> None:
    env = {name: filled(value["value"], INPUTS) for name, value in JOB["autotune gate"]["variables"].items()}

    ended, called = run_step(tmp_path, "\n".join(JOB["autotune gate"]["script"]), env, 4)

    assert ended == 4
    assert JOB["autotune gate"]["allow_failure"] == {"exit_codes": 4}
    assert called[:4] == ["-P", "-m", "autotune", "gate"]
    assert called[4 : 4 + len(WORDS)] == WORDS
    kept = JOB["autotune gate"]["artifacts"]["paths"]
    assert [word for word in called if word.startswith("autotune-gate.")] == kept
    assert called[-len(ARGUMENTS) - 3 :] == ["autotune-study 1", "my train.py", "--", *ARGUMENTS]


@pytest.mark.parametrize("host", ["github", "gitlab"])
def test_a_script_without_a_bundle_is_held_against_a_limit(tmp_path: Path, host: str) -> None:
    (step,) = (step for step in ACTION["runs"]["steps"] if step.get("id") == "gate")
    inputs = INPUTS | {"bundle": "", "options": "", "limit": "24 GiB", "for": "a100-40g", "against": "base/$train.py"}
    given = (
        step["env"]
        if host == "github"
        else {name: value["value"] for name, value in JOB["autotune gate"]["variables"].items()}
    )
    script = step["run"] if host == "github" else "\n".join(JOB["autotune gate"]["script"])

    ended, called = run_step(tmp_path, script, {name: filled(value, inputs) for name, value in given.items()}, 3)

    assert ended == 3
    assert called[4:10] == ["--limit", "24 GiB", "--for", "a100-40g", "--against", "base/$train.py"]
    assert called[-len(ARGUMENTS) - 2 :] == ["my train.py", "--", *ARGUMENTS]
    assert "" not in called


def test_the_options_that_they_use_are_the_commands(tmp_path: Path) -> None:
    (step,) = (step for step in ACTION["runs"]["steps"] if step.get("id") == "gate")
    inputs = INPUTS | {"python": sys.executable, "arguments": ""}
    env = {name: filled(value, inputs) for name, value in step["env"].items()}

    for script in (step["run"], "\n".join(JOB["autotune gate"]["script"])):
        ended = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", script],
            cwd=tmp_path,
            env=os.environ | env | {"RUNNER_TEMP": str(tmp_path), "GITHUB_OUTPUT": str(tmp_path / "out")},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert ended.returncode == 2
        assert "autotune-study 1" in ended.stderr, "there is no such bundle, and that alone is wrong"
