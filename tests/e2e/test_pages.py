"""The commands of the pages that look at this machine, and reading a log, run as users run them."""

from __future__ import annotations

import re

from tests.docs.pages import DOCS, ROOT
from tests.e2e.processes import run_autotune


def test_help_is_printed(tmp_path):
    done = run_autotune("--help", folder=tmp_path)
    assert done.status == 0
    assert b"autotune run train.py" in done.output


def test_doctor_finds_what_a_study_needs(tmp_path):
    done = run_autotune("doctor", folder=tmp_path)
    assert done.status == 0, done.output
    for word in (b"Python", b"torch", b"C++ compiler", b"Host memory"):
        assert word in done.output


def test_engines_lists_every_engine_and_choice_that_the_guides_name(tmp_path):
    done = run_autotune("engines", folder=tmp_path)
    assert done.status == 0
    rows = r"^\| `([\w-]+)`(?: \(default\))? \|"
    for page in ("engines", "choices"):
        named = re.findall(rows, (DOCS / f"guides/{page}.md").read_text(encoding="utf-8"), re.MULTILINE)
        assert named
        assert [word for word in named if word not in done.output.decode()] == []


def test_plans_are_read_from_a_log_of_onnx_runtime(tmp_path):
    done = run_autotune("plans", ROOT / "tests/fakes/ort_tables/plan_table_A_l0.txt", folder=tmp_path)
    assert done.status == 0
    assert b"Plan" in done.output
