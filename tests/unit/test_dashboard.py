"""The dashboard's pages, of a database with studies in it."""

from __future__ import annotations

import io
import json
import re
import zipfile
from dataclasses import replace
from urllib.parse import quote

import pytest
from markupsafe import escape
from werkzeug.test import Client

from autotune.dashboard.app import make_app
from autotune.dashboard.reports import Reports
from autotune.records.gate import Gate, Gauge, PastGate
from autotune.report.record import REPORT_VERSION
from autotune.store.claims import Owner
from autotune.store.database import open_store
from tests.fakes.hostile_names import HOSTILE_NAMES
from tests.fakes.stored_study import store_study
from tests.fakes.study_record import FACTS, WINNER, baseline_best, study_record, unfinished
from tests.unit.test_report_page import HOSTILE, hostile_study

NAMES = [name for name in HOSTILE_NAMES.values() if name.isprintable() and name.strip(" ").strip("-") == name]


@pytest.fixture
def writing(tmp_path):
    with open_store(str(tmp_path / "studies.db")) as store:
        yield store


@pytest.fixture
def look(writing, tmp_path):
    """``look(address)`` gives the answer of a dashboard on the database that ``writing`` writes."""
    with open_store(str(tmp_path / "studies.db")) as store:
        browser = Client(make_app(store))

        def look(address, *, status=200, **query):
            answer = browser.get(address, query_string=query or None, buffered=True)
            assert answer.status_code == status, answer.text
            return answer

        yield look


def gate(answer="pass", change=1.0, held_at=1_780_000_000.0, **changes):
    speed = Gauge("speed", 100.0, 100 * change, change, change - 0.01, change + 0.01, 0.05, "within")
    held = Gate(answer, (f"It is {answer}.",), "stored", 8, (speed,), (), FACTS.environment)
    return replace(PastGate(held_at, "train.py", "ab" * 32, WINNER.key, held), **changes)


def rows(page):
    return re.findall(r"<tr.*?</tr>", page, re.DOTALL)


def test_an_empty_database_says_how_to_make_a_study(look):
    assert "<code>autotune run train.py</code> makes one" in look("/").text
    assert "<code>autotune gate BUNDLE SCRIPT</code> holds one" in look("/gates").text


def test_studies_are_listed_the_newest_first_with_their_answers(look, writing):
    store_study(writing, study_record(name="older"))
    store_study(writing, replace(baseline_best(), name="newer"))
    first, second = rows(look("/").text)[1:]
    assert "newer" in first
    assert "already the best" in first
    assert "1.18x the samples per second" in second
    assert "187.2" in second
    assert "22.1 GiB" in second


def test_the_state_of_a_study_is_told(look, writing, tmp_path):
    dead = replace(Owner.current(), process_start=1)
    with open_store(str(tmp_path / "studies.db"), owner=dead) as crashed:
        store_study(crashed, study_record(name="crashed", verdict=None))
        store_study(crashed, study_record(name="ended"))
        verdict = replace(study_record().verdict, needed_s=60.0)
        store_study(crashed, study_record(name="unconfirmed", verdict=verdict))
    store_study(writing, study_record(name="at work", verdict=None))
    states = [re.search(r'class="state (\w+)"', row).group(1) for row in rows(look("/").text)[1:]]
    assert states == ["running", "open", "done", "stopped"]


def test_a_study_that_goes_on_is_another_version_and_its_page_shows_it(look, writing):
    study = store_study(writing, study_record(name="at work", verdict=None))
    before = look("/study", name="at work").text
    version = look("/study/version", name="at work").text
    of_all = look("/study/version").text
    assert "Recompute 4 of 12 Blocks" not in look("/").text
    assert f'data-seen="{version}"' in before
    assert look("/study/version", name="at work").text == version

    study.set_verdict(study_record().verdict)

    assert look("/study/version", name="at work").text != version
    assert look("/study/version").text != of_all
    after = look("/study", name="at work").text
    assert "<h1>Recompute 4 of 12 Blocks" not in before
    assert "<h1>Recompute 4 of 12 Blocks" in after
    assert "Recompute 4 of 12 Blocks" in look("/").text


def test_the_report_can_be_taken_away_as_a_page_and_as_data(look, writing):
    store_study(writing, study_record(name="one"))
    page = look("/study/report.html", name="one")
    assert page.headers["Content-Disposition"] == "attachment; filename*=UTF-8''one.html"
    assert "This page loads nothing from a network" in page.text
    document = json.loads(look("/study/report.json", name="one").text)
    assert (document["study"]["name"], document["version"]) == ("one", REPORT_VERSION)


def test_the_bundle_can_be_taken_away(look, writing):
    store_study(writing, study_record(name="one"))
    packed = zipfile.ZipFile(io.BytesIO(look("/study/bundle.zip", name="one").data))
    assert packed.namelist() == ["README.txt", "env.sh", "mem_opt.json", "report.html", "stack.json"]
    assert json.loads(packed.read("mem_opt.json")) == ["Block+:1:4", "gelu+:1:-1"]


def test_a_study_without_an_answer_has_no_bundle_and_says_why(look, writing):
    store_study(writing, replace(unfinished(), name="one"))
    assert "bundle.zip" not in look("/study", name="one").text
    answer = look("/study/bundle.zip", name="one", status=503)
    assert "<h1>" in answer.text
    assert "resume" in answer.text


def test_a_trial_shows_its_cause_and_its_logs(look, writing, tmp_path):
    folder = tmp_path / ".autotune" / "runs" / "one"
    folder.mkdir(parents=True)
    (folder / "stdout.log").write_text("a line <b>of it</b>\n")
    store_study(writing, study_record(name="one"), run_directory=lambda _: folder)
    assert 'href="/study/trial?name=one&amp;number=3"' in look("/study", name="one").text
    page = look("/study/trial", name="one", number=3).text
    assert "<h1>Trial 3: out of memory</h1>" in page
    assert "CUDA out of memory in backward" in page
    assert "a line &lt;b&gt;of it&lt;/b&gt;" in page


@pytest.mark.parametrize("number", ["99", "-1", "", "x", "1e999"])
def test_a_trial_that_is_not_there_is_told(look, writing, number):
    store_study(writing, study_record(name="one"))
    page = look("/study/trial", name="one", number=number, status=404).text
    assert "has no trial" in page


def test_a_study_that_is_not_there_is_told_with_one_like_it(look, writing):
    store_study(writing, study_record(name="charlm"))
    for address in ("/study", "/study/version", "/study/report.json", "/study/bundle.zip", "/study/trial"):
        page = look(address, name="charlmm", status=404).text
        assert "charlmm" in page
        assert "did you mean charlm?" in page
    assert "no study" in look("/study", status=404).text


def test_two_studies_of_one_machine_are_compared_and_what_that_says_is_told(look, writing):
    store_study(writing, study_record(name="one"))
    winner = replace(study_record().verdict, winner=study_record().facts.baseline, kind_of_answer="baseline_best")
    store_study(writing, study_record(name="two", verdict=winner, autotune="0.0.9"))
    page = look("/compare", a="one", b="two").text
    assert "<h1>“two” found 0.84x the samples per second and 0.72x the peak memory of what “one” found.</h1>" in page
    assert "not measured in turns" in page
    differing = [row for row in rows(page) if "differs" in row]
    assert any("batch 16, no plans" in row and "batch 48, Block+:1:4 gelu+:1:-1" in row for row in differing)
    assert not any("train.py" in row for row in differing)


def test_studies_of_two_machines_are_not_held_against_each_other(look, writing):
    store_study(writing, study_record(name="one"))
    other = replace(FACTS, environment=replace(FACTS.environment, device_name="NVIDIA H200"))
    store_study(writing, study_record(name="two", facts=other))
    page = look("/compare", a="one", b="two").text
    assert "their figures say nothing of each other" in page
    assert "device NVIDIA GeForce RTX 4090 and NVIDIA H200" in page
    assert "found 1.00x" not in page


def test_gates_are_shown_by_setting_the_newest_first(look, writing):
    for day, (answer, change) in enumerate([("pass", 1.0), ("regression", 0.9)]):
        writing.add_gate(gate(answer, change, 1_780_000_000.0 + 86_400 * day))
    writing.add_gate(gate(script_name="other.py", held_at=1_770_000_000.0))
    page = look("/gates").text
    first, second = re.findall(r"<section.*?</section>", page, re.DOTALL)
    assert "train.py: regression" in first
    assert "It is regression." in first
    assert "batch 48, Block+:1:4 gelu+:1:-1" in first
    assert [re.search("regression|pass", row).group() for row in rows(first)[1:]] == ["regression", "pass"]
    assert first.count('class="mark"') == 2
    before, allowed = (
        float(re.search(rf'line {kind}" d="M80 ([\d.]+)H', first).group(1)) for kind in ("before", "allowed")
    )
    marks = [float(one) for one in re.findall(r'<path class="mark" d="M[\d.]+ ([\d.]+)h9', first)]
    assert before < allowed < marks[0]  # downward: as before, what is allowed, the regression
    assert "other.py: pass" in second


def test_a_gate_without_figures_is_shown_without_a_drawing(look, writing):
    writing.add_gate(gate(gate=Gate("failed", ("It failed.",), "stored", 0)))
    page = look("/gates").text
    assert "It failed." in page
    assert "<svg" not in page


def test_names_of_any_kind_are_text_and_lead_to_their_study(look, writing):
    for name in NAMES:
        store_study(writing, replace(hostile_study(), name=name, trials=hostile_study().trials[:2]))
    listed = look("/").text
    for name in NAMES:
        link = f"/study?name={quote(name, safe='/')}"
        assert f'href="{link}"' in listed
        page = look(link).text
        assert f"<title>{escape(name)}" in look("/study/trial", name=name, number=0).text.replace("Trial 0 of ", "")
        for text in (listed, page, look("/compare", a=name, b=NAMES[0]).text):
            assert "<script>alert" not in text
            assert "<img" not in text
        for kind in ("html", "json"):
            header = look(f"/study/report.{kind}", name=name).headers["Content-Disposition"]
            assert re.fullmatch(r"attachment; filename\*=UTF-8''[\w.~%-]+", header)


def test_what_a_script_calls_itself_is_text(look, writing):
    store_study(writing, replace(hostile_study(), name="one"))
    writing.add_gate(gate(script_name=HOSTILE))
    for address in ("/", "/study?name=one", "/gates", "/study/trial?name=one&number=3"):
        page = look(address).text
        assert "<script>alert" not in page
        assert "<img" not in page


@pytest.mark.parametrize(
    "path", ["/assets/../pyproject.toml", "/assets/report.html", "/assets/", "/etc/passwd", "/x" * 5000]
)
def test_no_other_file_is_served(look, path):
    assert "<h1>" in look(path, status=404).text


@pytest.mark.parametrize("address", ["/", "/gates", "/study?name=one", "/study?name=none"])
def test_every_page_allows_no_script_but_its_own_and_is_kept_nowhere(look, writing, address):
    store_study(writing, study_record(name="one"))
    headers = look(address, status=404 if "none" in address else 200).headers
    assert "script-src 'self';" in headers["Content-Security-Policy"]
    assert "default-src 'none';" in headers["Content-Security-Policy"]
    assert headers["Cache-Control"] == "no-store"


def test_a_database_that_went_away_is_told_and_one_that_came_in_its_place_is_seen(look, writing, tmp_path):
    store_study(writing, study_record(name="one"))
    assert "one" in look("/").text
    writing.close()
    for path in tmp_path.glob("studies.db*"):
        path.unlink()
    for address in ("/", "/study?name=one", "/study/version", "/gates"):
        page = look(address, status=503).text
        assert "cannot be opened" in page
    with open_store(str(tmp_path / "studies.db")) as anew:
        store_study(anew, study_record(name="another"))
        assert "another" in look("/").text
        assert "no study &#39;one&#39;" in look("/study", name="one", status=404).text


def test_looking_changes_nothing(look, writing, tmp_path):
    store_study(writing, study_record(name="one"))
    writing.add_gate(gate())
    before = writing.version()
    size = len((tmp_path / "studies.db").read_bytes())
    for address in ("/", "/gates", "/study?name=one", "/study/bundle.zip?name=one"):
        look(address)
    assert writing.version() == before
    assert len((tmp_path / "studies.db").read_bytes()) == size
    assert writing.open("one").record().bundles == ()


def test_few_reports_are_kept_however_many_studies_there_are(writing):
    reports = Reports(writing)
    for number in range(40):
        store_study(writing, replace(unfinished(), name=f"study {number}"))
    for _ in range(2):
        assert [reports.of(name).record.name for name in writing.names()] == list(writing.names())
    assert len(reports._seen) == 32


def test_of_a_study_that_goes_on_only_the_latest_report_is_kept(writing):
    reports = Reports(writing)
    store_study(writing, replace(unfinished(), name="one"))
    before = reports.of("one")
    writing.open("one").add_bundle("elsewhere")
    assert reports.of("one").version != before.version
    assert len(reports._seen) == 1
