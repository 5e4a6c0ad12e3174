"""The page of records: who was measured, who lost, and what was foreseen."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from tests.benchmarks.peers.record import Record, write_record
from tests.fakes.study_record import study_record

pytestmark = pytest.mark.slow  # guards benchmarks, and nothing that is shipped

PATH = Path(__file__).resolve().parents[2] / "trials/page.py"


def load():
    spec = importlib.util.spec_from_file_location("page_of_records", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_a_study_is_on_the_page_with_every_trial_failures_too_and_the_answer(tmp_path):
    study = study_record()
    record = Record("toy", "", (), 24 * 2**30, (1, 64)).with_study(study)
    write_record(tmp_path / "a-card" / "toy-24GB.json", record)
    page = load().page_of(tmp_path)
    assert "## a-card" in page
    rows = [line for line in page.splitlines() if line.startswith("| ") and line.split(" | ")[0][2:].isdigit()]
    assert len(rows) == len(study.shown)
    assert sum("out of memory" in row for row in rows) == sum(
        trial.outcome is not None and trial.outcome.kind == "out_of_memory" for trial in study.shown
    )
    assert study.verdict.sentences in page
    assert "No GPU has been at hand" in page


def test_a_device_has_what_is_not_as_believed_the_tests_that_failed_and_studies_without_peers(tmp_path):
    folder = tmp_path / "a-card"
    folder.mkdir()
    facts = [
        {"name": "NVML", "believed": "it starts", "seen": {"name": "A card"}, "holds": True},
        {"name": "a limit", "believed": "it holds", "seen": "no error", "holds": False},
        {"name": "host", "believed": "", "seen": 1, "holds": None},
    ]
    (folder / "facts.json").write_text(json.dumps(facts))
    tests = [("a", "failed"), ("b", "failed"), ("a", "passed"), ("c", "skipped")]
    (folder / "tests.json").write_text(json.dumps([{"test": f"x::{name}", "outcome": what} for name, what in tests]))
    record = Record("toy", "", (), 24 * 2**30, (1, 64)).with_study(study_record())
    write_record(folder / "study-toy-24GB.json", record)
    page = load().page_of(tmp_path)
    assert "1 of 2 facts were as believed" in page
    assert '| a limit | it holds | `"no error"` |' in page
    assert "Tests on the device: 1 failed, 1 passed, 1 skipped." in page
    assert "- `b` failed." in page
    assert "### toy under 24 GiB" in page
    assert "| peer |" not in page
    assert study_record().verdict.sentences in page
    assert "No GPU has been at hand" not in page


def test_the_records_that_are_kept_make_the_page_that_is_kept(tmp_path):
    kept = PATH.parent / "records"
    for path in kept.glob("*/*.json"):
        (tmp_path / path.parent.name).mkdir(exist_ok=True)
        (tmp_path / path.parent.name / path.name).write_bytes(path.read_bytes())
    assert load().page_of(tmp_path) == (kept / "README.md").read_text(encoding="utf-8")
