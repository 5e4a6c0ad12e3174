"""Setting a script's batch size: what was asked for is what its training sees, and what cannot be set is said."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.errors import UsageError
from autotune.launch.requests import discovery_request, trial_request
from autotune.records.configuration import Configuration
from autotune.records.facts import BatchControl
from autotune.records.measurement import Schedule
from autotune.records.outcome import NoEffect, ScriptError
from autotune.records.study import StudySpec
from autotune.search.space import build_space

from .conftest import Discover
from .inside import run_inside
from .processes import QUICK, SCRIPTS, in_worker, measure, run_warm


def needs(package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(importlib.util.find_spec(package) is None, reason=f"needs {package}")


@pytest.mark.parametrize(
    ("script", "arguments", "batch_size", "own_batch_size", "calls_per_step"),
    [
        pytest.param("loader_loop.py", (), 16, 8, 1, id="loader"),
        pytest.param("loss_in_model.py", (), 64, 8, 1, id="loader made anew each epoch", marks=pytest.mark.slow),
        pytest.param("loader_workers.py", (), 16, 8, 1, id="loader with workers", marks=pytest.mark.slow),
        pytest.param("iterable_dataset.py", (), 32, 16, 1, id="iterable dataset", marks=pytest.mark.slow),
        pytest.param("batch_sampler.py", (), 16, 8, 1, id="batch sampler", marks=pytest.mark.slow),
        pytest.param("evaluate_first.py", (), 16, 8, 1, id="loader beside one for evaluation", marks=pytest.mark.slow),
        pytest.param("autocast_accumulate.py", (), 16, 8, 2, id="accumulation"),
        pytest.param("ddp.py", ("2",), 16, 8, 1, id="two processes", marks=pytest.mark.slow),
        pytest.param("in_evaluation_mode.py", (), 16, 8, 1, id="model in evaluation mode"),
        pytest.param("asks_batch_size.py", (), 16, 8, 1, id="script asks autotune"),
        pytest.param(
            "hf_trainer.py", (), 8, 4, 2, id="Hugging Face Trainer", marks=[needs("transformers"), pytest.mark.slow]
        ),
        pytest.param("accelerate_script.py", (), 16, 8, 2, id="Accelerate", marks=needs("accelerate")),
        pytest.param("lightning_script.py", (), 16, 8, 1, id="Lightning", marks=[needs("lightning"), pytest.mark.slow]),
    ],
)
def test_the_observed_batch_is_the_requested_one(
    script: str,
    arguments: tuple[str, ...],
    batch_size: int,
    own_batch_size: int,
    calls_per_step: int,
    discovered: Discover,
    tmp_path: Path,
) -> None:
    facts = discovered(script, *arguments).facts
    processes = 2 if script == "ddp.py" else 1

    run = measure(
        SCRIPTS / script,
        *arguments,
        configurations=(Configuration(batch_size=batch_size),),
        folder=tmp_path,
        control=facts.batch_control,
        may_fork=True,
    )

    assert facts.batch_size == facts.baseline.batch_size == own_batch_size
    assert facts.batch_control.in_evaluation_mode == (script == "in_evaluation_mode.py")
    assert facts.accumulation_control.steps == calls_per_step
    measurement = run.measurement()
    assert measurement.batch_size == batch_size
    assert set(measurement.samples_per_step) == {batch_size * calls_per_step * processes}, "accumulation is kept"
    assert measurement.calls_per_step == calls_per_step


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "own_batch_size"),
    [
        pytest.param("accelerate_script.py", 8, marks=needs("accelerate")),
        pytest.param("hf_trainer.py", 4, marks=needs("transformers")),
    ],
)
def test_each_of_the_processes_that_share_batches_has_the_requested_one(
    script: str, own_batch_size: int, discovered: Discover, tmp_path: Path
) -> None:
    torchrun, *command = (str(Path(sys.executable).with_name("torchrun")), "--standalone", "--nproc-per-node", "2")
    command.append(str(SCRIPTS / script))
    facts = discovered(torchrun, *command).facts

    run = measure(
        Path(torchrun),
        *command,
        configurations=(Configuration(batch_size=16),),
        folder=tmp_path,
        control=facts.batch_control,
    )

    assert facts.batch_size == own_batch_size
    measurement = run.measurement()
    assert (measurement.batch_size, measurement.num_processes) == (16, 2)
    assert set(measurement.samples_per_step) == {16 * 2 * 2}


def test_a_resized_loader_gives_the_batches_that_the_size_by_hand_gives(discovered: Discover, tmp_path: Path) -> None:
    by_hand = tmp_path / "by_hand.py"
    by_hand.write_text((SCRIPTS / "loader_loop.py").read_text().replace("batch_size=8", "batch_size=32"))
    shutil.copy(SCRIPTS / "toy.py", tmp_path)
    plain = run_warm(by_hand, folder=tmp_path)

    run = measure(
        SCRIPTS / "loader_loop.py",
        configurations=(Configuration(batch_size=32),),
        folder=tmp_path,
        control=discovered("loader_loop.py").facts.batch_control,
        may_fork=True,
    )

    assert len(run.losses) >= 8
    assert run.losses == plain.losses[: len(run.losses)]


def test_loaders_for_evaluation_keep_their_size(discovered: Discover, tmp_path: Path) -> None:
    run = measure(
        SCRIPTS / "evaluate_first.py",
        configurations=(Configuration(batch_size=16),),
        folder=tmp_path,
        control=discovered("evaluate_first.py").facts.batch_control,
        may_fork=True,
    )

    # Before training starts, batches of ten out of thirty samples: any other size gives another sum of means.
    assert run.output.splitlines()[0].startswith(b"VALIDATION")
    assert run.output.splitlines()[0] == discovered("evaluate_first.py").output.splitlines()[0]


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        pytest.param("own_batches_globals.py", ("--batch_size={batch_size:8}",), marks=pytest.mark.slow),
        pytest.param("with_own_modules/train.py", ("--batch-size", "{batch_size:8}"), marks=pytest.mark.slow),
        ("known_rate.py", ("--period-s=0", "--batch-size={batch_size}", "--steps=100")),
    ],
)
def test_the_arguments_carry_the_size(script: str, arguments: tuple[str, ...], tmp_path: Path) -> None:
    own = None if "{batch_size:8}" in arguments[-1] else 8
    spec = StudySpec(str(SCRIPTS / script), arguments, measuring=QUICK, own_batch_size=own)

    discovery = in_worker(replace(discovery_request(spec), may_fork=True), folder=tmp_path)
    request = trial_request(spec, discovery.facts, (Configuration("aot", batch_size=32),), 1 << 40)
    trial = in_worker(replace(request, may_fork=True), folder=tmp_path)

    assert discovery.facts.batch_control.how == "arguments"
    assert discovery.facts.baseline.batch_size == discovery.measurement().batch_size == 8
    assert trial.measurement().batch_size == 32
    assert set(trial.measurement().samples_per_step) == {32}


@pytest.mark.parametrize("argument", ["--bs={batch_size:8}", "--bs=8"])
def test_the_length_of_a_schedule_is_seen_at_each_size(argument: str, tmp_path: Path) -> None:
    spec = StudySpec(str(SCRIPTS / "keeps_batch_size.py"), ("schedule", argument), measuring=QUICK)

    discovery = in_worker(replace(discovery_request(spec), may_fork=True), folder=tmp_path)
    request = trial_request(spec, discovery.facts, (Configuration(batch_size=16),), 1 << 40)
    trial = in_worker(replace(request, may_fork=True), folder=tmp_path)

    follows = argument != "--bs=8"
    assert discovery.facts.batch_control.options == {"--bs": 8}
    assert discovery.measurement().schedules == (Schedule("OneCycleLR", 256, raises_beyond=True),)
    assert trial.measurement().schedules == (Schedule("OneCycleLR", 128 if follows else 256, raises_beyond=True),)


def test_an_error_that_names_the_scripts_own_size_says_how_to_pass_it(discovered: Discover, tmp_path: Path) -> None:
    run = measure(
        SCRIPTS / "keeps_batch_size.py",
        "state",
        configurations=(Configuration(batch_size=16),),
        folder=tmp_path,
        control=discovered("keeps_batch_size.py", "state").facts.batch_control,
        may_fork=True,
    )

    (outcome,) = run.result.outcomes
    assert isinstance(outcome, ScriptError)
    assert outcome.advice == (
        "The error names 8, your own batch size, so another part of the script seems to keep it. Pass the batch size "
        "as an option instead, behind `--`: `--bs={batch_size:8}`."
    )


def test_a_size_in_the_arguments_needs_the_scripts_own() -> None:
    with pytest.raises(UsageError, match="not the script's own size"):
        discovery_request(StudySpec("/train.py", ("--batch-size={batch_size}",)))


@pytest.mark.parametrize(
    ("script", "arguments", "reason"),
    [
        ("own_batches_globals.py", (), "no DataLoader feeds training"),
        ("lstm.py", (), "no DataLoader feeds training"),
        ("ready_made_batches.py", (), "its data set makes the batches (batch_size=None)"),
        pytest.param("batch_sampler.py", ("pairs",), "its Pairs has no batch_size", marks=pytest.mark.slow),
    ],
    ids=["own batches", "windows of a text", "ready-made batches", "a sampler of the script's own"],
)
def test_what_cannot_be_set_is_said_and_only_plans_are_searched(
    script: str, arguments: tuple[str, ...], reason: str, discovered: Discover, tmp_path: Path
) -> None:
    facts = discovered(script, *arguments).facts

    assert facts.batch_control.how == "none"
    assert reason in facts.batch_control.reason
    assert facts.baseline == Configuration(batch_size=facts.batch_size)
    space = build_space(facts, StudySpec(str(SCRIPTS / script), arguments))
    assert space.batch_sizes == ()
    assert bool(space.counts) == bool(facts.clusters)


def test_an_option_of_the_command_line_is_seen_whoever_reads_it(discovered: Discover) -> None:
    assert discovered("own_batches_globals.py", "--batch_size=8").facts.batch_control.options == {"--batch_size": 8}


def test_a_list_of_objects_has_as_many_samples_as_an_option_says_in_every_run(tmp_path: Path) -> None:
    """Guards a baseline that discovery could count and its repetitions could not."""
    script, control = SCRIPTS / "lists_of_graphs.py", BatchControl("none", reason="no DataLoader feeds training")
    run = measure(script, configurations=(Configuration(batch_size=6),), control=control, folder=tmp_path)
    measured = run.measurement()
    assert set(measured.samples_per_step) == {6}
    assert measured.batch_size == 6
    assert not measured.samples_are_guessed


def test_where_samples_cannot_be_counted_the_option_for_them_is_named_all_the_same(discovered: Discover) -> None:
    facts = discovered("lists_of_graphs.py", "--wrapped").facts
    assert facts.batch_size is None
    assert "`--batch_size={batch_size:6}`" in facts.batch_control.advice_to_pass(facts.batch_size)


def test_what_cannot_be_set_is_said_on_the_screen(tmp_path: Path) -> None:
    shown = run_inside("discover", SCRIPTS / "ready_made_batches.py", folder=tmp_path)

    assert shown.status == 0
    assert "its data set makes the batches (batch_size=None)" in " ".join(shown.output.decode().split())


def test_a_batch_that_is_not_the_requested_one_is_no_measurement(discovered: Discover, tmp_path: Path) -> None:
    control = discovered("loader_loop.py").facts.batch_control
    elsewhere = replace(control, loaders=(7,), sites=("another place",))

    run = measure(
        SCRIPTS / "loader_loop.py",
        configurations=(Configuration(batch_size=16), Configuration("aot", batch_size=16)),
        folder=tmp_path,
        control=elsewhere,
        may_fork=True,
    )

    first, second = run.result.outcomes
    assert second is None
    assert isinstance(first, NoEffect)
    assert first.cause == "batch size 16 was asked for, but the batches of the training steps have 8 samples"
