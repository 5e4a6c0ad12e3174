"""An ONNX model in place of a script, from `run` to its bundle."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import onnxruntime
import pytest

from tests.fakes.onnx_models import convolutional, picking, save

from .inside import run_inside

FAST = ("--max-trials=3", "--time-budget=60s", "--repetitions=3")


def test_a_model_is_searched_proven_exported_and_launched(tmp_path: Path) -> None:
    model = save(picking(), tmp_path / "words.onnx")

    run = run_inside("run", model.name, *FAST, "--json", "--", "--shape", "length=8", folder=tmp_path)

    assert run.status == 0, run.errors
    document = json.loads(run.output)
    assert document["target"] == "model"
    assert document["environment"]["onnxruntime"] == onnxruntime.__version__
    assert document["baseline"]["batch_size"] == 1
    measured = [point for point in document["points"] if point["outcome"] == "measured"]
    assert len(measured) >= 3, run.errors
    assert {point["engine"] for point in measured} == {"onnxruntime"}
    assert "script" not in run.errors.replace("autotune launch", "")
    (bundle,) = tmp_path.glob("autotune-words-*")
    session = json.loads((bundle / "session.json").read_text())
    assert (session["model"], session["arguments"]) == ("words.onnx", ["--shape", "length=8"])
    assert session["batch_size"] == document["winner"]["batch_size"]
    alone = subprocess.run(
        [sys.executable, bundle / "session.py", model], capture_output=True, text=True, check=True, timeout=120
    )
    assert "words tensor(int32) ['batch', 'length']" in alone.stdout
    launched = run_inside("launch", bundle, model, "--", "--shape", "length=8", folder=tmp_path)
    assert launched.status == 0, launched.errors
    assert launched.output.startswith(b"words.onnx: ")
    assert b"samples/s" in launched.output
    verified = run_inside("verify", bundle, model, "--shape", "length=8", folder=tmp_path)
    assert verified.status == 0, verified.errors
    assert b"on the same inputs, outputs" in verified.output
    assert "proof model: " in verified.errors


def test_what_a_model_needs_is_asked_for(tmp_path: Path) -> None:
    model = save(picking(), tmp_path / "words.onnx")
    run = run_inside("run", model, *FAST, folder=tmp_path)
    assert run.status == 1
    assert "the size of the model's dimension 'length' is not known" in run.errors
    assert "Add `--shape length=SIZE`" in run.errors


@pytest.mark.slow
def test_a_model_whose_batch_is_fixed_is_searched_at_that(tmp_path: Path) -> None:
    model = save(convolutional(batch=4), tmp_path / "fixed.onnx")
    run = run_inside("run", model, *FAST, "--json", folder=tmp_path)
    assert run.status == 0, run.errors
    assert {point["batch_size"] for point in json.loads(run.output)["points"]} == {4}


@pytest.mark.slow
def test_what_a_model_cannot_be_converted_to_is_told_and_the_search_goes_on(tmp_path: Path) -> None:
    model = save(convolutional(), tmp_path / "images.onnx")
    options = (*FAST, "--batch-sizes=4:4", "--shape", "N=4", "--allow=int8,int8-static", "--max-error=0.1%", "--json")
    run = run_inside("run", model.name, *options, folder=tmp_path)
    assert run.status == 0, run.errors
    words = " ".join(run.errors.split())
    assert "int8-static is not tried: int8-static is calibrated on inputs, and none were given" in words
    assert "of the largest value off, and --max-error is 0.1 %" in words
    assert not any("int8" in point["configuration"] for point in json.loads(run.output)["points"])


@pytest.mark.parametrize(
    ("named", "options", "cause"),
    [
        ("missing.onnx", (), "there is no model 'missing.onnx'"),
        ("train.py", ("--engine", "onnxruntime"), "engine 'onnxruntime' does not run a script"),
        ("m.onnx", ("--engine", "inductor"), "engine 'inductor' does not run an ONNX model"),
    ],
)
def test_what_cannot_go_together_is_refused(tmp_path: Path, named: str, options: tuple[str, ...], cause: str) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    save(convolutional(), tmp_path / "m.onnx")
    run = run_inside("run", named, *options, folder=tmp_path)
    assert run.status == 2
    assert cause in run.errors
