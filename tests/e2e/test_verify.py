"""``autotune verify BUNDLE SCRIPT``: the first steps with the same seeds, bit by bit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.records.codec import from_json
from autotune.records.configuration import Configuration
from autotune.records.facts import BatchControl
from autotune.records.plan import Plan
from autotune.records.proof import Proof, difference_of
from autotune.records.run import Request, Verifying

from .conftest import MakeBundle
from .inside import run_inside
from .processes import DEADLINE_S, SCRIPTS, Finished, in_worker, run_autotune

PLANS = (Plan("gelu+", 1, -1), Plan("native_layer_norm+", 1, 2), Plan("Block+", 1, 2))
LOADERS = BatchControl("loaders", (0,))
NORMALIZATION = Plan("_native_batch_norm_legit_functional+", 1, -1)
NOTHING = BatchControl("none", reason="not asked")


def proof_of(finished: Finished) -> Proof:
    assert finished.output, finished.errors
    proof: Proof = from_json(Proof, json.loads(finished.output))
    return proof


def verify_ranks(bundle: Path, *arguments: str, folder: Path) -> Finished:
    command = (str(SCRIPTS / "sharded.py"), *arguments)
    return run_inside(
        "verify", bundle, "torchrun", "--json", "--", "--standalone", "--nproc-per-node", "2", *command, folder=folder
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "control"),
    [("loader_loop.py", LOADERS), ("loader_workers.py", LOADERS), ("unseeded.py", LOADERS)],
)
def test_plans_that_only_recompute_are_proven_with_dropout_on(
    script: str, control: BatchControl, tmp_path: Path, make_bundle: MakeBundle
) -> None:
    bundle = make_bundle(SCRIPTS / script, Configuration("aot", PLANS, batch_size=16), control=control)

    verified = run_inside("verify", bundle, SCRIPTS / script, "--json", folder=tmp_path)

    proof = proof_of(verified)
    assert (verified.status, proof.answer) == (0, "exact"), (proof, verified.errors)
    assert (proof.equal_to_engine, proof.equal_to_script, proof.random_equal, proof.steps) == (None, True, True, 3)
    assert difference_of(proof.to_script, "gradients").compared == 3 * 22
    assert difference_of(proof.to_script, "losses").compared == 3
    assert not list((tmp_path / ".autotune").rglob("*.pt"))


@pytest.mark.slow
def test_running_statistics_are_proven_to_be_updated_once(tmp_path: Path, make_bundle: MakeBundle) -> None:
    script = SCRIPTS / "batch_norm.py"
    bundle = make_bundle(script, Configuration("aot", (NORMALIZATION,)))

    verified = run_inside("verify", bundle, script, "--json", folder=tmp_path)

    proof = proof_of(verified)
    assert (verified.status, proof.answer, proof.equal_to_script) == (0, "exact", True), proof
    assert difference_of(proof.to_script, "counters").compared == 3 * 2
    assert difference_of(proof.to_script, "buffers").compared == 3 * 4


@pytest.mark.slow
def test_a_recomputed_dropout_that_draws_another_mask_is_caught(tmp_path: Path, make_bundle: MakeBundle) -> None:
    script = SCRIPTS / "planted_dropout.py"
    bundle = make_bundle(script, Configuration("aot", (Plan("Block+", 1, -1),)))

    verified = run_inside("verify", bundle, script, "--json", folder=tmp_path)

    proof = proof_of(verified)
    assert (verified.status, proof.answer, proof.equal_to_engine) == (1, "inexact", False), proof
    found = difference_of(proof.to_engine, "gradients")
    assert found.step == 1 or found.differing > 22
    assert found.relative is not None
    assert found.relative > 1e-3
    assert found.name in proof.statement


@pytest.mark.slow
@pytest.mark.parametrize("where", ["plans", "engine"])
def test_a_second_update_of_running_statistics_is_caught(where: str, tmp_path: Path, make_bundle: MakeBundle) -> None:
    script = SCRIPTS / "planted_batch_norm.py"
    bundle = make_bundle(script, Configuration("aot", (NORMALIZATION,)))

    verified = run_inside("verify", bundle, script, "--json", "--", where, folder=tmp_path)

    proof = proof_of(verified)
    assert (verified.status, proof.answer) == (1, "inexact"), proof
    assert proof.equal_to_engine is (where == "engine")
    counters = difference_of(proof.to_engine if where == "plans" else proof.to_script, "counters")
    assert (counters.differing, counters.name, counters.absolute) == (3, "1.num_batches_tracked", 1.0)
    assert counters.name in proof.statement


@pytest.mark.slow
def test_a_script_that_no_seed_repeats_is_no_pass(tmp_path: Path, make_bundle: MakeBundle) -> None:
    script = SCRIPTS / "unrepeatable.py"
    bundle = make_bundle(script, Configuration("aot", (Plan("gelu+", 1, -1),)), control=NOTHING)

    verified = run_inside("verify", bundle, script, folder=tmp_path)

    assert verified.status == 1
    assert verified.output.startswith(
        b"Equivalence unknown: two runs of the script itself differ, with the same seeds: "
    )


@pytest.mark.slow
def test_a_difference_that_the_engine_has_by_itself_is_stated(tmp_path: Path, make_bundle: MakeBundle) -> None:
    script = SCRIPTS / "bfloat16_dropout.py"
    bundle = make_bundle(script, Configuration("aot", (Plan("gelu+", 1, -1),)))

    verified = run_inside("verify", bundle, script, "--json", folder=tmp_path)

    proof = proof_of(verified)
    assert (verified.status, proof.answer, proof.equal_to_engine) == (0, "exact", True), proof
    assert not proof.equal_to_script
    assert proof.to_script == proof.engine_to_script
    worst = difference_of(proof.to_script, "gradients")
    assert worst.relative is not None
    assert 0 < worst.relative < 0.1
    assert worst.name in proof.statement


@pytest.mark.slow
def test_plans_that_the_script_does_not_have_are_no_pass(tmp_path: Path, make_bundle: MakeBundle) -> None:
    bundle = make_bundle(SCRIPTS / "loader_loop.py", Configuration("aot", (Plan("tanh+", 1, -1),)))

    verified = run_inside("verify", bundle, SCRIPTS / "loader_loop.py", folder=tmp_path)

    assert verified.status == 1
    assert verified.output.startswith(
        b"Equivalence unknown: this setting failed in the runs for it: the script has no cluster"
    )


@pytest.mark.slow
def test_ranks_are_compared_each_with_its_own(tmp_path: Path, make_bundle: MakeBundle) -> None:
    script = SCRIPTS / "ddp.py"
    bundle = make_bundle(script, Configuration("aot", PLANS, batch_size=4))

    verified = run_inside("verify", bundle, script, "--json", "--", "2", folder=tmp_path)

    proof = proof_of(verified)
    assert (verified.status, proof.answer, proof.equal_to_script) == (0, "exact", True), (proof, verified.errors)
    assert difference_of(proof.to_script, "gradients").compared == 2 * 3 * 22


@pytest.mark.slow
def test_each_rank_is_proven_where_parameters_are_sharded(tmp_path: Path, make_bundle: MakeBundle) -> None:
    bundle = make_bundle(SCRIPTS / "sharded.py", Configuration("aot", (Plan("Block+", 1, 2),)))

    verified = verify_ranks(bundle, folder=tmp_path)

    proof = proof_of(verified)
    assert (verified.status, proof.answer, proof.equal_to_script) == (0, "exact", True), (proof, verified.errors)
    assert (proof.num_processes, proof.random_equal) == (2, True)
    compared = {group: difference_of(proof.to_script, group).compared for group in ("losses", "gradients", "buffers")}
    assert compared == {"losses": 2 * 3, "gradients": 2 * 3 * (3 * 6 + 2), "buffers": 2 * 3 * 3 * 2}
    assert "of each of 2 processes" in proof.statement


@pytest.mark.slow
def test_parameters_that_stay_gathered_are_proven_to_change_nothing(tmp_path: Path, make_bundle: MakeBundle) -> None:
    configuration = Configuration("aot", (Plan("Block+", 1, 2),), choices=("keep-gathered=1",))
    bundle = make_bundle(SCRIPTS / "sharded.py", configuration)

    verified = verify_ranks(bundle, folder=tmp_path)

    proof = proof_of(verified)
    assert (verified.status, proof.answer, proof.equal_to_script) == (0, "exact", True), (proof, verified.errors)


@pytest.mark.slow
def test_a_bug_in_one_rank_is_caught_and_names_it(tmp_path: Path, make_bundle: MakeBundle) -> None:
    bundle = make_bundle(SCRIPTS / "sharded.py", Configuration("aot", (Plan("Block+", 1, 2),)))

    verified = verify_ranks(bundle, "1", folder=tmp_path)

    proof = proof_of(verified)
    assert (verified.status, proof.answer, proof.equal_to_engine) == (1, "inexact", False), (proof, verified.errors)
    buffers = difference_of(proof.to_engine, "buffers")
    assert (buffers.name, buffers.differing, buffers.rank) == ("blocks.1.norm.running_mean", 3, 1)
    assert f"({buffers.place})" in proof.statement
    assert buffers.place.endswith("rank 1")


@pytest.mark.slow
def test_several_models_accumulation_and_low_precision_are_proven_too(tmp_path: Path, make_bundle: MakeBundle) -> None:
    for script in ("gan.py", "autocast_accumulate.py"):
        bundle = make_bundle(SCRIPTS / script, Configuration("aot", PLANS[:1]), name=f"bundle-{script}")
        verified = run_inside("verify", bundle, SCRIPTS / script, folder=tmp_path)
        assert verified.status == 0, verified
        assert b"gradients and buffers have the same bits as" in verified.output
        # The table goes where tables go.
        assert "From the engine without plans" in verified.errors


def test_what_is_no_bundle_or_no_script_is_wrong_usage(tmp_path: Path, make_bundle: MakeBundle) -> None:
    nothing = run_inside("verify", tmp_path, SCRIPTS / "loader_loop.py", folder=tmp_path)
    assert (nothing.status, nothing.output) == (2, b"")
    bundle = make_bundle(SCRIPTS / "loader_loop.py", Configuration("aot", PLANS))
    no_script = run_inside("verify", bundle, "nosuch.py", folder=tmp_path)
    assert (no_script.status, no_script.output) == (2, b"")


@pytest.mark.slow
def test_plans_on_generated_code_are_held_against_the_same_engine(tmp_path: Path, make_bundle: MakeBundle) -> None:
    script = SCRIPTS / "bfloat16_dropout.py"
    bundle = make_bundle(script, Configuration("inductor", (Plan("Block+", 1, -1),)))

    # Of its six runs four compile.
    verified = run_autotune("verify", bundle, script, "--json", folder=tmp_path, deadline_s=4 * DEADLINE_S)

    proof = proof_of(verified)
    assert (verified.status, proof.is_compiled, proof.holds) == (0, True, True), (proof, verified.errors)
    assert not proof.equal_to_script
    assert "(generated code rounds differently, and draws other dropout masks)" in proof.statement
    assert difference_of(proof.exported, "gradients").compared == 3 * 22
    assert "s exported, with rounding that depends on fusion" in proof.statement


@pytest.mark.parametrize("as_exported", [pytest.param(False, marks=pytest.mark.slow), True])
def test_generated_code_keeps_the_scripts_casts_in_a_proof_and_leaves_them_out_as_exported(
    as_exported: bool, tmp_path: Path
) -> None:
    """Guards a threshold that rounding would pass, and what is exported from being proven under other settings only."""
    script = tmp_path / "asks.py"
    script.write_text("import torch._inductor.config as config\nprint(config.emulate_precision_casts)\n")
    request = Request("verify", str(script), (), (Configuration(),), verifying=Verifying(as_exported=as_exported))
    assert in_worker(request, folder=tmp_path).output.split() == [str(not as_exported).encode()]
