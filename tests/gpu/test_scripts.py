"""What scripts on GPUs do: kernels of cuDNN, scaled losses, CUDA graphs, NCCL; and the peak of a trial switched to."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from autotune.launch.port import RunResult
from autotune.records.configuration import Configuration
from autotune.records.measurement import Measurement
from autotune.records.outcome import OutOfMemory
from autotune.records.plan import parse_plans
from autotune.records.run import Verifying
from autotune.tuning.proving import prove
from tests.gpu.running import SCRIPT, logs, measured, needs_values, run

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

PLAIN, ALL = Configuration("aot"), Configuration("aot", parse_plans(("Block+:1:-1",)))
FORWARD = "return x + self.drop(self.down(nn.functional.gelu(self.up(x))))"
STEP = """        loss = model(x.cuda()).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
SCALED = """        with torch.autocast("cuda", torch.float16):
            loss = model(x.cuda()).pow(2).mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""


def both(tmp_path: Path, source: str, *, width: int = 512, batch: int = 4096) -> tuple[Measurement, Measurement]:
    """All blocks recomputed, and none, one after the other in one run."""
    result = run(tmp_path, "measure", width, batch, ALL, PLAIN, source=source)
    first, second = (measured(outcome, result).measurement for outcome in result.outcomes)
    return first, second


def saves(measurements: tuple[Measurement, Measurement]) -> bool:
    """Whether recomputing took effect: less is kept, and the peak is lower."""
    recomputed, plain = measurements
    assert recomputed.saved_bytes is not None
    assert plain.saved_bytes is not None
    return recomputed.saved_bytes < plain.saved_bytes and (recomputed.peaks.allocated or 0) < (
        plain.peaks.allocated or 0
    )


def proves(tmp_path: Path, source: str, configuration: Configuration = ALL) -> str:
    """What the proof of a configuration comes to."""

    def start(name: str, chosen: Configuration, verifying: Verifying) -> RunResult:
        del name
        return run(tmp_path, "verify", 512, 256, chosen, verifying=verifying, source=source)

    proof = prove(configuration, start, script_batch_size=None, max_error=0.05)
    assert proof is not None
    return proof.answer


def test_attention_by_cudnn_is_recomputed(tmp_path: Path) -> None:
    q = torch.randn(2, 4, 256, 64, device="cuda", dtype=torch.bfloat16)
    try:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            F.scaled_dot_product_attention(q, q, q, is_causal=True)
    except RuntimeError as error:
        pytest.skip(f"cuDNN has no attention here: {error}")
    # Eight neighbours of a batch attend to each other, in four heads.
    attention = """h = x.view(-1, 8, 4, width // 4).transpose(1, 2)
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
            h = nn.functional.scaled_dot_product_attention(h, h, h, is_causal=True)
        x = x + h.transpose(1, 2).reshape(x.shape)
        """
    assert FORWARD in SCRIPT
    source = SCRIPT.replace(FORWARD, attention + FORWARD).replace(").cuda()", ').to("cuda", torch.bfloat16)')
    source = source.replace("x.cuda()", "x.cuda().bfloat16()").replace(
        "import sys, torch", "import sys, torch.nn.attention"
    )
    assert saves(both(tmp_path, source))


@needs_values  # a loss scaler takes every gradient for infinite
def test_a_scaled_loss_in_float16_is_measured_and_proven(tmp_path: Path) -> None:
    assert STEP in SCRIPT
    source = SCRIPT.replace(STEP, SCALED).replace("data = ", 'scaler = torch.amp.GradScaler("cuda")\ndata = ')
    assert saves(both(tmp_path / "measured", source))
    assert proves(tmp_path / "proven", source) == "exact"


def test_cudnn_that_looks_for_its_fastest_kernels_neither_retries_nor_hides_plans(tmp_path: Path) -> None:
    layers = "nn.Linear(width, 4 * width), nn.Linear(4 * width, width)"
    assert layers in SCRIPT
    source = SCRIPT.replace(layers, "nn.Conv1d(1, 8, 9, padding=4), nn.Conv1d(8, 1, 9, padding=4)").replace(
        FORWARD, "return x + self.drop(self.down(nn.functional.gelu(self.up(x[:, None]))))[:, 0]"
    )
    measurements = both(tmp_path, source.replace("torch.manual_seed(0)", "torch.backends.cudnn.benchmark = True"))
    assert saves(measurements)
    assert [one.allocator_retries for one in measurements] == [0, 0]


@needs_values  # DistributedDataParallel compares shapes that went through the device
def test_one_rank_of_nccl_is_measured_and_proven(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    begin = f"""import torch.distributed as dist
dist.init_process_group("nccl", init_method="tcp://127.0.0.1:{port}", rank=0, world_size=1)
"""
    source = SCRIPT.replace("torch.manual_seed(0)", f"{begin}torch.manual_seed(0)").replace(
        "optimizer = ", "model = nn.parallel.DistributedDataParallel(model, device_ids=[0])\noptimizer = "
    )
    assert saves(both(tmp_path / "measured", source))
    assert proves(tmp_path / "proven", source) == "exact"


def test_a_script_that_compiles_into_cuda_graphs_gets_plans(tmp_path: Path) -> None:
    source = SCRIPT.replace("optimizer = ", 'model = torch.compile(model, mode="reduce-overhead")\noptimizer = ')
    configuration = Configuration("inductor", parse_plans(("Block+:1:-1",)))
    result = run(tmp_path, "measure", 512, 4096, configuration, source=source)
    recomputed = measured(result.outcomes[0], result).measurement
    result = run(tmp_path / "plain", "measure", 512, 4096, Configuration("inductor"), source=source)
    assert saves((recomputed, measured(result.outcomes[0], result).measurement))


@pytest.mark.alone
def test_the_peak_of_a_trial_that_was_switched_to_is_that_of_a_fresh_process(tmp_path: Path) -> None:
    _, switched = both(tmp_path / "switched", SCRIPT)
    result = run(tmp_path / "fresh", "measure", 512, 4096, PLAIN)
    fresh = measured(result.outcomes[0], result).measurement
    assert switched.saved_bytes == fresh.saved_bytes
    assert switched.peaks.allocated == pytest.approx(fresh.peaks.allocated, rel=0.01)
    # Segments are cut by what came before: more scatter.
    assert switched.peaks.reserved == pytest.approx(fresh.peaks.reserved, rel=0.1)


@pytest.mark.alone
def test_a_script_that_fills_most_of_the_card_is_measured_and_its_plans_are_found(tmp_path: Path) -> None:
    """Describing takes more than training does; what it runs out of must not cost what was measured before."""
    held = "held = torch.empty(int(0.88 * torch.cuda.mem_get_info()[1]), dtype=torch.uint8, device='cuda')\n"
    result = run(tmp_path, "discover", 1024, 16384, source=SCRIPT.replace("data = ", f"{held}data = "))
    measured(result.outcomes[0], result)
    assert result.facts is not None, logs(result)
    assert result.facts.undescribed is None or isinstance(result.facts.undescribed, OutOfMemory)
    assert {"Block+", "gelu+"} <= {row.cluster_id for row in result.facts.clusters}
