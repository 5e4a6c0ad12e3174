"""The page: complete without a network, readable without JavaScript, safe whatever a study holds."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser

import pytest

from autotune.records.codec import to_json
from autotune.records.outcome import Measured, ScriptError
from autotune.records.study import CompiledRun, Remark
from autotune.report.build import build_report
from autotune.report.page import render_html
from tests.fakes.study_record import FACTS, WINNER, baseline_best, cpu_study, measured, study_record, unfinished

STUDIES = [study_record, baseline_best, cpu_study, unfinished]
# Elements that HTML closes by itself.
VOID = {"meta", "br", "img", "link", "input", "hr"}


class Page(HTMLParser):
    """A page taken apart: elements, the text outside of scripts, scripts, and whether tags are balanced."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append((dict(attrs), ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            attributes, text = self.scripts[-1]
            self.scripts[-1] = (attributes, text + data)
        elif not self.open or self.open[-1] != "style":
            self.text += data


def test_the_page_says_what_compiling_would_bring_or_why_nobody_knows():
    record = study_record()

    def told(outcome):
        run = CompiledRun("compile", WINNER, dataclasses.replace(WINNER, engine="inductor", plans=()), outcome)
        verdict = dataclasses.replace(record.verdict, compiled=run)
        return Page(render_html(build_report(dataclasses.replace(record, verdict=verdict)))).text

    assert "gave about 1.4x as many samples per second as the answer (1 run)" in told(measured(262.0, 48, 20.0))
    failed = told(ScriptError("BackendError: no ptxas\nmore of it"))
    assert "The gain from compiling is unknown, because its run failed: BackendError: no ptxas" in failed
    assert "gave about" not in failed
    assert "ompiling would bring" not in told(measured(180.0, 48, 20.0))


@pytest.mark.parametrize("make", STUDIES)
def test_a_page_of_every_stage_is_whole(make):
    html = render_html(build_report(make()))
    page = Page(html)
    assert page.open == []
    assert html.startswith("<!doctype html>")
    identifiers = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))
    labels = {attributes["aria-labelledby"] for _, attributes in page.elements if "aria-labelledby" in attributes}
    assert labels <= set(identifiers)


def test_the_page_is_as_it_was_looked_at(gold):
    gold("report/report.html", render_html(build_report(study_record(), bundle="autotune-train")))


def test_the_page_carries_the_document():
    document = build_report(study_record())
    page = Page(render_html(document))
    [data] = [text for attributes, text in page.scripts if attributes.get("type") == "application/json"]
    assert json.loads(data) == to_json(document)


def test_the_page_refers_to_nothing_outside_of_itself():
    page = Page(render_html(build_report(study_record())))
    for tag, attributes in page.elements:
        assert tag not in {"link", "img", "iframe", "object", "base"}
        assert not attributes.keys() & {"src", "href", "srcset", "action"}, tag
        assert not [name for name in attributes if name.startswith("on")], tag


def test_the_policy_allows_the_page_s_own_scripts_by_hash_and_no_network():
    page = Page(render_html(build_report(study_record())))
    [policy] = [
        attributes["content"]
        for tag, attributes in page.elements
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy is not None
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert directives["default-src"] == "'none'"
    assert not re.search(r"https?:|\*|unsafe-eval", policy)
    assert "connect-src" not in directives  # none, by default-src
    hashes = [
        "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"
        for attributes, text in page.scripts
        if "type" not in attributes
    ]
    assert directives["script-src"].split() == hashes
    assert len(hashes) == 1


def test_verdict_figures_and_tables_need_no_javascript():
    text = " ".join(Page(render_html(build_report(study_record(), bundle="autotune-train"))).text.split())
    for words in (
        "Batch 48 with Block+:1:4 and gelu+:1:-1 gives 1.18x as many samples per second as your baseline.",
        "187.2 samples/s (185.4 to 187.7, 3 repetitions)",
        "158.1 samples/s (157.0 to 158.8, 3 repetitions)",
        "autotune launch autotune-train train.py -- --data 'my books' --epochs=3",
        "4*batch*heads*seq**2",
        "timed out: no training step within 120 s",
        "NVIDIA GeForce RTX 4090",
        "Recompute 4 of 12 Blocks and all 12 gelu operators and train 48 instead of 16 at a time: 1.18x the samples",
        "Trial 9, batch 96, Block+:1:-1: 156.9 samples/s (156.7 to 157.1, 95 %) at a peak of 25.6 GiB",
    ):
        assert words in text


def test_samples_that_could_not_be_counted_show_as_none():
    record = study_record(repeats=())
    trials = []
    for trial in record.trials:
        if trial.measured is not None:
            measurement = dataclasses.replace(trial.measured, samples_per_step=(0,) * 24)
            trial = dataclasses.replace(trial, outcome=Measured(measurement))  # noqa: PLW2901
        trials.append(trial)
    html = render_html(build_report(dataclasses.replace(record, trials=tuple(trials))))
    assert '<p class="big">0.000 <small>samples/s</small></p>' in html


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&amp;\u2028\u2029<!--{{ policy }}]]>"


def hostile_study():
    record = study_record()
    environment = dataclasses.replace(
        FACTS.environment, device_name=HOSTILE, hostname=HOSTILE, variables={HOSTILE: "x"}
    )
    cluster = dataclasses.replace(FACTS.clusters[0], saving_formula=HOSTILE, note=HOSTILE)
    optimizer = dataclasses.replace(FACTS.optimizers[0], name=HOSTILE, settings={HOSTILE: HOSTILE})
    facts = dataclasses.replace(
        FACTS,
        environment=environment,
        clusters=(cluster,),
        dimensions={HOSTILE: 1},
        optimizers=(optimizer,),
        roots=(dataclasses.replace(FACTS.roots[0], name=HOSTILE),),
        notes=(HOSTILE,),
    )
    trials = tuple(
        trial
        if trial.measured
        else dataclasses.replace(trial, outcome=dataclasses.replace(trial.outcome, cause=HOSTILE))
        for trial in record.trials
    )
    return dataclasses.replace(
        record,
        name=HOSTILE,
        autotune=HOSTILE,
        spec=dataclasses.replace(record.spec, script="/x/" + HOSTILE.replace("/", "|"), arguments=(HOSTILE,)),
        facts=facts,
        trials=trials,
        verdict=dataclasses.replace(record.verdict, reason=Remark("winner", HOSTILE), stop_reason=HOSTILE),
    )


def test_nothing_that_a_study_holds_becomes_markup():
    plain = Page(render_html(build_report(study_record())))
    html = render_html(build_report(hostile_study(), bundle=HOSTILE))
    page = Page(html)
    assert page.open == []
    assert {tag for tag, _ in page.elements} == {tag for tag, _ in plain.elements}
    assert len(page.scripts) == len(plain.scripts) == 2
    assert "\u2028" not in html
    html.encode("utf-8")
    [data] = [text for attributes, text in page.scripts if attributes.get("type") == "application/json"]
    assert not set(data) & set("<>&\u2028\u2029")
    assert "{{ policy }}" in unescape(page.text)


def test_a_study_without_trials_has_no_place_for_a_chart():
    html = render_html(build_report(unfinished()))
    assert "<svg" not in html
    assert 'id="command"' not in html


@pytest.mark.process
def test_reports_do_not_load_jinja_until_a_page_is_made():
    code = (
        "import sys, autotune.report, autotune.export; print(*sorted({'jinja2', 'torch', 'optuna'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_page_is_small():
    """Bytes that somebody sends on: 200 KB for 20 trials, 2 MB for 1,000."""
    record = study_record()
    few = render_html(build_report(record))
    trials = tuple(
        dataclasses.replace(
            record.trials[number % len(record.trials)],
            number=number,
            configuration=dataclasses.replace(record.trials[1].configuration, batch_size=number + 1),
        )
        for number in range(1000)
    )
    many = render_html(build_report(dataclasses.replace(record, trials=trials)))
    assert len(few.encode()) < 200_000
    assert len(many.encode()) < 2_000_000


def test_parts_of_the_memory_add_up_to_the_measured_peak():
    text = " ".join(Page(render_html(build_report(study_record()))).text.split())
    assert "the rest of the measured peak: Python, libraries, contexts, caches, operators at work 2.53 GiB" in text


def test_activations_that_were_not_told_apart_are_said_to_be_in_the_rest():
    facts = dataclasses.replace(FACTS, split=dataclasses.replace(FACTS.split, activations=None))
    page = render_html(build_report(study_record(facts=facts)))
    assert "the rest of the measured peak: activations, Python, libraries, contexts, caches" in page


def test_a_trial_that_runs_is_none_that_failed():
    html = render_html(build_report(cpu_study()))
    assert html.count('<tr class="running">') == 1
    assert 'data-show="over"' not in html


def test_what_nothing_confirmed_is_held_against_the_script_by_no_factor():
    assert "1.18x <small>the samples per second of your script" in render_html(build_report(study_record()))
    page = render_html(build_report(study_record(repeats=())))
    assert "the samples per second of your script" not in page
    assert "186.4 <small>samples/s" in page


def test_the_page_of_a_baseline_that_is_best_says_to_keep_it():
    assert "Keep running your script as you do" in render_html(build_report(baseline_best(), command="launch it"))
    assert "Keep running your script" not in render_html(build_report(study_record(), command="launch it"))


def test_the_page_of_an_answer_that_is_open_says_how_to_have_it_confirmed():
    verdict = dataclasses.replace(study_record().verdict, kind_of_answer="undecided")
    page = render_html(build_report(dataclasses.replace(study_record(), verdict=verdict), command="launch it"))
    assert "autotune resume train-9f2c" in page
    assert "autotune resume" not in render_html(build_report(study_record(), command="launch it"))
    assert page.index("Confirm it first") < page.index("autotune resume") < page.index("Then run it")
