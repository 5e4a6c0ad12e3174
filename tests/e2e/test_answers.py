"""An answer claims what was seen, and no more: on scripts that leave little to try, or little time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .inside import run_inside
from .processes import SCRIPTS, Finished

USUAL = ("--repetitions", "1", "--time-budget", "60m", "--json")


def document_of(run: Finished) -> Any:
    assert run.status == 0, run.errors
    return json.loads(run.output)


def test_batch_sizes_that_the_data_has_too_few_steps_for_are_not_tried(tmp_path: Path) -> None:
    run = run_inside(
        "run", SCRIPTS / "four_batches.py", "--engine", "eager", "--max-trials", "5", *USUAL, folder=tmp_path
    )

    points = document_of(run)["points"]
    assert len(points) > 1
    assert {point["outcome"] for point in points} == {"measured"}
    assert max(point["batch_size"] for point in points) <= 2048 / 9
    assert [point["number"] for point in points] == list(range(len(points)))


@pytest.mark.slow
def test_a_search_with_nothing_to_gain_says_so(tmp_path: Path) -> None:
    run = run_inside("run", SCRIPTS / "reinforce.py", *USUAL, folder=tmp_path)

    document = document_of(run)
    assert document["verdict"]["answer"] == "baseline_best"
    assert "at its batch size nothing else is worth trying" in document["verdict"]["reason"]["text"]
    assert "batch_size_stays" in [one["code"] for one in document["verdict"]["remarks"]]
    assert "There is nothing to search" in " ".join(run.errors.split())


@pytest.mark.slow
def test_after_a_trial_out_of_memory_and_no_more_nothing_is_said_of_the_others(tmp_path: Path) -> None:
    script = SCRIPTS / "more_than_it_seems.py"
    options = ("--engine", "eager", "--batch-sizes", "16:128", "--memory-limit", "500MiB", "--max-trials", "1")
    run = run_inside("run", script, *options, *USUAL, folder=tmp_path)

    document = document_of(run)
    assert [point["outcome"] for point in document["points"]] == ["measured", "out_of_memory"]
    assert document["verdict"]["answer"] == "undecided"
    assert "The search measured 0 of " in document["verdict"]["reason"]["text"]
    assert "other settings (1 more trial failed): --max-trials allows 1 trial." in document["verdict"]["reason"]["text"]
    assert "already the best" not in run.errors
    assert f"autotune resume {document['study']['name']} --max-trials 2" in run.errors


def test_a_prediction_is_no_certain_no(tmp_path: Path) -> None:
    options = ("--memory-limit", "200MiB", "--json")
    run = run_inside("fit", SCRIPTS / "more_than_it_seems.py", *options, folder=tmp_path)
    fits = document_of(run)["fits"]

    assert fits, "the least that may be needed is told, with its chance"
    assert fits[0]["configuration"]["batch_size"] < 4, "half of its own batch is not the least there is"
    assert all(0 <= one["chance"] < 0.8 for one in fits)
