"""Engine ``inductor`` through the command line: a study, and bundles that are applied or refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.records.configuration import Configuration
from autotune.records.plan import Plan

from .conftest import MakeBundle
from .processes import DEADLINE_S, SCRIPTS, run_autotune, without_notes

SCRIPT = SCRIPTS / "loader_loop.py"


@pytest.mark.slow
def test_a_study_measures_the_script_compiled_with_the_plans_that_it_is_given(tmp_path: Path) -> None:
    plans = tmp_path / "mem_opt.json"
    plans.write_text('["gelu+:1:-1"]')
    options = ("--engine", "inductor", "--max-trials", "1", "--batch-sizes", "8:8", "--plans-from", plans, "--json")
    # Every process compiles, and what is said of the time budget is another test's.
    short = ("--repetitions", "1", "--time-budget", "60m")
    run = run_autotune("run", SCRIPT, *options, *short, folder=tmp_path, deadline_s=3 * DEADLINE_S)

    assert run.status == 0, run.errors
    document = json.loads(run.output)
    # Plans that are given are tried first.
    baseline, planned = document["points"]
    assert (baseline["engine"], planned["engine"]) == ("eager", "inductor")
    assert planned["plans"] == ["gelu+:1:-1"], run.errors
    assert planned["outcome"] == "measured", document["points"]
    assert {row["cluster_id"] for row in document["plans"]} >= {"Block+", "gelu+", "native_dropout+[mask]"}
    assert (document["calibration"]["engine"], document["calibration"]["reason"]) == ("inductor", "")
    assert "on top of what Inductor recomputes by itself" in " ".join(run.errors.split())


@pytest.mark.slow
def test_a_bundle_runs_the_script_compiled(tmp_path: Path, make_bundle: MakeBundle) -> None:
    plans = (Plan("Block+", 1, 2), Plan("gelu+", 1, -1))
    bundle = make_bundle(SCRIPT, Configuration("inductor", plans, batch_size=8))

    launched = run_autotune("launch", bundle, SCRIPT, folder=tmp_path)

    assert (launched.status, without_notes(launched.errors)) == (0, "")
    assert len(launched.losses) == 256


@pytest.mark.parametrize(
    ("plan", "variables", "cause"),
    [
        pytest.param(Plan("relu+", 1, -1), {}, "the script has no cluster relu+:1", marks=pytest.mark.slow),
        (Plan("gelu+", 1, -1), {"TORCHDYNAMO_DISABLE": "1"}, "no graph of the model was captured"),
        pytest.param(
            *(Plan("gelu+", 1, -1), {"CXX": "no-such-compiler"}, "Inductor could not compile a graph"),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["no such cluster", "Dynamo switched off", "no compiler"],
)
def test_a_bundle_that_cannot_be_applied_is_refused(
    plan: Plan, variables: dict[str, str], cause: str, tmp_path: Path, make_bundle: MakeBundle
) -> None:
    bundle = make_bundle(SCRIPT, Configuration("inductor", (plan,), batch_size=8))

    launched = run_autotune(
        "launch", bundle, SCRIPT, folder=tmp_path, environment={"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)} | variables
    )

    assert launched.status == 3, launched.errors
    assert cause in launched.errors


@pytest.mark.slow
def test_a_study_that_may_compile_tries_the_script_under_inductor_too(tmp_path: Path) -> None:
    options = ("--engine", "eager", "--allow", "compile", "--batch-sizes", "8:8", "--max-trials", "2", "--json")
    short = ("--repetitions", "1", "--time-budget", "60m")
    run = run_autotune("run", SCRIPT, *options, *short, folder=tmp_path, deadline_s=3 * DEADLINE_S)

    assert run.status == 0, run.errors
    document = json.loads(run.output)
    baseline, compiled = document["points"]
    assert (baseline["engine"], compiled["engine"]) == ("eager", "inductor")
    assert compiled["outcome"] == "measured", compiled
    assert compiled["configuration"] == "batch 8, inductor, no plans"
    assert document["compiled"] is None, "it was tried in the search"


@pytest.mark.slow
def test_a_study_that_may_not_compile_tells_in_one_run_what_that_would_bring(tmp_path: Path) -> None:
    options = ("--engine", "eager", "--batch-sizes", "8:8", "--study", "s", "--time-budget", "60m", "--json")
    run = run_autotune("run", SCRIPT, *options, folder=tmp_path, deadline_s=3 * DEADLINE_S)

    assert run.status == 0, run.errors
    document = json.loads(run.output)
    assert document["verdict"]["answer"] == "baseline_best"
    assert [point["engine"] for point in document["points"]] == ["eager"]
    compiled = document["compiled"]
    assert (compiled["choice"], compiled["outcome"]) == ("compile", "measured"), compiled
    assert compiled["setting"] == "batch 8, inductor, no plans"
    assert "Gain from compiling: batch 8 without plans compiled by Inductor" in " ".join(run.errors.split())
    shown = run_autotune("show", "s", "--json", folder=tmp_path)
    assert json.loads(shown.output)["compiled"] == compiled


@pytest.mark.slow
def test_where_there_is_no_compiler_nobody_may_compile_and_nobody_tries(tmp_path: Path) -> None:
    without = {"CXX": "no-such-compiler"}
    options = ("--engine", "eager", "--batch-sizes", "8:8", "--time-budget", "60m")
    refused = run_autotune("run", SCRIPT, *options, "--allow", "compile", folder=tmp_path, environment=without)

    assert refused.status == 2, refused.errors
    said = " ".join(refused.errors.split())
    assert "'compile' cannot be had: Inductor's code for CPUs needs a C++ compiler" in said
    run = run_autotune("run", SCRIPT, *options, "--json", folder=tmp_path, environment=without)
    assert run.status == 0, run.errors
    assert json.loads(run.output)["compiled"] is None
