"""Runs on a GPU: what discovery reports, trials one after the other, forks, choices and devices."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils._triton import has_triton

from autotune.launch.port import RunResult
from autotune.machine.meters.nvidia import read_gpus
from autotune.records.configuration import Configuration
from autotune.records.measuring import Measuring
from autotune.records.outcome import Fallback, OutOfMemory
from autotune.records.plan import parse_plans
from autotune.worker.modes.measure import DeviceClock
from tests.gpu.running import GIB, SCRIPT, held_by_another_process, logs, measured, needs_speeds, run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
    # Inductor's own modules, as they are imported (torch 2.11).
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning"),
]


@pytest.mark.alone
def test_discovery_reports_the_device_and_its_peaks(tmp_path: Path) -> None:
    result = run(tmp_path, "discover", 512, 4096)
    peaks = measured(result.outcomes[0], result).measurement.peaks
    assert peaks.device is not None
    assert peaks.reserved is not None
    assert peaks.allocated is not None
    assert peaks.non_torch is not None
    # Four blocks, four times the width, four bytes each: what gelu reads and gives.
    assert peaks.reserved >= peaks.allocated > 4 * 2 * 4096 * 4 * 512 * 4
    assert peaks.device >= peaks.reserved
    assert peaks.fit_bytes == peaks.reserved + peaks.non_torch
    assert 0 < peaks.non_torch < 4 * GIB
    assert result.environment is not None
    assert result.environment.device_kind == "cuda"
    assert result.facts is not None, logs(result)
    assert {"Block+", "gelu+"} <= {row.cluster_id for row in result.facts.clusters}
    assert result.facts.batch_size == 4096


def test_discovery_says_of_the_device_what_torch_says_whether_code_can_be_generated_for_it(tmp_path: Path) -> None:
    result = run(tmp_path, "discover", 64, 64)
    assert result.facts is not None, logs(result)
    assert (result.facts.compile_refusal == "") == has_triton(), result.facts.compile_refusal


@pytest.mark.alone
def test_plans_of_one_run_are_measured_one_after_the_other_with_lower_peaks(tmp_path: Path) -> None:
    plans = ("Block+:1:-1", "gelu+:1:-1")
    configurations = [Configuration("aot", parse_plans(chosen)) for chosen in ((plans[0],), (plans[1],), ())]
    result = run(tmp_path, "measure", 512, 4096, *configurations)
    found = [measured(outcome, result).measurement for outcome in result.outcomes]
    allocated = [measurement.peaks.allocated or 0 for measurement in found]
    assert allocated[0] < allocated[1] < allocated[2]
    assert [m.saved_bytes for m in found] == sorted(m.saved_bytes or 0 for m in found)
    assert all(not measurement.allocator_retries for measurement in found)


@pytest.mark.parametrize("ahead", [(), ("torch._dynamo",)], ids=["torch", "its compiler too"])
def test_a_run_is_forked_from_a_server_that_has_opened_no_device(tmp_path: Path, ahead: tuple[str, ...]) -> None:
    result = run(tmp_path, "measure", 512, 256, may_fork=True, preload=ahead)
    measurement = measured(result.outcomes[0], result).measurement
    assert result.is_forked
    assert not any("fresh process" in note or "ahead" in note for note in measurement.notes), measurement.notes
    assert (tmp_path / "runs" / "fork-server").is_dir()
    assert (measurement.peaks.reserved or 0) > 0


def test_choices_of_torchs_own_are_made_and_seen_to_act(tmp_path: Path) -> None:
    def trial(*choices: str) -> RunResult:
        return run(tmp_path / "-".join(choices or ("none",)), "measure", 512, 4096, Configuration(choices=choices))

    plain = measured((result := trial()).outcomes[0], result).measurement
    cast = measured((result := trial("bf16=1")).outcomes[0], result).measurement
    assert (cast.peaks.allocated or 0) < (plain.peaks.allocated or 0)
    for choice in ("fused-optimizer=1", "expandable-segments=1"):
        measured((result := trial(choice)).outcomes[0], result)
    (outcome,) = trial("foreach-optimizer=1").outcomes
    assert isinstance(outcome, Fallback)
    assert "AdamW takes it by itself here" in outcome.cause


@pytest.mark.alone
def test_a_trial_is_measured_when_the_gpu_is_warm_with_its_clock_and_power_beside_it(tmp_path: Path) -> None:
    source = SCRIPT.replace("range(200)", "range(10**6)")
    result = run(tmp_path, "measure", 1024, 4096, source=source, measuring=Measuring())
    measurement = measured(result.outcomes[0], result).measurement
    assert measurement.warmup_s >= 1.0
    assert sum(measurement.step_times_s) > 2.5
    assert len(measurement.step_times_s) >= 20
    conditions = measurement.conditions
    assert conditions is not None, measurement.notes
    assert conditions.readings >= 5
    if conditions.sm_clock_mhz is None:
        pytest.skip("NVML does not tell this device's clock")
    assert 100 < conditions.sm_clock_mhz < 5000
    assert (conditions.lowest_sm_clock_mhz or 0) <= conditions.sm_clock_mhz <= (conditions.highest_sm_clock_mhz or 0)
    assert conditions.power_w is None or 10 < conditions.power_w < 2000
    throttled = any("the GPU slowed itself down" in note for note in measurement.notes)
    assert throttled == (conditions.throttled_share > 0)


@pytest.mark.alone
@needs_speeds
def test_reading_step_times_does_not_wait_for_the_device() -> None:
    clock = DeviceClock(0)
    torch.cuda.synchronize(0)
    clock.mark()
    torch.cuda._sleep(10**9)  # some half of a second
    clock.mark()
    assert clock.step_times_s() == []
    torch.cuda.synchronize(0)
    (seconds,) = clock.step_times_s()
    assert 0.1 < seconds < 10


_SPARSE = """
    import sys, torch
    from torch import nn
    width, batch = int(sys.argv[1]), int(sys.argv[2])
    model = nn.Embedding(2 * batch, width, sparse=True).cuda()
    optimizer = torch.optim.SparseAdam(model.parameters())
    for step in range(1000):
        model(torch.arange(batch, device="cuda")).pow(2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def test_an_embedding_with_sparse_gradients_is_measured(tmp_path: Path) -> None:
    result = run(tmp_path, "measure", 64, 1024, source=_SPARSE)
    measurement = measured(result.outcomes[0], result).measurement
    assert measurement.split is not None
    # Indices of eight bytes, and a row of four bytes a value for each.
    assert measurement.split.gradients == 1024 * (8 + 4 * 64)
    assert set(measurement.samples_per_step) == {1024}


def test_a_script_that_trains_on_the_cpu_is_held_to_its_resident_set(tmp_path: Path) -> None:
    on_cpu = SCRIPT.replace(".cuda()", "")
    result = run(tmp_path / "free", "measure", 64, 64, source=on_cpu, devices=())
    peaks = measured(result.outcomes[0], result).measurement.peaks
    assert (peaks.device, peaks.reserved, peaks.non_torch) == (None, None, None)
    assert peaks.resident is not None
    result = run(tmp_path / "limited", "measure", 64, 64, source=on_cpu, devices=(), limit_bytes=peaks.resident // 4)
    (outcome,) = result.outcomes
    assert isinstance(outcome, OutOfMemory), f"{outcome}\n{logs(result)}"
    assert "resident set" in outcome.cause


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one CUDA device")
def test_the_device_that_a_script_chooses_is_the_one_that_is_read(tmp_path: Path) -> None:
    on_second = SCRIPT.replace(".cuda()", ".to('cuda:1')")
    with held_by_another_process(3 * GIB):
        result = run(tmp_path, "measure", 1024, 4096, source=on_second, devices=())
    peaks = measured(result.outcomes[0], result).measurement.peaks
    assert peaks.device is not None
    assert peaks.reserved is not None
    assert peaks.device >= peaks.reserved


def test_torch_and_nvml_call_the_devices_alike() -> None:
    known = {uuid for device in read_gpus().devices for uuid in device.torch_uuids}
    if not known:
        pytest.skip("NVML lists no device")
    named = {str(torch.cuda.get_device_properties(index).uuid) for index in range(torch.cuda.device_count())}
    assert named <= known
