"""Two kinds of scripts that most people train with, from `autotune run` to the end of `autotune launch`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Plain
from .inside import run_inside
from .processes import SCRIPTS, run_autotune

# One run of the search, with plans that somebody brought along, and one repetition beside the script.
SHORT = ("--study", "s", "--max-trials", "1", "--repetitions", "1", "--time-budget", "60m", "--json")


@pytest.mark.parametrize(
    ("script", "arguments", "own_size", "num_processes"),
    [
        pytest.param("hf_trainer.py", (), 4, 1, id="Trainer"),
        pytest.param("ddp.py", ("2",), 8, 2, id="DistributedDataParallel"),
    ],
)
def test_a_script_is_tuned_exported_and_trained_with_the_bits_of_its_own_losses(
    script: str, arguments: tuple[str, ...], own_size: int, num_processes: int, tmp_path: Path, plain: Plain
) -> None:
    (tmp_path / "plans.json").write_text('["native_layer_norm+:1:-1"]')
    sizes = ("--batch-sizes", f"{own_size}:{own_size}")
    own = (SCRIPTS / script, "--", *arguments)

    run = run_inside("run", *SHORT, *sizes, "--plans-from", "plans.json", *own, folder=tmp_path)

    assert run.status == 0, run.errors
    document = json.loads(run.output)
    assert document["verdict"]["answer"] in ("winner", "baseline_best", "undecided")
    baseline, planned = document["points"]
    assert (baseline["outcome"], planned["outcome"]) == ("measured", "measured")
    assert (baseline["plans"], planned["plans"]) == ([], ["native_layer_norm+:1:-1"])
    assert document["baseline"]["batch_size"] == own_size
    trial = json.loads(run_inside("show", "s", "--trial", "1", "--json", folder=tmp_path).output)
    assert trial["outcome"]["measurement"]["num_processes"] == num_processes

    exported = run_inside("export", "s", "--trial", "1", "--output", "bundle", folder=tmp_path)
    launched = run_autotune("launch", "bundle", *own, folder=tmp_path)

    assert exported.status == 0, exported.errors
    assert launched.status == 0, launched.errors
    losses = plain(script, *arguments).losses
    assert len(losses) > 100
    assert launched.losses == losses
