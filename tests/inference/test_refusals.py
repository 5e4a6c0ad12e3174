"""What cannot be run: each names its cause and the next step, and is an outcome of its own."""

from __future__ import annotations

import resource
import subprocess
import sys

import numpy as np
import onnx
import pytest

import autotune.inference
from autotune.records.codec import dumps, loads
from autotune.records.configuration import Configuration
from autotune.records.run import Line, Request, Result
from tests.fakes.onnx_models import chain, convolutional, picking, save

WORKER = autotune.inference.__path__[0] + "/__main__.py"


def outcome_of(path, *arguments, limit_bytes=None):
    """How a run of the model ends, in a process of its own."""
    directory = path.parent / "run"
    directory.mkdir()
    configuration = Configuration("onnxruntime")
    request = Request("measure", str(path), arguments, (configuration,), describe_engine="onnxruntime")
    (directory / "request.json").write_text(dumps(request))

    def limited():
        resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))

    subprocess.run(
        [sys.executable, "-P", WORKER, directory], check=True, timeout=120, preexec_fn=limited if limit_bytes else None
    )
    lines = [loads(Line, line, where="") for line in (directory / "results.jsonl").read_text().splitlines()]
    (outcome,) = [one.outcome for one in lines if isinstance(one, Result)]
    return outcome


def made(path, change):
    model = convolutional()
    change(model)
    onnx.save(model, str(path))
    return path


def of_a_later_opset(path):
    return made(path, lambda model: setattr(model.opset_import[0], "version", 99))


def of_an_unknown_operator(path):
    return made(path, lambda model: setattr(model.graph.node[0], "domain", "acme"))


def without_operators(path):
    return made(path, lambda model: model.graph.ClearField("node"))


def without_its_weights(path):
    onnx.save(convolutional(), str(path), save_as_external_data=True, location="weights", size_threshold=0)
    (path.parent / "weights").unlink()
    return path


def without_a_shape(path):
    return made(path, lambda model: model.graph.input[0].type.tensor_type.ClearField("shape"))


def of_text(path):
    path.write_text("import torch\n")
    return path


def cut_short(path):
    save(convolutional(), path)
    path.write_bytes(path.read_bytes()[:1000])
    return path


@pytest.mark.parametrize(
    ("make", "cause", "advice"),
    [
        (of_text, "m.onnx is not an ONNX model", "onnx.load reads"),
        (cut_short, "m.onnx is not an ONNX model", "onnx.load reads"),
        (without_operators, "m.onnx has no operators", "Export the model anew."),
        (without_its_weights, "the weights of m.onnx are in 'weights', which is not there", "into the model's folder"),
        (of_a_later_opset, "Opset 99 is under development", "with an older opset"),
        (without_a_shape, "input 'image' has no shape", "Export the model with the shapes of its inputs"),
        (of_an_unknown_operator, "does not take it (INVALID_GRAPH)", "with ONNX's own operators"),
    ],
)
def test_a_model_that_cannot_be_run_says_why_and_what_to_do(tmp_path, make, cause, advice):
    outcome = outcome_of(make(tmp_path / "m.onnx"))
    assert outcome.kind == "script_error"
    assert cause in outcome.cause
    assert advice in outcome.advice
    assert "/onnxruntime_src/" not in outcome.cause


@pytest.mark.parametrize(
    ("arrays", "cause", "advice"),
    [
        (
            {"image": np.zeros((4, 3, 8, 16), np.float32)},
            "4 x 3 x 8 x 16, and the model takes N x 3 x 16 x 16",
            "16 in",
        ),
        ({"image": np.zeros((4, 3, 16, 16))}, "'image' is float64 of 4 dimensions, not float32 of 4", "with the type"),
        ({"picture": np.zeros((4, 3, 16, 16), np.float32)}, "has no array 'image'", "for each input"),
    ],
)
def test_inputs_that_do_not_fit_say_where(tmp_path, arrays, cause, advice):
    np.savez(tmp_path / "given.npz", **arrays)
    outcome = outcome_of(save(convolutional(), tmp_path / "m.onnx"), "--inputs", str(tmp_path / "given.npz"))
    assert cause in outcome.cause
    assert advice in outcome.advice


@pytest.mark.parametrize(
    ("arguments", "cause", "advice"),
    [
        ((), "the size of the model's dimension 'length' is not known", "Add `--shape length=SIZE`."),
        (("--shape", "length=0"), "--shape length=0: not a size", "--shape seq=128"),
        (("--shape", "length=2", "--shape", "depth=3"), "the model has no dimension 'depth'", "are: length"),
        (("--shape", "length=2", "--epochs", "3"), "a model takes --shape NAME=SIZES", "Leave the rest out."),
    ],
)
def test_sizes_that_do_not_fit_say_where(tmp_path, arguments, cause, advice):
    outcome = outcome_of(save(picking(), tmp_path / "m.onnx"), *arguments)
    assert cause in outcome.cause
    assert advice in outcome.advice


@pytest.mark.slow
def test_a_model_larger_than_memory_is_out_of_memory(tmp_path):
    path = save(chain(length=1, weight_rows=1 << 17), tmp_path / "m.onnx")
    (tmp_path / "small").mkdir()
    assert outcome_of(save(chain(), tmp_path / "small" / "m.onnx"), limit_bytes=1 << 30).kind == "measured"
    outcome = outcome_of(path, limit_bytes=1 << 30)
    assert outcome.kind == "out_of_memory", outcome.cause
