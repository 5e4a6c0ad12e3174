"""What discovery says of scripts whose sizes are not the batch, and of those that it can only measure."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from autotune.predict.prediction import Predictor
from autotune.records.configuration import Configuration
from autotune.records.outcome import Fallback, Measured, Outcome, OutOfMemory, ScriptError, TimedOut
from autotune.records.run import Request

from .inside import run_inside
from .processes import QUICK, SCRIPTS, WorkerRun, discover, in_worker, measure


@pytest.mark.parametrize(
    ("script", "per_sample", "others"),
    [
        ("graph_network.py", {"nodes_dim0", "edges_dim1"}, set()),
        pytest.param("embedding_bag.py", {"words_dim0"}, set(), marks=pytest.mark.slow),
        pytest.param("shifted_labels.py", set(), {"batch", "seq_len"}, marks=pytest.mark.slow),
    ],
)
def test_sizes_that_grow_with_the_batch_are_named_and_predicted(
    script: str, per_sample: set[str], others: set[str], tmp_path: Path
) -> None:
    found = discover(SCRIPTS / script, folder=tmp_path, may_fork=True).facts
    doubled = Configuration("aot", (), 0, 32)
    trial = measure(
        SCRIPTS / script, configurations=(doubled,), control=found.batch_control, folder=tmp_path, may_fork=True
    )

    assert found.batch_size == 16
    assert found.per_sample.keys() == per_sample
    assert per_sample | others <= found.dimensions.keys() <= per_sample | others | {"batch"}
    assert found.dimensions.get("batch", 16) == 16
    assert all(found.dimensions[name] > 16 for name in per_sample)
    assert found.calibration is not None
    assert found.calibration.error is not None, found.calibration.reason
    assert found.calibration.error < 0.01
    assert len(found.graphs[0].batch_sizes) == 5, "a quarter and a half of the batch could be run, too"
    saved = trial.measurement().saved_bytes
    assert saved is not None
    # The largest graphs seen are predicted; a single batch of 32 has somewhat less.
    assert Predictor(found).predict(doubled).saved_bytes == pytest.approx(saved, rel=0.25)


def failed(what: str, expected: type[Outcome], folder: Path, *, left_s: float | None = None) -> WorkerRun:
    """Discover a script that cannot be described at its own batch size."""
    script = str(SCRIPTS / "costlier_compiled.py")
    ends_at = None if left_s is None else time.monotonic() + left_s
    request = Request("discover", script, (what,), (Configuration(),), QUICK, ends_at=ends_at, may_fork=True)
    found = in_worker(request, folder=folder)
    assert isinstance(found.facts.undescribed, expected), found.facts.undescribed
    return found


@pytest.mark.parametrize(
    ("what", "expected", "left_s"),
    [("memory", OutOfMemory, None), pytest.param("time", TimedOut, 15.0, marks=pytest.mark.slow)],
)
def test_a_description_that_takes_too_much_leaves_what_was_measured(
    what: str, expected: type[Outcome], left_s: float | None, tmp_path: Path
) -> None:
    found = failed(what, expected, tmp_path, left_s=left_s)

    assert isinstance(found.result.outcomes[0], Measured)
    assert found.facts.batch_size == 8
    assert found.facts.batch_control.how == "loaders"
    assert found.facts.split is not None
    assert found.facts.optimizers


def test_a_script_that_fails_under_the_engine_only_is_searched_without_plans(tmp_path: Path) -> None:
    found = discover(SCRIPTS / "gradient_of_output.py", folder=tmp_path, may_fork=True)

    assert isinstance(found.result.outcomes[0], Measured)
    assert isinstance(found.facts.undescribed, ScriptError)
    assert "appears to not have been used in the graph" in found.facts.undescribed.cause
    assert found.facts.clusters == ()
    assert found.facts.batch_size == 8


@pytest.mark.slow
def test_a_study_goes_on_without_a_description_and_says_so(tmp_path: Path) -> None:
    script = SCRIPTS / "gradient_of_output.py"
    study = run_inside("run", script, "--max-trials", "2", "--repetitions", "2", "--json", folder=tmp_path)

    assert study.status == 0, study.errors
    document: dict[str, Any] = json.loads(study.output)
    assert document["undescribed"]["kind"] == "script_error"
    assert document["plans"] == []
    assert len({point["batch_size"] for point in document["points"]}) > 1
    screen, summary = (" ".join(part.split()) for part in study.errors.split("Your script", 1))
    for part in (screen, summary):
        assert part.count("The script was measured, but could not be described") == 1
        assert part.count("appears to not have been used in the graph") == 1


@pytest.mark.slow
def test_what_was_too_large_is_described_at_half_the_batch(tmp_path: Path) -> None:
    found = run_inside("discover", SCRIPTS / "costlier_compiled.py", "--json", "--", "memory", folder=tmp_path)

    assert found.status == 0, found.errors
    document: dict[str, Any] = json.loads(found.output)
    assert document["batch_size"] == document["dimensions"]["batch"] == 8
    assert document["undescribed"] is None
    (row,) = [row for row in document["plans"] if row["cluster_id"] == "gelu+"]
    assert row["saving_formula"] == "384*batch"
    assert row["saving_bytes"] == 384 * 8
    (note,) = [note for note in document["notes"] if "described at batch size 4" in note]
    assert "can't allocate memory" in note


@pytest.mark.slow
def test_of_a_script_that_is_too_short_it_is_not_said_that_it_has_no_graph(tmp_path: Path) -> None:
    facts = discover(SCRIPTS / "known_rate.py", "--steps", "8", "--period-s", "0.001", folder=tmp_path).facts
    assert facts is not None
    assert isinstance(facts.undescribed, Fallback)
    assert facts.undescribed.cause.startswith("the script ended before its graphs could be described")
    assert not facts.undescribed.advice
