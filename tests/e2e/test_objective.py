"""``autotune run`` in search of less memory, and of the fastest setting below a target."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .inside import run_inside
from .processes import SCRIPTS

SCRIPT = SCRIPTS / "wide_activations.py"
# Batch sizes only, each measured once beside the script: so it takes few runs.
OPTIONS = ("--engine", "eager", "--max-trials", "1", "--repetitions", "1", "--time-budget", "60m", "--json")
MIB = 1 << 20


@pytest.mark.slow
def test_less_memory_is_found_and_its_speed_held_against_the_scripts(tmp_path: Path) -> None:
    run = run_inside("run", SCRIPT, *OPTIONS, "--objective", "memory", "--max-slowdown", "60%", folder=tmp_path)
    assert run.status == 0, run.errors
    document = json.loads(run.output)

    assert document["settings"]["objective"] == {"goal": "memory", "max_slowdown": 0.6, "target_memory_bytes": None}
    assert document["winner"]["peak_bytes"] < 0.9 * document["baseline"]["peak_bytes"]
    assert document["winner"]["batch_size"] < 2048
    (finalist,) = document["finalists"]
    assert finalist["peak_ratio"] == pytest.approx(
        document["winner"]["peak_bytes"] / document["baseline"]["peak_bytes"]
    )
    assert "needs the least memory so far" in document["verdict"]["reason"]["text"], "one repetition tells nothing"

    again = run_inside("run", SCRIPT, *OPTIONS, "--study", document["study"]["name"], folder=tmp_path)
    assert again.status == 2
    assert "was begun with another objective: least memory" in again.errors


@pytest.mark.slow
def test_below_a_target_the_fastest_is_found_where_the_script_itself_is_above_it(tmp_path: Path) -> None:
    run = run_inside("run", SCRIPT, *OPTIONS, "--target-memory", "640MiB", folder=tmp_path)
    assert run.status == 0, run.errors
    document = json.loads(run.output)

    assert document["target_bytes"] == 640 * MIB < document["limit_bytes"]
    assert document["baseline"]["peak_bytes"] > 640 * MIB >= document["winner"]["peak_bytes"]
    assert document["verdict"]["answer"] == "baseline_does_not_fit"
    assert "more than your target of 640 MiB" in document["verdict"]["remarks"][0]["text"]
    shown = run_inside("show", document["study"]["name"], folder=tmp_path).output.decode()
    assert "over the target" in shown
    assert "your script" in shown.partition("What each amount of memory buys")[2]
