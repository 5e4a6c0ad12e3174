"""Engine ``ortmodule`` for real: ONNX Runtime finds plans in an unmodified script, and those that are asked for are on.

Needs its environment: ``make test-ortmodule`` makes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.machine.environments import engine_interpreter
from autotune.records.configuration import Configuration
from autotune.records.facts import Facts
from autotune.records.outcome import Fallback, InvalidPlan
from autotune.records.plan import Plan
from autotune.records.run import Request
from tests.needs import ORTMODULE_CACHE

from . import by_hand
from .conftest import MakeBundle
from .processes import DEADLINE_S, QUICK, SCRIPTS, WorkerRun, in_worker, run_autotune, without_notes

pytestmark = pytest.mark.ortmodule

SCRIPT = SCRIPTS / "loader_loop.py"


@pytest.fixture(scope="module", autouse=True)
def cache() -> Iterator[None]:
    """Set autotune's cache to the folder of this checkout that has the engine's environment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOTUNE_CACHE", str(ORTMODULE_CACHE))
        yield


def run(folder: Path, *configurations: Configuration, script: Path = SCRIPT) -> WorkerRun:
    """Measure configurations in the engine's environment."""
    return in_worker(
        Request("measure", str(script), (), configurations, QUICK),
        folder=folder,
        python=engine_interpreter("ortmodule"),
    )


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """What ONNX Runtime found in the script."""
    request = Request("discover", str(SCRIPT), (), (Configuration(),), QUICK, describe_engine="ortmodule")
    found = in_worker(
        request, folder=tmp_path_factory.mktemp("discovery"), python=engine_interpreter("ortmodule")
    ).facts
    assert found.clusters, found.notes
    return found


def test_discovery_lists_onnx_runtime_s_own_plans(facts: Facts) -> None:
    assert "Gelu+" in {row.cluster_id for row in facts.clusters}
    assert facts.batch_size == 8
    assert facts.dimensions["batch"] == 8
    assert [root.applied_by for root in facts.roots] == ["ortmodule"]
    (gelu,) = (row for row in facts.clusters if row.cluster_id == "Gelu+")
    # Three blocks, 8 x 32 floats each.
    assert (gelu.strategy, gelu.frequency, gelu.saving_bytes) == (1, 3, 3 * 8 * 32 * 4)
    assert "batch" in gelu.saving_formula


def test_plans_are_applied_and_measured(facts: Facts, tmp_path: Path) -> None:
    other = next(row for row in facts.clusters if row.cluster_id != "Gelu+")
    plans = (Plan("Gelu+", 1, -1), Plan(other.cluster_id, other.strategy, -1))
    measured = run(tmp_path, Configuration("ortmodule", plans)).measurement()
    assert measured.batch_size == 8


@pytest.mark.slow
def test_the_script_computes_the_same_with_plans_and_without(tmp_path: Path) -> None:
    script = tmp_path / "no_dropout.py"
    script.write_text(SCRIPT.read_text().replace("ToyNet()", "ToyNet(dropout=0.0)"))
    (tmp_path / "toy.py").write_text((SCRIPTS / "toy.py").read_text())
    without = run(tmp_path, Configuration("ortmodule"), script=script)
    with_plans = run(tmp_path, Configuration("ortmodule", (Plan("Gelu+", 1, -1),)), script=script)
    assert without.measurement()
    assert with_plans.measurement()
    steps = min(len(without.losses), len(with_plans.losses))
    assert steps > 4
    assert with_plans.losses[:steps] == without.losses[:steps]


@pytest.mark.parametrize(
    ("plan", "cause"),
    [
        pytest.param(
            *(Plan("Nope+", 1, -1), "the script has no cluster Nope+:1; it has Add+:1, Gelu+:1"),
            marks=pytest.mark.slow,
        ),
        (Plan("Gelu+", 1, 2), "ONNX Runtime applies a plan to all occurrences, whatever its count: Gelu+:1:2"),
    ],
    ids=["unknown", "of some occurrences"],
)
def test_a_plan_that_onnx_runtime_would_pass_over_is_refused_after_one_step(
    plan: Plan, cause: str, tmp_path: Path
) -> None:
    (outcome,) = run(tmp_path, Configuration("ortmodule", (plan,))).result.outcomes
    assert isinstance(outcome, InvalidPlan)
    assert cause in outcome.cause


@pytest.mark.slow
@pytest.mark.parametrize("level", [1, 2])
def test_levels_are_applied(tmp_path: Path, level: int) -> None:
    assert run(tmp_path, Configuration("ortmodule", level=level)).measurement().step_times_s


def test_a_model_that_cannot_be_exported_is_no_measurement(tmp_path: Path) -> None:
    (outcome,) = run(tmp_path, Configuration("ortmodule"), script=SCRIPTS / "lstm.py").result.outcomes
    assert isinstance(outcome, Fallback)
    assert "ORTModule cannot run LanguageModel: " in outcome.cause


def test_a_study_ends_with_a_bundle_that_is_launched(tmp_path: Path, make_bundle: MakeBundle) -> None:
    plans = tmp_path / "mem_opt.json"
    plans.write_text('["Gelu+:1:-1"]')
    options = ("--engine", "ortmodule", "--max-trials", "1", "--batch-sizes", "8:8", "--plans-from", plans, "--json")
    study = run_autotune("run", SCRIPT, *options, folder=tmp_path, deadline_s=3 * DEADLINE_S)
    assert study.status == 0, study.errors
    document = json.loads(study.output)
    assert "Gelu+" in {row["cluster_id"] for row in document["plans"]}
    assert [point["engine"] for point in document["points"]] == ["eager", "ortmodule"]
    assert document["points"][1]["plans"] == ["Gelu+:1:-1"]
    assert all(point["outcome"] == "measured" for point in document["points"]), document["points"]

    bundle = make_bundle(SCRIPT, Configuration("ortmodule", (Plan("Gelu+", 1, -1),), batch_size=8))
    launched = run_autotune("launch", bundle, SCRIPT, folder=tmp_path)
    assert (launched.status, without_notes(launched.errors)) == (0, "")
    assert len(launched.losses) == 256


@pytest.mark.slow
def test_a_bundle_whose_plans_the_script_does_not_have_is_refused(tmp_path: Path, make_bundle: MakeBundle) -> None:
    bundle = make_bundle(SCRIPT, Configuration("ortmodule", (Plan("Nope+", 1, -1),), batch_size=8))
    launched = run_autotune("launch", bundle, SCRIPT, folder=tmp_path)
    assert launched.status == 3, launched.errors
    assert "the script has no cluster Nope+:1" in launched.errors


@pytest.mark.slow
def test_the_bundle_s_lines_by_hand_do_the_same_without_autotune(tmp_path: Path) -> None:
    bert = Path(__file__).parents[2] / "trials" / "bert" / "train.py"
    (tmp_path / "plans.json").write_text('["Gelu+:1:-1", "FusedMatMul+Add+:1:-1", "LayerNormalization+:1:-1"]')
    small = ("--layers", "2", "--width", "64", "--length", "32", "--vocabulary", "512", "--max-chars", "100000")
    options = ("--engine", "ortmodule", "--plans-from", "plans.json", "--batch-sizes", "16:16", "--max-trials", "1")
    study = run_autotune(
        *("run", bert, *options, "--study", "bert", "--repetitions", "1", "--", *small),
        folder=tmp_path,
        deadline_s=2 * DEADLINE_S,
    )
    assert study.status == 0, study.errors
    exported = run_autotune("export", "bert", "--trial", "1", "--output", "bundle", folder=tmp_path)
    assert exported.status == 0, exported.errors

    steps = ("--steps", "12", "--log-every", "1")
    found = by_hand.apply(
        tmp_path / "bundle", bert, *small, *steps, python=engine_interpreter("ortmodule"), folder=tmp_path
    )
    assert found.on == found.asked == {("Gelu+", 1), ("FusedMatMul+Add+", 1), ("LayerNormalization+", 1)}
    assert len(found.losses) == 12
    assert found.losses == found.launched_losses
