"""What a run takes on a GPU: peaks, limits, running out, and what others hold."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from autotune import memory_matrix
from autotune.machine.meters.nvidia import NvmlMeter, read_gpus
from autotune.records.matrix import highest
from autotune.records.measurement import CONTENDED_SHARE
from autotune.records.outcome import OutOfMemory
from autotune.worker.failure import failure_of
from tests.gpu.running import GIB, SCRIPT, held_by_another_process, logs, measured, run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
    # Inductor's own modules, as they are imported (torch 2.11).
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning"),
]


def test_the_memory_matrix_tells_what_the_allocator_holds_at_each_phase() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1)).cuda()
    inputs = torch.randn(4096, 64, device="cuda")
    with memory_matrix(model, lambda line: None) as matrix:
        for _ in range(2):
            model.zero_grad()
            outputs = model(inputs)
            outputs.sum().backward()
            del outputs
    before, after, loss, end = matrix.rows[4:]
    kept = 4096 * 4096 * 4
    assert 2 * kept <= after.allocated - before.allocated < 3 * kept
    assert loss.allocated >= after.allocated
    # The allocator rounds each tensor up to blocks of 512 bytes.
    assert end.allocated - before.allocated == pytest.approx(end.gradients, abs=2**16)
    assert end.gradients == end.parameters
    for row in matrix.rows:
        assert row.peak is not None
        assert row.cached is not None
        assert row.allocated <= row.peak <= row.max_allocated <= (row.max_cached or 0)
        assert row.allocated <= row.cached
    found = highest(matrix.rows)
    assert found is not None
    assert found.phase == "post_backward", "there the gradients of the activations come on top"


@pytest.mark.alone
def test_a_limit_below_the_cards_size_is_enforced_and_the_phase_is_told(tmp_path: Path) -> None:
    needed = measured((result := run(tmp_path / "free", "measure", 1024, 16384)).outcomes[0], result).measurement.peaks
    assert needed.reserved is not None
    limit = needed.fit_bytes - needed.reserved // 2
    result = run(tmp_path / "limited", "measure", 1024, 16384, limit_bytes=limit)
    (outcome,) = result.outcomes
    assert isinstance(outcome, OutOfMemory), f"{outcome}\n{logs(result)}"
    assert outcome.phase in ("forward", "backward")
    assert outcome.limit_bytes == limit
    assert outcome.phase in outcome.cause
    # The same limit holds what needs less.
    result = run(tmp_path / "small", "measure", 1024, 256, limit_bytes=limit)
    assert measured(result.outcomes[0], result).measurement.peaks.fit_bytes <= limit


def test_what_no_tensor_uses_as_memory_runs_out_is_told() -> None:
    torch.cuda.empty_cache()
    # Five of these share a segment; one of each keeps it.
    held = [torch.empty(4 << 20, dtype=torch.uint8, device="cuda") for _ in range(100)][::5]
    idle_bytes = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    with pytest.raises(torch.OutOfMemoryError) as raised:
        torch.empty(1 << 42, dtype=torch.uint8, device="cuda")
    told = failure_of(raised.value, phase="forward", limit_bytes=None)
    assert isinstance(told, OutOfMemory)
    assert told.idle_bytes == pytest.approx(idle_bytes, rel=0.01)
    assert idle_bytes > 300 << 20, f"{len(held)} tensors hold their segments"


@pytest.mark.alone
def test_a_limit_reckons_with_what_the_first_step_has_loaded(tmp_path: Path) -> None:
    if not hasattr(torch.cuda, "get_per_process_memory_fraction"):
        pytest.skip("this torch does not say what its allocator may take")
    told = "print(torch.cuda.get_per_process_memory_fraction(0), flush=True)"
    source = SCRIPT.replace("        optimizer.zero_grad()", f"        {told}\n        optimizer.zero_grad()")
    limit = 8 * GIB
    result = run(tmp_path, "measure", 512, 256, source=source, limit_bytes=limit)
    peaks = measured(result.outcomes[0], result).measurement.peaks
    assert peaks.non_torch is not None
    fractions = [float(line) for line in (result.directory / "stdout.log").read_text().split()]
    _, total = torch.cuda.mem_get_info(0)
    assert fractions[-1] <= fractions[0], "libraries are loaded in the first step"
    assert fractions[-1] * total <= limit
    assert limit - fractions[-1] * total == pytest.approx(peaks.non_torch, abs=GIB // 8)


@pytest.mark.alone
def test_what_the_allocator_frees_in_warm_up_bars_no_trial(tmp_path: Path) -> None:
    limit = 8 * GIB
    # In the third step it does not fit beside that of the second, which the allocator has kept: it flushes, and tries
    # again. What was kept before the first training call a trial gives back by itself.
    source = SCRIPT.replace("for epoch in range(200):", "steps = 0\nfor epoch in range(200):").replace(
        "        loss = model",
        "        steps += 1\n"
        "        if steps < 4:\n"
        f"            held = torch.empty({limit // 2} + steps * {limit // 10}, dtype=torch.uint8, device='cuda')\n"
        "            del held\n"
        "        loss = model",
    )
    result = run(tmp_path, "measure", 512, 256, source=source, limit_bytes=limit)
    measurement = measured(result.outcomes[0], result).measurement
    assert measurement.allocator_retries == 0
    assert any("in warm-up, which is not counted" in note for note in measurement.notes), measurement.notes


def test_memory_is_not_predicted_by_an_allocator_that_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync")
    result = run(tmp_path, "discover", 512, 1024)
    measured(result.outcomes[0], result)
    assert result.facts is not None, logs(result)
    calibration = result.facts.calibration
    assert calibration is not None
    assert calibration.error is None
    assert "cudaMallocAsync, which does not count the bytes" in calibration.reason


@pytest.mark.alone
def test_a_model_that_moves_itself_to_the_device_in_its_first_forward_has_the_devices_figures(tmp_path: Path) -> None:
    source = """
        import torch
        from torch import nn
        class Moves(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 1))
            def forward(self, x):
                self.layers.cuda()
                return self.layers(x.cuda())
        model = Moves()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(2000):
            model(torch.randn(64, 512)).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    """

    result = run(tmp_path, "measure", 0, 0, source=source, devices=())

    measurement = measured(result.outcomes[0], result).measurement
    assert measurement.peaks.reserved
    assert measurement.peaks.device is not None


@pytest.mark.alone
def test_what_is_held_before_the_first_step_and_let_go_of_is_in_no_peak(tmp_path: Path) -> None:
    held = f"held = torch.ones({4 * GIB}, dtype=torch.uint8, device='cuda')\ndel held\n"
    # Behind what stays: the allocator would put that into the memory which is held no more.
    result = run(tmp_path, "measure", 512, 256, source=SCRIPT.replace("data = ", held + "data = "))
    peaks = measured(result.outcomes[0], result).measurement.peaks
    assert peaks.device is not None
    assert peaks.reserved is not None
    assert max(peaks.device, peaks.reserved, peaks.fit_bytes) < 4 * GIB


@pytest.mark.alone
def test_what_another_process_holds_is_in_no_figure_and_takes_nothing_off_a_limit(tmp_path: Path) -> None:
    alone = measured((result := run(tmp_path / "alone", "measure", 1024, 4096)).outcomes[0], result).measurement.peaks
    assert alone.device is not None
    with held_by_another_process(3 * GIB):
        result = run(tmp_path / "beside", "measure", 1024, 4096)
        beside = measured(result.outcomes[0], result).measurement
        limited = run(tmp_path / "limited", "measure", 1024, 4096, limit_bytes=alone.fit_bytes + GIB // 2)
    assert beside.peaks.device == pytest.approx(alone.device, abs=GIB // 4)
    assert beside.peaks.fit_bytes == pytest.approx(alone.fit_bytes, abs=GIB // 4)
    # Threads may have waited for a processor on a busy machine; no memory has moved.
    assert beside.contended == (beside.waited_share > CONTENDED_SHARE)
    measured(limited.outcomes[0], limited)


_SPAWNS = """
    import sys, torch
    import torch.multiprocessing as mp
    from torch import nn
    def train(rank, width, batch):
        model = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, 1)).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(1000):
            model(torch.randn(batch, width, device="cuda")).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    if __name__ == "__main__":
        mp.spawn(train, args=(int(sys.argv[1]), int(sys.argv[2])), nprocs=1)
"""


@pytest.mark.alone
def test_a_process_made_by_spawn_that_runs_out_of_memory_is_out_of_memory_in_its_phase(tmp_path: Path) -> None:
    # What the first layer gives takes 4 GiB, what gelu makes of it as much.
    result = run(tmp_path, "measure", 1024, 2**18, source=_SPAWNS, limit_bytes=6 * GIB)
    (outcome,) = result.outcomes
    assert isinstance(outcome, OutOfMemory), f"{outcome}\n{logs(result)}"
    assert (outcome.phase, outcome.limit_bytes) == ("forward", 6 * GIB)
    result = run(tmp_path / "small", "measure", 1024, 256, source=_SPAWNS, limit_bytes=6 * GIB)
    assert measured(result.outcomes[0], result).measurement.peaks.device is not None


@pytest.mark.alone
def test_nvml_and_torch_agree_on_what_a_process_takes() -> None:
    devices = read_gpus().devices
    if not devices:
        pytest.skip("NVML lists no device")
    source = """
        import sys, torch
        torch.zeros(1, device="cuda")
        print(torch.cuda.memory_reserved(), flush=True)
        sys.stdin.readline()
        held = torch.zeros(1 << 30, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        print(torch.cuda.memory_reserved(), flush=True)
        sys.stdin.readline()
    """
    meter = NvmlMeter(devices[0].uuid)
    meter.start()
    command = [sys.executable, "-c", textwrap.dedent(source)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": devices[0].uuid}
    readings = []
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            for _ in range(2):
                reserved = int(process.stdout.readline())
                readings.append((reserved, meter.sample([process.pid])))
                process.stdin.write("\n")
                process.stdin.flush()
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()
            meter.close()
    (before, first), (after, second) = readings
    assert after - before >= GIB
    assert first is not None
    assert second is not None
    if meter.contended:
        pytest.skip("other processes moved on the device meanwhile")
    assert second >= after, "NVML's figure holds what torch reserved, and the context"
    assert second - first == pytest.approx(after - before, rel=0.1)
