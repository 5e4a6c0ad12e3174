"""A trial's phases of memory, and what discovery sees of a model."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from autotune.inference import trial as trials
from autotune.inference.feeds import make_feeds, other_feeds, read_shapes
from autotune.inference.model import read_model
from autotune.inference.profile import idle_settings, profile
from autotune.inference.run import _Prepared
from autotune.inference.trial import PhasedMemory, Trial
from autotune.records.configuration import Configuration
from autotune.records.measuring import Measuring
from autotune.records.run import Request
from autotune.records.session import Session
from tests.fakes.exported_models import encoder
from tests.fakes.onnx_models import branching, chain, convolutional, picking, save

QUICK = Measuring(min_steps=5, max_steps=5, min_measure_s=0.0, max_measure_s=0.0)


class Progress:
    def update(self, **changes):
        pass


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    return encoder(tmp_path_factory.mktemp("exported") / "encoder.onnx")


def measured(path, *arguments):
    model, shapes = read_model(path), read_shapes(arguments)
    trial = Trial(path, model, Session(), Progress(), PhasedMemory())
    others = other_feeds(model, shapes, 2)
    return trial, trial.measure(make_feeds(model, shapes, 2), others, 2, QUICK)


def test_the_peak_is_the_highest_of_all_phases(exported):
    trial, measurement = measured(exported, "--shape", "seq=16")
    moments = trial.memory.moments
    assert [one.phase for one in moments] == ["before", "load", "first run", "steady"]
    assert all(one.peak >= one.resident > 0 for one in moments)
    assert measurement.peaks.resident >= max(one.peak for one in moments)


def test_other_shapes_of_a_mix_are_a_phase_of_their_own(exported, monkeypatch):
    monkeypatch.setattr(trials, "_OTHERS", 20)
    trial, _ = measured(exported, "--shape", "seq=4-32")
    phases = [one.phase for one in trial.memory.moments]
    assert phases == ["before", "load", "other shapes", "first run", "steady"], "what may come does so in any order"


def test_memory_that_still_grows_at_the_end_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(trials, "_OTHERS", 40)
    monkeypatch.setattr(trials, "_OTHERS_BETWEEN", 10)
    growing = itertools.count(100 << 20, 10 << 20)
    path = save(convolutional(), tmp_path / "m.onnx")
    trial = Trial(path, read_model(path), Session(), Progress(), PhasedMemory())
    image = {"image": np.ones((1, 3, 16, 16), np.float32)}
    monkeypatch.setattr(trial.memory, "held", lambda: next(growing))
    held = trial._run_others(itertools.repeat(image), Measuring())
    assert held == "memory still grew at the end, by 10 MiB in 10 runs of other shapes"


def test_every_setting_is_run_with_the_same_other_shapes_unless_they_take_too_long(exported, monkeypatch):
    def runs(most_s):
        monkeypatch.setattr(trials, "_LEAST_OTHERS_S", most_s)
        trial = Trial(exported, read_model(exported), Session(), Progress(), PhasedMemory())
        fed = []
        trial._run_others(map(noting(fed), itertools.repeat(1)), Measuring(max_measure_s=0.0))
        return len(fed)

    def noting(fed):
        def feed(rows):
            fed.append(rows)
            return {"words": np.ones((rows, 4), np.int64)}

        return feed

    assert runs(60.0) == 200
    assert runs(0.0) == 10


def test_a_profile_names_the_operators_and_the_largest_tensors(exported):
    model = read_model(exported)
    (feed,) = make_feeds(model, read_shapes(["--shape", "seq=16"]), 2)
    operators, tensors = profile(exported, feed)
    by_kind = {one.kind: one for one in operators}
    # Four products with weights in each of two layers, and those of the attention.
    assert by_kind["MatMul"].number + by_kind.get("FusedMatMul", by_kind["MatMul"]).number >= 10
    assert [one.time_s for one in operators] == sorted((one.time_s for one in operators), reverse=True)
    assert tensors[0].bytes == 2 * 16 * 512 * 4, "the wide part of the feed-forward"


def idle_of(path, *arguments):
    model = read_model(path)
    (feed,) = make_feeds(model, read_shapes(arguments), 2)
    return {one.setting: one for one in idle_settings(path, model, feed)}


def test_what_changes_nothing_in_a_chain_is_told_with_its_reason(tmp_path):
    idle = idle_of(save(chain(), tmp_path / "m.onnx"))
    assert idle["parallel"].reason == "each of the model's operators needs the one before"
    assert idle["prepacking"].reason == idle["weights-outside-arena"].reason == "it has no weights"
    assert idle["order"].values == (1,)
    assert idle["optimization"].values == (0, 1, 2)


def test_what_changes_something_is_not_idle(exported, tmp_path):
    idle = idle_of(exported, "--shape", "seq=16")
    assert not {"parallel", "prepacking", "weights-outside-arena"} & set(idle)
    assert 0 not in idle["optimization"].values, "the graph is rewritten"
    images = idle_of(save(convolutional(), tmp_path / "m.onnx"))
    assert (images["parallel"].values, images["optimization"].values) == ((1,), (0,))
    assert "parallel" not in idle_of(save(picking(), tmp_path / "p.onnx"), "--shape", "length=4")


def test_of_a_model_that_chooses_what_runs_a_run_does_not_tell_all(tmp_path):
    idle = idle_of(save(branching(), tmp_path / "m.onnx"))
    assert set(idle) == {"parallel"}


def test_operators_of_a_branch_are_in_the_profile(tmp_path):
    path = save(branching(), tmp_path / "m.onnx")
    operators, _ = profile(path, {"x": np.ones((2, 4), np.float32)})
    assert {"If", "Add"} <= {one.kind for one in operators}


def described(path, batch, *arguments):
    """What discovery says of a model that begins at a batch size."""
    configuration = Configuration("onnxruntime", batch_size=batch)
    request = Request("discover", str(path), arguments, (configuration,), QUICK, describe_engine="onnxruntime")
    prepared = _Prepared(request, Progress(), path.parent / "run")
    prepared.measure(request.measuring)
    return prepared.facts()


def test_what_grows_with_the_batch_is_what_twice_the_batch_takes(exported):
    facts = described(exported, 16, "--shape", "seq=64")
    by_phase = {one.phase: one for one in facts.inference.moments}
    before = max(one.peak for phase, one in by_phase.items() if phase not in ("twice the batch", "shrunk"))
    assert facts.split.activations == max(0, by_phase["twice the batch"].peak - before)
    assert facts.split.activations > 16 * 64 * 512 * 4, "what is widest in it, at least"
    assert facts.split.parameters == facts.inference.weight_bytes


def test_a_model_of_a_fixed_batch_or_of_most_of_the_memory_is_not_run_at_twice_of_it(tmp_path, monkeypatch):
    fixed = described(save(convolutional(batch=2), tmp_path / "fixed.onnx"), 2)
    assert fixed.split.activations is None
    path = save(convolutional(), tmp_path / "m.onnx")
    assert described(path, 2).split.activations is not None
    monkeypatch.setattr("autotune.inference.run._ROOM", 1e-6)
    assert described(path, 2).split.activations is None
