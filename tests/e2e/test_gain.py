"""The end of a study with a winner: where its gain comes from, and what becomes of an epoch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.records.facts import EpochFacts

from .inside import run_inside
from .processes import SCRIPTS


@pytest.mark.slow
def test_a_winner_says_where_its_gain_comes_from_and_what_becomes_of_an_epoch(tmp_path: Path) -> None:
    options = ("--engine=eager", "--batch-sizes=16:64", "--max-trials=1", "--json")

    run = run_inside("run", SCRIPTS / "known_rate.py", *options, "--", "--batch-size={batch_size:16}", folder=tmp_path)

    assert run.status == 0, run.errors
    document, screen = json.loads(run.output), " ".join(run.errors.split())
    size = document["winner"]["batch_size"]
    assert size > 16, "a step takes as long with any batch size"
    assert [part["kinds"] for part in document["gain"]["parts"]] == [["batch_size"]]
    assert f"All of this comes from the batch size ({size} instead of 16)." in screen
    assert f"The global batch changes from 16 to {size} samples per optimizer step." in screen
    assert f"An epoch has {EpochFacts(6400, drops_last=False).batches(size)} instead of 400 optimizer steps." in screen
    (page,) = tmp_path.glob("autotune-*/report.html")
    assert "All of this comes from the batch size" in page.read_text()
