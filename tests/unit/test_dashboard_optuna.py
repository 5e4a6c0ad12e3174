"""Optuna's own dashboard beside ours: on the same database, with notes and logs filled in, and nothing written."""

from __future__ import annotations

import json
from dataclasses import replace

import optuna
import pytest
from optuna_dashboard import get_note
from werkzeug.test import Client

from autotune.dashboard.app import make_app
from autotune.store.opening import open_store
from tests.fakes.store_samples import BASELINE, ENVIRONMENT, FAILED
from tests.fakes.stored_study import store_study
from tests.fakes.study_record import study_record
from tests.unit.test_report_page import HOSTILE, hostile_study


@pytest.fixture
def writing(tmp_path):
    with open_store(str(tmp_path / "studies.db")) as store:
        yield store


@pytest.fixture
def browser(writing, tmp_path):
    with open_store(str(tmp_path / "studies.db"), read_only=True) as store:
        yield Client(make_app(store))


@pytest.fixture
def runs(tmp_path):
    folder = tmp_path / ".autotune" / "runs" / "one"
    folder.mkdir(parents=True)
    (folder / "stdout.log").write_text("what it wrote\n")
    return folder


@pytest.fixture
def get(browser):
    """``get(path)``, with everything read: files are closed then."""
    return lambda path: browser.get(path, buffered=True)


def detail(browser, study_id=1):
    answer = browser.get(f"/api/studies/{study_id}", buffered=True)
    assert answer.status_code == 200
    return answer.json


def test_its_pages_are_there(get, writing):
    store_study(writing, study_record(name="one"))
    assert "Optuna Dashboard" in get("/dashboard").text
    assert "Optuna Dashboard" in get("/dashboard/studies/1").text
    assert get("/static/bundle.js").status_code == 200
    assert [one["study_name"] for one in get("/api/studies").json["study_summaries"]] == ["one"]


def test_a_study_and_its_trials_have_notes(browser, writing):
    store_study(writing, study_record(name="a/b"))
    found = detail(browser)
    assert found["note"]["body"].startswith("Recompute 4 of 12 Blocks")
    assert "[Report](/study?name=a%2Fb)" in found["note"]["body"]
    notes = [trial["note"]["body"] for trial in found["trials"]]
    assert len(notes) == 17
    assert all(notes)
    assert "Trial 3 of autotune's" in notes[3]
    assert "CUDA out of memory in backward" in notes[3]


def test_a_note_follows_its_trial(browser, writing):
    study = store_study(writing, study_record(name="one", trials=(), repeats=(), verdict=None))
    number = study.optuna.ask().number
    study.begin(number, BASELINE, "")
    (before,) = detail(browser)["trials"]
    study.finish(number, FAILED, ENVIRONMENT)
    (after,) = detail(browser)["trials"]
    assert FAILED.cause not in before["note"]["body"].replace("\\", "")
    assert FAILED.cause in after["note"]["body"].replace("\\", "")
    assert (before["note"]["version"], after["note"]["version"]) == (1, 2)


def test_the_logs_of_a_trial_are_its_artifacts(browser, get, writing, runs):
    store_study(writing, study_record(name="one"), run_directory=lambda _: runs)
    found = detail(browser)
    (artifact,) = found["trials"][2]["artifacts"]
    assert (artifact["filename"], artifact["mimetype"]) == ("stdout.log", "text/plain")
    answer = get(f"/artifacts/1/{found['trials'][2]['trial_id']}/{artifact['artifact_id']}")
    assert (answer.text, answer.mimetype) == ("what it wrote\n", "text/plain")


def test_a_log_that_became_a_link_is_not_read(browser, get, writing, runs, tmp_path):
    store_study(writing, study_record(name="one"), run_directory=lambda _: runs)
    trial = detail(browser)["trials"][2]
    (tmp_path / "secret").write_text("a password")
    (runs / "stdout.log").unlink()
    (runs / "stdout.log").symlink_to(tmp_path / "secret")
    answer = get(f"/artifacts/1/{trial['trial_id']}/{trial['artifacts'][0]['artifact_id']}")
    assert answer.text == "This log is no longer there.\n"


def test_nothing_of_it_is_in_the_database(browser, writing, runs, tmp_path):
    store_study(writing, study_record(name="one"), run_directory=lambda _: runs)
    detail(browser)
    with open_store(str(tmp_path / "studies.db")) as again:
        study = again.open("one").optuna
        assert get_note(study) == ""
        assert not [name for trial in study.get_trials() for name in trial.system_attrs if "artifact" in name]


def test_a_study_of_others_is_left_as_it_is(browser, writing):
    optuna.create_study(study_name="theirs", storage=writing.optuna_storage()).add_trial(
        optuna.trial.create_trial(value=1.0)
    )
    found = detail(browser)
    assert found["note"]["body"] == ""
    assert [trial["note"]["body"] for trial in found["trials"]] == [""]


@pytest.mark.parametrize("body", [{}, {"study_name": "x", "directions": ["minimize"]}])
def test_its_writing_ways_come_to_nothing_even_past_the_door(browser, writing, body):
    store_study(writing, study_record(name="one"))
    detail(browser)
    for method, path in [
        ("POST", "/api/studies"),
        ("DELETE", "/api/studies/1"),
        ("POST", "/api/studies/1/rename"),
        ("PUT", "/api/studies/1/note"),
        ("PUT", "/api/studies/1/1/note"),
        ("POST", "/api/trials/1/tell"),
        ("POST", "/api/trials/1/user-attrs"),
    ]:
        data = {"body": "x", "version": 2, "state": "Complete", "values": [1.0], "user_attrs": {"a": 1}, **body}
        answer = browser.open(path, method=method, data=json.dumps(data), content_type="application/json")
        assert answer.status_code >= 400, path
    assert writing.names() == ("one",)
    assert [study.study_name for study in writing.optuna_storage().get_all_studies()] == ["one"]


def test_hostile_texts_are_no_markup_in_notes(browser, writing):
    store_study(writing, replace(hostile_study(), name="<script>"))
    found = detail(browser)
    for body in (found["note"]["body"], *(trial["note"]["body"] for trial in found["trials"])):
        assert "<script>" not in body
        assert HOSTILE not in body
