"""What is read of a model, and what it is fed."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest

from autotune.inference.feeds import make_feeds, other_feeds, read_shapes
from autotune.inference.model import ModelError, read_model
from tests.fakes.onnx_models import branching, convolutional, picking, save


def test_a_model_tells_its_inputs_its_batch_and_its_weights(tmp_path):
    model = read_model(save(convolutional(), tmp_path / "m.onnx"))
    assert [(one.name, one.dtype, one.shape) for one in model.inputs] == [("image", "float32", ("N", 3, 16, 16))]
    assert (model.batch, model.symbols) == ("N", ())
    assert model.num_parameters == 8 * 3 * 9 + 8 + 16 * 8 * 9 + 16 + 160
    assert model.weight_bytes == 4 * model.num_parameters
    assert model.operators["Conv"] == 2


def test_operators_within_branches_are_counted(tmp_path):
    operators = read_model(save(branching(), tmp_path / "m.onnx")).operators
    assert (operators["If"], operators["Add"], operators["Sub"]) == (1, 1, 1)


def test_indices_stay_within_what_they_pick_from_and_masks_let_everything_through(tmp_path):
    model = read_model(save(picking(rows=50), tmp_path / "m.onnx"))
    (feed,) = make_feeds(model, read_shapes(["--shape", "length=400"]), 8)
    assert feed["words"].shape == (8, 400)
    assert (feed["words"].min(), feed["words"].max()) == (0, 49)
    assert feed["mask"].all()


def test_feeds_are_the_same_each_time(tmp_path):
    model = read_model(save(convolutional(), tmp_path / "m.onnx"))
    one, other = (make_feeds(model, read_shapes([]), 2)[0]["image"] for _ in range(2))
    assert np.array_equal(one, other)


def test_a_mix_of_shapes_comes_by_its_weights_and_evenly(tmp_path):
    model = read_model(save(picking(), tmp_path / "m.onnx"))
    feeds = make_feeds(model, read_shapes(["--shape=length=16:0.8,64:0.2"]), 2)
    lengths = [feed["words"].shape[1] for feed in feeds]
    assert lengths == [16, 16, 64, 16, 16]


def lengths_of(feeds):
    return [feed["words"].shape[1] for feed in feeds]


def test_a_range_is_spread_evenly_with_its_largest_first(tmp_path):
    model = read_model(save(picking(), tmp_path / "m.onnx"))
    lengths = lengths_of(make_feeds(model, read_shapes(["--shape", "length=11-110"]), 2))
    assert lengths[0] == 110
    assert len(set(lengths)) == len(lengths) == 10
    assert sorted((length - 11) // 20 for length in lengths) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


def test_other_shapes_of_a_mix_are_drawn_by_their_weights(tmp_path):
    model = read_model(save(picking(), tmp_path / "m.onnx"))
    shapes = read_shapes(["--shape", "length=5-9:3,64:1"])
    lengths = lengths_of(itertools.islice(other_feeds(model, shapes, 2), 400))
    assert set(lengths) == {5, 6, 7, 8, 9, 64}
    assert 60 < lengths.count(64) < 140
    assert not [*other_feeds(model, read_shapes(["--shape", "length=5"]), 2)], "there are no others"


def test_the_batch_is_one_number(tmp_path):
    model = read_model(save(convolutional(), tmp_path / "m.onnx"))
    with pytest.raises(ModelError, match="the batch 'N' is one number"):
        make_feeds(model, read_shapes(["--shape", "N=1-8"]), 0)


def test_inputs_from_a_file_are_repeated_to_the_batch(tmp_path):
    model = read_model(save(convolutional(), tmp_path / "m.onnx"))
    images = np.arange(2 * 3 * 256, dtype=np.float32).reshape(2, 3, 16, 16)
    np.savez(tmp_path / "inputs.npz", image=images)
    (feed,) = make_feeds(model, read_shapes(["--inputs", str(tmp_path / "inputs.npz")]), 5)
    assert np.array_equal(feed["image"], images[[0, 1, 0, 1, 0]])


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        ([], "the size of the model's dimension 'length' is not known"),
        (["--shape", "width=3"], "the model has no dimension 'width'"),
        (["--shape", "length=many"], "not a size"),
        (["--shape", "length=9-5"], "not a size"),
        (["--shape", "length=5:0"], "not a size"),
        (["--shape", "length"], "takes --shape NAME=SIZE"),
        (["--epochs", "3"], "not '--epochs'"),
        (["--inputs", "missing.npz"], "No such file"),
    ],
)
def test_what_cannot_be_fed_is_refused_with_the_next_step(tmp_path, arguments, cause):
    model = read_model(save(picking(), tmp_path / "m.onnx"))
    with pytest.raises(ModelError, match=cause) as refused:
        make_feeds(model, read_shapes(arguments), 2)
    assert refused.value.advice


def test_an_array_of_another_type_is_refused(tmp_path):
    model = read_model(save(convolutional(), tmp_path / "m.onnx"))
    np.savez(tmp_path / "inputs.npz", image=np.zeros((1, 3, 16, 16)))
    with pytest.raises(ModelError, match="is float64 of 4 dimensions, not float32"):
        make_feeds(model, read_shapes(["--inputs", str(tmp_path / "inputs.npz")]), 1)


def test_what_is_no_model_is_refused(tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"#!/bin/sh\necho no model\n")
    with pytest.raises(ModelError, match=r"m\.onnx (is not an ONNX model|has no operators)"):
        read_model(tmp_path / "m.onnx")


def test_weights_that_lie_elsewhere_and_are_missing_are_named(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(convolutional(), str(path), save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert read_model(path).num_parameters
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ModelError, match=r"are in 'weights\.bin', which is not there"):
        read_model(path)
