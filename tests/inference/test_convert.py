"""Models that are converted: how far their outputs are from the model's own, and what is kept of them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from autotune.inference.convert import compare, convert, furthest, keep
from autotune.inference.feeds import read_shapes, samples
from autotune.inference.model import ModelError, read_model
from autotune.inference.session import Runner
from autotune.records.session import Session
from tests.fakes.exported_models import encoder
from tests.fakes.onnx_models import branching, convolutional, save


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    return encoder(tmp_path_factory.mktemp("exported") / "encoder.onnx")


def converted(path, conversion, folder, *arguments, key="of this model"):
    return convert(path, read_model(path), conversion, read_shapes(arguments), folder, key=key)


def types_of(path):
    return {onnx.TensorProto.DataType.Name(one.data_type) for one in onnx.load(str(path)).graph.initializer}


def largest_difference(path, other, feed):
    (own,), (changed,) = Runner(path, Session()).run(feed), Runner(other, Session()).run(feed)
    return np.abs(own - changed).max() / np.abs(own).max()


@pytest.mark.parametrize(("conversion", "holds"), [("fp16", "FLOAT16"), ("int8", "INT8")])
def test_a_model_is_converted_and_its_outputs_are_held_against_its_own(exported, tmp_path, conversion, holds):
    file, found = converted(exported, conversion, tmp_path, "--shape", "seq=16")
    assert holds in types_of(file)
    assert found.name == conversion
    assert found.bytes == file.stat().st_size < exported.stat().st_size * 0.8
    (feed,) = samples(read_model(exported), read_shapes(["--shape", "seq=16"]))
    assert found.error == pytest.approx(largest_difference(exported, file, feed), rel=1e-3)
    assert 0 < found.error < 0.05


def test_ranges_are_found_on_the_first_half_of_real_inputs_and_outputs_compared_on_the_second(tmp_path):
    path = save(convolutional(), tmp_path / "m.onnx")
    images = np.random.default_rng(1).standard_normal((6, 3, 16, 16)).astype(np.float32)
    images[:3] *= 0.01  # so nothing of the second half lies within what was calibrated
    np.savez(tmp_path / "near.npz", image=np.concatenate([images[3:], images[3:]]))
    np.savez(tmp_path / "far.npz", image=images)
    _, near = converted(path, "int8-static", tmp_path / "a", "--inputs", str(tmp_path / "near.npz"))
    file, far = converted(path, "int8-static", tmp_path / "b", "--inputs", str(tmp_path / "far.npz"))
    assert "INT8" in types_of(file)
    assert near.error < 0.1
    assert far.error > 0.5


def test_what_has_to_be_calibrated_asks_for_inputs(tmp_path):
    path = save(convolutional(), tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="none were given") as refused:
        converted(path, "int8-static", tmp_path)
    assert "--inputs" in refused.value.advice


def test_a_converted_model_is_kept_until_something_else_is_converted(tmp_path):
    path = save(convolutional(), tmp_path / "m.onnx")
    file, found = converted(path, "int8", tmp_path)
    mark = file.with_name("mark")
    mark.touch()
    assert converted(path, "int8", tmp_path) == (file, found)
    assert mark.exists()
    converted(path, "int8", tmp_path, key="of another one")
    assert file.exists()
    assert not mark.exists()


def test_outputs_that_cannot_be_compared_are_a_refusal_with_the_cause(tmp_path, monkeypatch):
    path = save(convolutional(), tmp_path / "m.onnx")
    monkeypatch.setattr("autotune.inference.convert.furthest", lambda pairs: None)
    with pytest.raises(ModelError, match="cannot be converted to fp16: outputs that were finite are not any more"):
        converted(path, "fp16", tmp_path)
    assert not (tmp_path / "fp16").exists()


def test_what_a_tool_cannot_read_is_refused_and_nothing_is_kept(tmp_path, monkeypatch):
    path = save(convolutional(), tmp_path / "m.onnx")
    monkeypatch.setattr("autotune.inference.quantize.WAYS", {})
    with pytest.raises(ModelError, match="cannot be converted to int8: 'int8'"):
        converted(path, "int8", tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["m.onnx"]


def test_control_flow_is_converted_too(tmp_path):
    path = save(branching(), tmp_path / "m.onnx")
    _, found = converted(path, "int8", tmp_path)
    assert found.error == 0.0, "nothing in it has weights of 8 bits"


def test_strings_are_compared_as_strings(tmp_path):
    kept = {"names": np.array(["one", "three"], dtype=object), "rates": np.array([1.0, 2.0])}
    keep(tmp_path, 1, kept)
    assert compare(tmp_path, [kept]).differing == 0
    found = compare(tmp_path, [{**kept, "names": np.array(["one", "seven"], dtype=object)}])
    assert (found.compared, found.differing, found.name, found.relative) == (2, 1, "names", None)


def test_the_furthest_output_counts_by_its_own_largest_value():
    own = [np.array([100.0, 1.0]), np.array([0.1, 0.2])]
    assert furthest([(own, [np.array([100.0, 2.0]), own[1]])]) == pytest.approx(0.01)
    assert furthest([(own, own), (own, [own[0], np.array([0.2, 0.2])])]) == pytest.approx(0.5)
    assert furthest([(own, own)]) == 0.0
    assert furthest([(own, [own[0], np.array([np.nan, 0.2])])]) is None
    assert furthest([([np.zeros(2)], [np.ones(2)])]) is None


def test_samples_of_a_file_come_one_by_one_and_not_more_than_a_hundred(tmp_path):
    model = read_model(save(convolutional(), tmp_path / "m.onnx"))
    np.savez(tmp_path / "many.npz", image=np.zeros((130, 3, 16, 16), np.float32))
    found = samples(model, read_shapes(["--inputs", str(tmp_path / "many.npz")]))
    assert len(found) == 100
    assert found[0]["image"].shape == (1, 3, 16, 16)
    fixed = read_model(save(convolutional(batch=4), tmp_path / "fixed.onnx"))
    np.savez(tmp_path / "four.npz", image=np.zeros((4, 3, 16, 16), np.float32))
    (whole,) = samples(fixed, read_shapes(["--inputs", str(tmp_path / "four.npz")]))
    assert whole["image"].shape == (4, 3, 16, 16)
