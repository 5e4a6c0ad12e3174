"""``autotune verify BUNDLE SCRIPT``: the first steps with the same seeds, bit by bit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.records import BatchControl, Configuration, Plan, Proof, difference_of, from_json

from .conftest import MakeBundle
from .processes import SCRIPTS, Finished, run_autotune

pytestmark = pytest.mark.e2e

PLANS = (Plan("gelu+", 1, -1), Plan("native_layer_norm+", 1, 2), Plan("Block+", 1, 2))
LOADERS = BatchControl("loaders", (0,))
NOTHING = BatchControl("none", reason="not asked")


def proof_of(finished: Finished) -> Proof:
    assert finished.output, finished.errors
    proof: Proof = from_json(Proof, json.loads(finished.output))
    return proof


@pytest.mark.parametrize(
    ("script", "control"),
    [("loader_loop.py", LOADERS), ("loader_workers.py", LOADERS), ("unseeded.py", LOADERS)],
)
def test_plans_that_only_recompute_are_proven_with_dropout_on(
    script: str, control: BatchControl, tmp_path: Path, make_bundle: MakeBundle
) -> None:
    bundle = make_bundle(SCRIPTS / script, Configuration("aot", PLANS, batch_size=16), control=control)

    verified = run_autotune("verify", bundle, SCRIPTS / script, "--json", folder=tmp_path)

    proof = proof_of(verified)
    assert (verified.status, proof.answer) == (0, "exact"), (proof, verified.errors)
    assert (proof.equal_to_engine, proof.equal_to_script, proof.random_equal, proof.steps) == (True, True, True, 3)
    assert difference_of(proof.to_script, "gradients").compared == 3 * 22
    assert difference_of(proof.to_script, "losses").compared == 3
    assert not list((tmp_path / ".autotune").rglob("*.pt"))
