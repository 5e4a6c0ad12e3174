"""The report document, and the rows and sentences made from it."""

from __future__ import annotations

import dataclasses
import json

import pytest

from autotune import report
from autotune.records import Measured, Peaks
from autotune.report import build_document, describe_facts
from tests.fakes.study_record import (
    FACTS,
    LIMIT_BYTES,
    WINNER,
    baseline_best,
    cpu_study,
    study_record,
    unfinished,
)

STUDIES = [study_record, baseline_best, cpu_study, unfinished]


def test_the_document_is_as_it_was_looked_at(gold):
    gold("report/document.json", json.dumps(build_document(study_record(), bundle="autotune-train"), indent=2) + "\n")


@pytest.mark.parametrize("make", STUDIES)
def test_the_document_is_json_with_the_same_keys_at_every_stage(make):
    document = build_document(make())
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document.keys() == build_document(study_record()).keys()


@pytest.mark.parametrize("make", STUDIES)
def test_every_stage_has_its_rows_and_sentences(make):
    document = build_document(make())
    assert report.verdict_sentence(document)
    tables = [report.plan_table(document), report.finalist_table(document), report.trial_table(document)]
    for table in tables:
        assert all(len(row) == len(table.columns) for row in table.rows)
        assert max(table.numeric) < len(table.columns)
    assert len(tables[2].rows) == len(make().trials)
    assert report.setting_rows(document)
    assert all(name and value for name, value in report.environment_rows(document))


def test_discovery_alone_has_its_plan_table_and_memory_split():
    described = describe_facts(FACTS)
    table = report.plan_table(described)
    assert table.rows[0] == ("Block+:1:-1", "12", "9 GiB", "50331648*batch", "41.2ms", "whole layer")
    assert report.split_rows(described)[0] == ("activations", 12_348_030_976)


def test_the_phase_with_the_peak_is_named():
    described = describe_facts(FACTS)
    assert report.peak_sentence(described) == "13.3 GiB allocated, in the backward"
    table = report.matrix_table(described)
    assert [row[1] for row in table.rows] == ["pre forward", "post forward", "pre backward", "post backward"]
    assert table.rows[3][2:5] == ("13.3 GiB", "1.9 GiB", "14 GiB")


def test_no_phase_is_named_where_the_memory_hardly_moves():
    rows = tuple(dataclasses.replace(row, peak=2**30 + number) for number, row in enumerate(FACTS.memory_matrix))
    described = describe_facts(dataclasses.replace(FACTS, memory_matrix=rows))
    assert report.peak_sentence(described) == "1 GiB allocated, in all phases alike"


def test_without_peaks_no_phase_is_named():
    rows = tuple(dataclasses.replace(row, peak=None, cached=None) for row in FACTS.memory_matrix)
    described = describe_facts(dataclasses.replace(FACTS, memory_matrix=rows))
    assert report.peak_sentence(described) == ""
    assert report.matrix_table(described).rows[0][2:5] == ("", "1.44 GiB", "")


def points():
    return {point["number"]: point for point in build_document(study_record())["points"]}


def test_a_point_says_what_was_tried_and_what_came_of_it():
    winner = points()[11]
    assert winner["is_winner"]
    assert winner["plans"] == ["Block+:1:4", "gelu+:1:-1"]
    assert winner["batch_size"] == 48
    assert winner["low"] < winner["samples_per_s"] < winner["high"]
    assert winner["fits"]
    assert winner["peak_bytes"] < LIMIT_BYTES


def test_failures_are_points_with_their_cause():
    failed = points()[3]
    assert failed["outcome"] == "out_of_memory"
    assert failed["samples_per_s"] is None
    assert failed["needed_bytes"] > LIMIT_BYTES
    assert "backward" in failed["cause"]
    assert not failed["on_front"]


def test_a_peak_over_the_limit_does_not_fit_and_a_thrashing_trial_is_marked():
    assert not points()[9]["fits"]
    assert points()[13]["thrashed"]
    assert "cannot win" in report.trial_table(build_document(study_record())).rows[13][-1]


def test_the_front_holds_what_nothing_else_beats_in_both():
    on_front = {number for number, point in points().items() if point["on_front"]}
    assert on_front == {1, 4, 5, 6, 7, 8, 10, 11, 12}


def test_a_trial_without_any_peak_is_shown_without_one():
    record = study_record()
    first = record.trials[1]
    assert isinstance(first.outcome, Measured)
    measurement = dataclasses.replace(first.outcome.measurement, peaks=Peaks())
    trial = dataclasses.replace(first, outcome=Measured(measurement))
    document = build_document(dataclasses.replace(record, trials=(trial,)))
    assert document["points"][0]["peak_bytes"] is None
    assert report.trial_table(document).rows[0][-1] == "peak not measured"


def test_no_folder_of_the_machine_is_in_the_document():
    text = json.dumps(build_document(study_record(bundles=("/home/ada/out",))))
    assert "/home/ada" not in text


def test_the_limit_is_the_one_asked_for_until_there_is_a_verdict():
    record = study_record(verdict=None)
    assert build_document(record)["limit_bytes"] == FACTS.environment.device_memory_bytes
    spec = dataclasses.replace(record.spec, memory_limit_bytes=7)
    assert build_document(dataclasses.replace(record, spec=spec))["limit_bytes"] == 7


def test_the_sentences_of_a_winner():
    document = build_document(study_record(), bundle="my bundle")
    assert report.verdict_sentence(document).startswith("Batch 48 with Block+:1:4")
    assert document["launch"]["command"] == "autotune launch 'my bundle' train.py -- --data 'my books' --epochs=3"
    assert report.figures_sentence(document["winner"]) == (
        "187.2 samples/s (185.4 to 187.7, 3 rounds) at a peak of 22.1 GiB"
    )
    assert report.batch_sentences(document) == (
        "The global batch changes: 48 samples per optimizer step and process instead of 16.",
        "No whole number of micro-batches of 48 keeps it, so look at the learning rate.",
    )


def test_a_winner_that_leaves_the_batch_alone_says_nothing_about_it():
    assert report.batch_sentences(build_document(baseline_best())) == ()


def test_the_global_batch_is_spoken_of_even_where_the_baseline_was_not_measured():
    record = study_record(repeats=())
    document = build_document(dataclasses.replace(record, trials=record.trials[1:]))
    assert document["baseline"] is None
    assert report.batch_sentences(document)[0].endswith("48 samples per optimizer step and process instead of 16.")


def test_a_study_under_way_counts_what_has_ended():
    assert report.verdict_sentence(build_document(cpu_study())) == "No answer yet: 13 trials so far."
    assert report.verdict_sentence(build_document(unfinished())).startswith("Nothing is known yet")


def test_a_repeated_winner_counts_for_its_verdict():
    document = build_document(study_record())
    assert document["winner"]["rounds"] == document["baseline"]["rounds"] == 3
    assert document["winner"]["text"] == str(WINNER)


def test_strings_that_do_not_print_are_shown_so_that_they_do():
    document = build_document(study_record(name="a\x1b[31m\u2028\ud800"))
    assert document["study"]["name"] == "a\\x1b[31m\\u2028\\ud800"


def test_the_table_says_how_far_simulated_memory_is_from_measured_memory():
    document = describe_facts(FACTS)
    assert report.calibration_sentence(document).endswith(
        "1.2% of what was measured, without plans and with the most recomputed"
    )
    document["calibration"]["engine"] = "inductor"
    assert report.calibration_sentence(document).endswith("1.2% of what was measured, in generated code without plans")
    document["calibration"] |= {"error": None, "reason": "it has side effects"}
    assert report.calibration_sentence(document) == "memory is not predicted: it has side effects"
    assert report.calibration_sentence(document | {"calibration": None}) == ""
