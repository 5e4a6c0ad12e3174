"""Choices of torch's own in real processes: made by trials, launches and proofs alike, or refused with the reason."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest

from autotune.records.codec import from_json
from autotune.records.configuration import Configuration
from autotune.records.facts import BatchControl
from autotune.records.outcome import Measured
from autotune.records.plan import Plan
from autotune.records.proof import Proof, difference_of
from autotune.worker.environment import found_heap_libraries

from .conftest import MakeBundle, Plain
from .inside import run_inside
from .processes import SCRIPTS, Finished, measure, run_autotune, run_command

SCRIPT = SCRIPTS / "loader_loop.py"  # trains with AdamW
LAYERS = (Plan("Block+", 1, -1),)
# As long as rounding has not grown into other paths.
FIRST = 16


def losses(finished: Finished) -> list[float]:
    assert finished.status == 0, finished.errors
    return [float.fromhex(one) for one in finished.losses]


def furthest(ones: list[float], others: list[float]) -> float:
    """The largest relative difference among the first losses."""
    return max(abs(one - other) / abs(other) for one, other in zip(ones[:FIRST], others[:FIRST], strict=True))


@pytest.mark.slow
def test_a_fused_optimizer_trains_as_the_scripts_own_but_for_rounding_with_plans_and_without(
    plain: Plain, tmp_path: Path, make_bundle: MakeBundle
) -> None:
    own = losses(plain("loader_loop.py"))
    choices = ("fused-optimizer=1",)
    without = make_bundle(SCRIPT, Configuration(choices=choices), name="without")
    planned = make_bundle(SCRIPT, Configuration("aot", LAYERS, choices=choices), name="planned")

    launched = losses(run_inside("launch", without, SCRIPT, folder=tmp_path))

    assert len(launched) == len(own)
    assert furthest(launched, own) < 1e-5
    assert launched != own, "its kernel rounds in another way"
    assert losses(run_inside("launch", planned, SCRIPT, folder=tmp_path)) == launched


@pytest.mark.slow
def test_bfloat16_changes_losses_and_training_goes_on(plain: Plain, tmp_path: Path, make_bundle: MakeBundle) -> None:
    bundle = make_bundle(SCRIPT, Configuration(choices=("bf16=1",)))

    launched = losses(run_inside("launch", bundle, SCRIPT, folder=tmp_path))

    assert 1e-4 < furthest(launched, losses(plain("loader_loop.py"))) < 0.1
    assert all(map(math.isfinite, launched))
    assert "bf16 changes what is computed" in (bundle / "README.txt").read_text()


@pytest.mark.slow
def test_sharding_is_launched_as_it_was_found(tmp_path: Path, make_bundle: MakeBundle) -> None:
    script = SCRIPTS / "sharded.py"
    bundle = make_bundle(script, Configuration("aot", LAYERS, choices=("keep-gathered=1", "bf16-shards=1")))
    plain = make_bundle(SCRIPT, Configuration(choices=("bf16-shards=1",)), name="plain")

    torchrun = ("torchrun", "--", "--standalone", "--nproc-per-node", "2", str(script), "layer-norm")
    launched = run_inside("launch", bundle, *torchrun, folder=tmp_path)
    refused = run_inside("launch", plain, SCRIPT, folder=tmp_path)

    assert launched.status == 0, launched.errors
    readme = (bundle / "README.txt").read_text()
    assert "reshard_after_forward=False" in readme
    assert "param_dtype=torch.bfloat16" in readme
    assert refused.status == 3
    assert "bf16-shards=1 changed nothing: the script calls no fully_shard" in refused.errors


@pytest.mark.slow
def test_plans_are_proven_beside_the_choices_and_the_difference_to_the_script_is_told(
    tmp_path: Path, make_bundle: MakeBundle
) -> None:
    bundle = make_bundle(SCRIPT, Configuration("aot", LAYERS, batch_size=16, choices=("bf16=1",)))

    verified = run_inside("verify", bundle, SCRIPT, "--json", folder=tmp_path)

    proof: Proof = from_json(Proof, json.loads(verified.output))
    assert (verified.status, proof.answer, proof.equal_to_engine) == (0, "exact", True), (proof, verified.errors)
    assert not proof.equal_to_script
    assert "With bf16=1 the engine differs from the unmodified script" in proof.statement
    found = difference_of(proof.to_script, "gradients")
    assert found.relative is not None
    assert 1e-4 < found.relative < 0.1


def test_a_choice_that_the_script_cannot_have_refuses_the_launch(tmp_path: Path, make_bundle: MakeBundle) -> None:
    script = SCRIPTS / "lbfgs.py"
    bundle = make_bundle(script, Configuration(choices=("fused-optimizer=1",)), control=BatchControl("none"))

    launched = run_inside("launch", bundle, script, folder=tmp_path)

    assert launched.status == 3
    assert (
        "cannot be applied to this script: fused-optimizer=1 changed nothing: LBFGS has no 'fused'" in launched.errors
    )


def test_a_variable_of_the_heap_is_there_when_a_trial_and_a_launch_start(
    tmp_path: Path, make_bundle: MakeBundle
) -> None:
    made = Configuration(choices=("mmap-threshold=1",))
    (outcome,) = measure(SCRIPT, configurations=(made,), folder=tmp_path).result.outcomes
    assert isinstance(outcome, Measured), outcome

    launched = run_autotune("launch", make_bundle(SCRIPT, made), SCRIPT, folder=tmp_path)
    assert launched.status == 0, launched.errors


@pytest.mark.skipif(not found_heap_libraries(), reason="tcmalloc is not installed")
def test_another_heap_gives_back_what_was_freed_before_a_trial() -> None:
    program = (
        "import torch; from autotune.metering.host import resident_bytes, trim_heap\n"
        "held = [torch.ones(1 << 20) for _ in range(64)]; full = resident_bytes(); del held\n"
        "trim_heap(); print((full - resident_bytes()) >> 20)"
    )
    found = run_command(
        sys.executable, "-c", program, folder=Path.cwd(), environment={"LD_PRELOAD": "libtcmalloc_minimal.so.4"}
    )
    assert found.status == 0, found.errors
    assert int(found.output) > 200


@pytest.mark.skipif(not found_heap_libraries(), reason="tcmalloc is not installed")
@pytest.mark.parametrize("may_fork", [False, True])
def test_another_heap_is_loaded_before_all_else_in_fresh_processes_and_in_forked_ones(
    tmp_path: Path, may_fork: bool
) -> None:
    made = Configuration(choices=("tcmalloc=1",))
    run = measure(SCRIPT, configurations=(made,), folder=tmp_path, may_fork=may_fork)
    (outcome,) = run.result.outcomes
    assert isinstance(outcome, Measured), outcome
    assert run.result.is_forked == may_fork


@pytest.mark.parametrize(
    ("script", "choice", "reason"),
    [
        ("autocast_accumulate.py", "bf16", "the script trains under autocast already (bfloat16)"),
        pytest.param("loader_loop.py", "expandable-segments", "the script trains on CPU", marks=pytest.mark.slow),
    ],
)
def test_what_discovery_rules_out_is_refused_before_the_search(
    script: str, choice: str, reason: str, tmp_path: Path
) -> None:
    run = run_inside("run", SCRIPTS / script, "--allow", choice, folder=tmp_path)

    assert run.status == 2
    said = " ".join(run.errors.split())
    assert f"'{choice}' cannot be had: {reason}" in said
    assert "leave it out of --allow" in said


@pytest.mark.slow
def test_a_search_tries_the_script_with_choices_made(tmp_path: Path) -> None:
    options = ("--engine", "eager", "--allow", "fused-optimizer,foreach-optimizer", "--batch-sizes", "8:8")
    run = run_inside(
        "run",
        SCRIPT,
        *options,
        "--max-trials",
        "4",
        "--repetitions",
        "1",
        "--time-budget",
        "60m",
        "--json",
        folder=tmp_path,
    )

    assert run.status == 0, run.errors
    points = json.loads(run.output)["points"]
    assert [point["is_baseline"] for point in points].count(True) == 1
    tried = [point["configuration"] for point in points if not point["is_baseline"]]
    assert tried
    assert all("optimizer=1" in one for one in tried), "there is nothing else to try"
    assert all(point["outcome"] == "measured" for point in points)
