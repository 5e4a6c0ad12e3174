"""Accumulation: what a script is seen to accumulate is what it does, and what is asked for is what its steps take."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.launch.requests import trial_request
from autotune.records.configuration import Configuration
from autotune.records.facts import AccumulationControl, EpochFacts
from autotune.records.outcome import NoEffect
from autotune.records.study import StudySpec
from autotune.search.space import build_space

from .conftest import Discover, MakeBundle
from .inside import run_inside
from .processes import QUICK, SCRIPTS, in_worker, run_warm
from .test_batch_size import needs

LOOP = SCRIPTS / "accumulates.py"


@pytest.mark.parametrize(
    ("script", "how", "own", "own_size", "size"),
    [
        pytest.param(
            *("hf_trainer.py", "transformers", 2, 4, 2), id="Trainer", marks=[needs("transformers"), pytest.mark.slow]
        ),
        pytest.param("accelerate_script.py", "accelerate", 2, 8, 4, id="Accelerate", marks=needs("accelerate")),
        pytest.param(
            *("lightning_script.py", "lightning", 1, 8, 4), id="Lightning", marks=[needs("lightning"), pytest.mark.slow]
        ),
    ],
)
def test_a_library_is_told_to_accumulate_what_keeps_the_global_batch(
    script: str, how: str, own: int, own_size: int, size: int, discovered: Discover, tmp_path: Path
) -> None:
    facts = discovered(script).facts
    spec = StudySpec(str(SCRIPTS / script), measuring=QUICK, batch_sizes=(1, 64), keep_global_batch=True)
    space = build_space(facts, spec)
    configuration = space.plain(size)

    trial = in_worker(replace(trial_request(spec, facts, (configuration,), 1 << 40), may_fork=True), folder=tmp_path)

    assert facts.accumulation_control == AccumulationControl(how, own)  # type: ignore[arg-type]
    assert facts.epoch == EpochFacts(512, drops_last=False)
    assert space.plain(own_size) == facts.baseline
    assert configuration.accumulation == own_size * own / size
    measurement = trial.measurement()
    assert (measurement.batch_size, measurement.micro_batches) == (size, configuration.accumulation)
    assert set(measurement.samples_per_step) == {own_size * own}


@pytest.mark.slow
def test_a_study_of_a_loop_of_its_own_keeps_its_global_batch(tmp_path: Path) -> None:
    options = ("--keep-global-batch", "--engine=eager", "--batch-sizes=4:16", "--max-trials=2", "--repetitions=1")

    run = run_inside("run", LOOP, *options, "--json", "--", "--accumulate={accumulation:4}", folder=tmp_path)

    assert run.status == 0, run.errors
    document = json.loads(run.output)
    assert document["accumulation_control"] == {"how": "arguments", "steps": 4, "reason": ""}
    assert document["global_batch"]["before"] == {
        "micro_batch": 8, "accumulation": 4.0, "num_processes": 1, "steps_per_epoch": 16.0
    }  # fmt: skip
    tried = {point["configuration"] for point in document["points"] if point["outcome"] == "measured"}
    kept = {"batch 4 (accumulation 8), no plans", "batch 16 (accumulation 2), no plans"}
    assert tried & kept
    assert tried <= kept | {"batch 8, no plans"}


def test_a_loop_whose_accumulation_nothing_sets_is_refused_with_what_would(tmp_path: Path) -> None:
    run = run_inside("run", LOOP, "--keep-global-batch", "--engine=eager", folder=tmp_path)

    assert run.status == 2
    errors = " ".join(run.errors.split())
    assert "--keep-global-batch: the script's accumulation cannot be set" in errors
    assert "put {accumulation:4} there" in errors


@pytest.mark.slow
def test_an_accumulation_that_steps_do_not_take_is_no_measurement(discovered: Discover, tmp_path: Path) -> None:
    facts = discovered("accumulates.py").facts
    assert facts.accumulation_control.steps == 4
    believed = replace(facts, accumulation_control=AccumulationControl("arguments", 4))
    configuration = Configuration(batch_size=4, accumulation=8)

    request = trial_request(StudySpec(str(LOOP), measuring=QUICK), believed, (configuration,), 1 << 40)
    (outcome,) = in_worker(replace(request, may_fork=True), folder=tmp_path).result.outcomes

    assert isinstance(outcome, NoEffect)
    assert outcome.cause == "accumulation 8 was asked for, but an optimizer step takes 4 micro-batches"


@pytest.mark.slow
def test_a_bundle_with_an_accumulation_trains_as_the_script_with_it_by_hand(
    discovered: Discover, make_bundle: MakeBundle, tmp_path: Path
) -> None:
    control = discovered("accumulates.py").facts.batch_control
    bundle = make_bundle(LOOP, Configuration(batch_size=4, accumulation=8), control=control)
    by_hand = tmp_path / "by_hand.py"
    by_hand.write_text(LOOP.read_text().replace("batch_size=8", "batch_size=4"))
    shutil.copy(SCRIPTS / "toy.py", tmp_path)

    launched = run_inside("launch", bundle, LOOP, "--", "--accumulate={accumulation:4}", folder=tmp_path)

    assert launched.status == 0, launched.errors
    assert len(launched.losses) == 8 * 128
    assert launched.losses == run_warm(by_hand, "--accumulate=8", folder=tmp_path).losses
