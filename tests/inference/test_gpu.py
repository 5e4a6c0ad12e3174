"""Models on a GPU, by stand-ins: which settings there are, that they are asked for and read back, and fallbacks."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnxruntime
import pytest

from autotune.inference import run as runs
from autotune.inference import session as sessions
from autotune.inference.gpu import describe_environment, find_gpu
from autotune.inference.model import read_model
from autotune.inference.profile import idle_settings
from autotune.inference.session import Runner
from autotune.inference.trial import PhasedMemory, Trial
from autotune.metering.results import ProgressFile
from autotune.records.choices import choices_of, made_choices
from autotune.records.codec import loads
from autotune.records.configuration import Configuration
from autotune.records.inference import InferenceFacts, InferenceMoment
from autotune.records.measuring import GpuMeasuring, Measuring
from autotune.records.run import Line, Request, Result
from autotune.records.session import Session, session_of
from autotune.records.session_settings import SESSION_SETTINGS
from tests.fakes.cuda_driver import FakeDriver, session_on_gpu
from tests.fakes.onnx_models import branching, convolutional, picking, save
from tests.fakes.study_record import FACTS

UUID = "00010203-0405-0607-0809-0a0b0c0d0e0f"
IMAGES = {"image": np.ones((2, 3, 16, 16), np.float32)}
OF_THE_PROVIDER = ("gpu-arena-as-requested=1", "gpu-mem-limit=4", "conv-search=1", "io-binding=1", "cuda-graph=1")


def session_with(*choices):
    return session_of(made_choices("onnxruntime", choices).items())


@pytest.fixture
def model(tmp_path):
    return save(convolutional(), tmp_path / "m.onnx")


def test_the_first_gpu_is_named_as_nvml_names_it():
    gpu = find_gpu(FakeDriver(name="NVIDIA H100", memory=80 << 30))
    assert (gpu.name, gpu.uuid, gpu.memory_bytes) == ("NVIDIA H100", UUID, 80 << 30)
    environment = describe_environment(gpu)
    assert (environment.device_kind, environment.device_name) == ("cuda", "NVIDIA H100")
    assert describe_environment(None).device_kind == "cpu"


def test_where_there_is_no_gpu_a_model_runs_on_the_cpu(monkeypatch):
    assert find_gpu(FakeDriver(has_device=False)) is None
    monkeypatch.setattr("autotune.inference.gpu._LIBRARY", "libno-such-cuda.so")
    assert find_gpu() is None


def test_a_gpu_that_onnx_runtime_has_no_provider_for_is_not_used(monkeypatch):
    monkeypatch.setattr(runs, "find_gpu", lambda: find_gpu(FakeDriver()))
    assert runs._usable_gpu() is None
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [runs._CUDA])
    assert runs._usable_gpu() is not None


def test_what_is_held_of_a_gpu_is_what_it_has_less_than_before_the_run():
    driver = FakeDriver(memory=100)
    memory = PhasedMemory(find_gpu(driver), free_before=90)
    memory.begin()
    driver.free = 60
    memory.end("load")
    driver.free = 70
    memory.end("steady")
    assert [(one.phase, one.resident, one.peak) for one in memory.moments] == [
        ("before", 0, 0), ("load", 30, 30), ("steady", 20, 20),
    ]  # fmt: skip
    peaks = memory.peaks()
    assert (peaks.reserved, peaks.non_torch, peaks.fit_bytes) == (0, 30, 30)


def test_what_nvml_has_more_of_a_gpu_than_cuda_was_not_free():
    gpu = find_gpu(FakeDriver(memory=100))
    assert gpu.free_before({gpu.uuid: 90}, {gpu.uuid: 104}) == 86
    assert gpu.free_before({gpu.uuid: 90}, {}) == 90
    assert gpu.free_before({}, {}) is None


def test_settings_of_cudas_provider_are_written_as_it_reads_them():
    session = session_with(*OF_THE_PROVIDER, "shrink-gpu-arena=1", "outputs-on-device=1")
    assert session == Session(
        provider={
            "arena_extend_strategy": "kSameAsRequested",
            "gpu_mem_limit": str(4 << 30),
            "cudnn_conv_algo_search": "HEURISTIC",
            "enable_cuda_graph": "1",
        },
        run_config={"memory.enable_memory_arena_shrinkage": "gpu:0"},
        io_binding=True,
        outputs_on_device=True,
    )
    assert session_with("gpu-mem-limit=0", "shrink-gpu-arena=0") == Session()


def test_options_of_the_provider_are_read_back(model, monkeypatch):
    monkeypatch.setattr(onnxruntime, "InferenceSession", session_on_gpu())
    runner = Runner(model, session_with(*OF_THE_PROVIDER), on_gpu=True)
    made = runner.session.get_provider_options()["CUDAExecutionProvider"]
    assert made == {"device_id": "0", **session_with(*OF_THE_PROVIDER).provider}
    assert runner.fallback() == ""


def test_an_option_that_was_not_taken_is_a_fallback(model, monkeypatch):
    monkeypatch.setattr(onnxruntime, "InferenceSession", session_on_gpu(enable_cuda_graph="0"))
    runner = Runner(model, session_with(*OF_THE_PROVIDER), on_gpu=True)
    assert runner.fallback() == "enable_cuda_graph=0 in place of what was asked for"


@pytest.mark.skipif(runs._CUDA in onnxruntime.get_available_providers(), reason="this one would not fall back")
@pytest.mark.filterwarnings("ignore:Specified provider")
def test_a_provider_that_falls_back_in_silence_is_an_outcome_of_its_own(model, tmp_path):
    # This ONNX Runtime has no such provider, and makes a session all the same.
    configuration = Configuration("onnxruntime", batch_size=2)
    request = Request("measure", str(model), (), (configuration,), describe_engine="onnxruntime")
    runs._follow(request, ProgressFile(tmp_path, 0, 1, UUID), tmp_path, find_gpu(FakeDriver()))
    (line,) = (tmp_path / "results.jsonl").read_text().splitlines()
    result = loads(Line, line, where="")
    assert isinstance(result, Result)
    assert result.outcome.kind == "fallback"
    assert "runs the model with CPUExecutionProvider in place of CUDAExecutionProvider" in result.outcome.cause
    assert "onnxruntime-gpu[cuda,cudnn]" in result.outcome.advice


def test_a_session_does_not_go_over_to_the_cpu_while_it_runs(model):
    assert not Runner(model, Session()).session._enable_fallback


def test_runs_of_a_cuda_graph_read_and_write_where_it_was_captured(model, monkeypatch):
    monkeypatch.setattr(onnxruntime, "InferenceSession", session_on_gpu())
    monkeypatch.setattr(sessions, "_GPU", "cpu")
    runner = Runner(model, session_with(*OF_THE_PROVIDER), on_gpu=True)
    plain = Runner(model, Session(), on_gpu=True)
    places, graphs = set(), []
    for scale in (1.0, 2.0, 3.0):
        feed = {name: array * np.float32(scale) for name, array in IMAGES.items()}
        assert np.array_equal(runner.run(feed)[0], plain.run(feed)[0])
        (captured,) = runner._captured.values()
        places.add((captured.inputs["image"].data_ptr(), captured.binding.get_outputs()[0].data_ptr()))
        graphs.append(captured.options.get_run_config_entry("gpu_graph_id"))
    assert len(places) == 1
    assert graphs == ["1", "1", "1"]
    other = {"image": np.ones((5, 3, 16, 16), np.float32)}
    assert np.array_equal(runner.run(other)[0], plain.run(other)[0]), "other shapes have a graph of their own"
    assert len(runner._captured) == 2


def test_outputs_that_stay_on_the_device_are_compared_as_arrays(model, monkeypatch):
    monkeypatch.setattr(onnxruntime, "InferenceSession", session_on_gpu())
    monkeypatch.setattr(sessions, "_GPU", "cpu")
    runner = Runner(model, session_with("io-binding=1", "outputs-on-device=1"), on_gpu=True)
    (left,) = runner.run(IMAGES)
    assert isinstance(left, onnxruntime.OrtValue)
    (own,) = Runner(model, Session(), on_gpu=True).run(IMAGES)
    assert np.array_equal(runner.outputs(IMAGES)[0], own)


def facts_of(kind, *, peak=0, memory=80 << 30):
    environment = dataclasses.replace(FACTS.environment, device_kind=kind, device_memory_bytes=memory)
    moments = (InferenceMoment("steady", peak, peak),)
    return dataclasses.replace(FACTS, environment=environment, inference=InferenceFacts(0, moments))


def test_settings_of_the_other_device_are_not_tried():
    named = {one.name: one for one in SESSION_SETTINGS}
    for_gpus = {name for name, one in named.items() if not one.refusal_for(facts_of("cuda"))}
    for_cpus = {name for name, one in named.items() if not one.refusal_for(facts_of("cpu"))}
    assert for_gpus - for_cpus == {
        "gpu-arena-as-requested", "gpu-mem-limit", "shrink-gpu-arena", "conv-search", "cuda-graph", "outputs-on-device",
    }  # fmt: skip
    assert {"cpu-arena", "parallel", "shrink-arena", "arena-as-requested"} <= for_cpus - for_gpus
    assert named["cuda-graph"].refusal_for(facts_of("cpu")) == (
        "the model runs on the CPU, and it is a setting of GPUs"
    )


def test_what_a_caller_gets_is_changed_only_by_leave():
    known = choices_of("onnxruntime")
    assert not known["outputs-on-device"].is_free
    assert known["cuda-graph"].is_free


@pytest.mark.parametrize(
    ("peak", "sizes"), [(0, (0,)), (5 << 29, (0, 3, 6)), (3 << 30, (0, 3, 6)), (50 << 30, (0, 50)), (90 << 30, (0,))]
)
def test_an_arena_is_limited_to_what_a_model_was_seen_to_take(peak, sizes):
    assert choices_of("onnxruntime")["gpu-mem-limit"].values_for(facts_of("cuda", peak=peak)) == sizes


@pytest.mark.parametrize(
    ("make", "feed", "has_one_shape", "idle"),
    [
        (convolutional, IMAGES, True, set()),
        (convolutional, IMAGES, False, {"cuda-graph"}),
        (picking, {"words": np.ones((2, 5), np.int32), "mask": np.ones((2, 5, 1), bool)}, True, {"conv-search"}),
        (branching, {"x": np.ones((2, 4), np.float32)}, True, {"conv-search", "cuda-graph"}),
    ],
)
def test_what_changes_nothing_on_a_gpu_is_told(tmp_path, monkeypatch, make, feed, has_one_shape, idle):
    monkeypatch.setattr(onnxruntime, "InferenceSession", session_on_gpu())
    path = save(make(), tmp_path / "m.onnx")
    found = idle_settings(path, read_model(path), feed, on_gpu=True, has_one_shape=has_one_shape)
    told = {one.setting for one in found}
    assert told & {"conv-search", "cuda-graph"} == idle
    assert "parallel" not in told, "it is none of a GPU's"
    assert all(one.reason for one in found)


def test_a_trial_on_a_gpu_is_warm_and_measured_by_the_rules_of_gpus(model, monkeypatch):
    monkeypatch.setattr(onnxruntime, "InferenceSession", session_on_gpu())
    seen = []

    class Progress:
        def update(self, **changes):
            seen.append(changes)

    rules = Measuring(min_steps=5, max_steps=5, min_measure_s=0.0, max_measure_s=0.0)
    rules = dataclasses.replace(rules, on_gpu=GpuMeasuring(warmup_s=0.2, measure_s=0.0, steps=5))
    driver = FakeDriver(memory=100, free=40)
    trial = Trial(model, read_model(model), Session(), Progress(), PhasedMemory(find_gpu(driver), free_before=90))
    measurement = trial.measure((IMAGES,), iter(()), 2, rules)
    assert measurement.warmup_s >= 0.2
    assert (measurement.peaks.reserved, measurement.peaks.non_torch) == (0, 50)
    assert any(changes.get("measuring_since_s") for changes in seen)
