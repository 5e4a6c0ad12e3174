"""What the bundle of a model holds, and that its session runs without autotune."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest

from autotune.errors import BundleError, ExportError
from autotune.export.bundle import export_bundle, read_bundle
from autotune.inference.convert import convert
from autotune.inference.feeds import read_shapes
from autotune.inference.model import read_model
from autotune.inference.session import Runner
from autotune.records.choices import made_choices
from autotune.records.configuration import Configuration
from autotune.records.session import Session, session_of
from autotune.records.study import Trial
from tests.fakes.onnx_models import convolutional, save
from tests.fakes.study_record import ENVIRONMENT, FACTS, measured, study_record

PLAIN = Configuration("onnxruntime", batch_size=4)


@pytest.fixture
def model(tmp_path):
    return save(convolutional(), tmp_path / "images.onnx")


def bundle_of(model, choices, batch_size=8, device="cpu"):
    """The bundle of a study of the model on a device, with these choices."""
    chosen = Configuration("onnxruntime", batch_size=batch_size, choices=choices)
    runs = model.parent / "runs"
    environment = dataclasses.replace(ENVIRONMENT, device_kind=device)
    trials = tuple(
        Trial(number, one, "finished", measured(rate, 4, 2.0), environment, run_directory=str(runs / "t"))
        for number, (one, rate) in enumerate(((PLAIN, 100.0), (chosen, 200.0)))
    )
    record = study_record(trials=trials, repeats=(), verdict=None)
    spec = dataclasses.replace(record.spec, script=str(model), engine="onnxruntime", arguments=("--shape", "N=4"))
    facts = dataclasses.replace(FACTS, baseline=PLAIN, clusters=(), batch_size=4, optimizers=(), precision=None)
    record = dataclasses.replace(record, spec=spec, facts=facts)
    return export_bundle(record, model.parent / "bundle", configuration=chosen)


def run_alone(bundle, *arguments):
    """The outputs of the bundle's session on ones, in a process that does not import autotune."""
    program = (
        "import sys, runpy, numpy as np\n"
        "made = runpy.run_path(sys.argv[0])\n"
        "(outputs,) = made['run']({'image': np.ones((2, 3, 16, 16), np.float32)})\n"
        "assert 'autotune' not in sys.modules\n"
        "sys.stdout.write(' '.join(repr(float(one)) for one in np.ravel(outputs)))\n"
    )
    program = program.replace("sys.argv[0]", repr(str(bundle / "session.py")))
    command = [sys.executable, "-P", "-c", program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return np.array([float(word) for word in done.stdout.split()], np.float32)


def test_a_models_bundle_holds_its_session_and_nothing_of_plans(model):
    bundle = bundle_of(model, ("mem-pattern=0",))
    assert {one.name for one in bundle.iterdir()} == {"README.txt", "session.json", "session.py", "stack.json"}
    assert read_bundle(bundle).configuration.choices == ("mem-pattern=0",)
    assert read_bundle(bundle).environment == {}
    words = " ".join((bundle / "README.txt").read_text().split())
    assert "batch size 8 (the study began at 4)" in words
    assert "model.onnx" not in words
    for foreign in ("script", "learning rate", "global batch", "epoch", "recompute"):
        assert foreign not in words
    assert bundle_of(model, ("mem-pattern=0",)) == bundle, "it is replaced like any other"


def test_what_is_no_model_has_to_have_its_plans(model):
    bundle = bundle_of(model, ())
    (bundle / "session.json").unlink()
    with pytest.raises(BundleError, match=r"mem_opt\.json"):
        read_bundle(bundle)


@pytest.mark.parametrize(
    "choices",
    [
        ("arena-as-requested=1", "io-binding=1", "spinning=0"),
        ("mmap-threshold=1", "optimization=1", "order=1"),
        ("parallel=1", "inter-op-threads=2", "shrink-arena=1"),
    ],
)
def test_the_session_alone_computes_what_was_measured(model, choices):
    own = Runner(model, session_of(made_choices("onnxruntime", choices).items()))
    (outputs,) = own.run({"image": np.ones((2, 3, 16, 16), np.float32)})
    assert np.array_equal(run_alone(bundle_of(model, choices), model), np.ravel(outputs))


def test_a_converted_model_comes_with_the_bundle_and_is_what_its_session_runs(model):
    folder = model.parent / "runs" / "converted"
    made, _ = convert(model, read_model(model), "int8", read_shapes([]), folder, key="")
    bundle = bundle_of(model, ("int8=1", "io-binding=1"))
    session = json.loads((bundle / "session.json").read_text())
    assert session["converted"]["file"] == "model.onnx"
    assert session["converted"]["sha256"] == hashlib.sha256((bundle / "model.onnx").read_bytes()).hexdigest()
    assert read_bundle(bundle).stack.max_error == 0.05
    words = " ".join((bundle / "README.txt").read_text().split())
    assert "int8 changes what is computed" in words
    assert "model.onnx the converted model" in words
    (outputs,) = Runner(made, Session()).run({"image": np.ones((2, 3, 16, 16), np.float32)})
    assert np.array_equal(run_alone(bundle), np.ravel(outputs))
    assert bundle_of(model, ("int8=1", "io-binding=1")) == bundle


def test_a_converted_model_that_is_gone_is_told_before_a_bundle_is_written(model):
    with pytest.raises(ExportError, match="converted to int8 is not on this machine"):
        bundle_of(model, ("int8=1",))
    assert not (model.parent / "bundle").exists()


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_the_session_of_a_gpu_says_its_provider_and_refuses_to_fall_back(model):
    bundle = bundle_of(model, ("conv-search=1", "gpu-mem-limit=4"), device="cuda")
    session = json.loads((bundle / "session.json").read_text())
    assert session["providers"] == ["CUDAExecutionProvider", "CPUExecutionProvider"]
    assert session["provider"] == {"cudnn_conv_algo_search": "HEURISTIC", "gpu_mem_limit": str(4 << 30)}
    program = (bundle / "session.py").read_text()
    made = [("CUDAExecutionProvider", session["provider"]), "CPUExecutionProvider"]
    assert f"providers={made!r})" in program
    command = [sys.executable, bundle / "session.py", model]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert "AssertionError: it fell back" in done.stderr, "there is no such provider here"


@pytest.mark.parametrize("choices", [("io-binding=1",), ("io-binding=1", "cuda-graph=1")])
def test_the_session_of_a_gpu_computes_the_same_where_arrays_lie_on_the_cpu(model, choices):
    bundle = bundle_of(model, choices, device="cuda")
    program = bundle / "session.py"
    lines = program.read_text().splitlines(keepends=True)
    program.write_text("".join(line.replace('"cuda"', '"cpu"') for line in lines if not line.startswith("assert")))
    (outputs,) = Runner(model, Session()).run({"image": np.ones((2, 3, 16, 16), np.float32)})
    assert np.array_equal(run_alone(bundle, model), np.ravel(outputs))
