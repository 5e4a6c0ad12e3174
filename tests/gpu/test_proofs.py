"""Runs on a GPU that attention and Inductor are in: their plans are simulated, measured and proven."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from autotune.launch.port import RunResult
from autotune.records.configuration import Configuration
from autotune.records.plan import parse_plans
from autotune.records.proof import difference_of
from autotune.records.run import Verifying
from autotune.tuning.proving import prove
from tests.gpu.running import SCRIPT, logs, measured, run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
    # Inductor's own modules, as they are imported (torch 2.11).
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning"),
]


def test_plans_are_proven_with_dropout_on_the_device(tmp_path: Path) -> None:
    def start(name: str, configuration: Configuration, verifying: Verifying) -> RunResult:
        del name
        return run(tmp_path, "verify", 512, 256, configuration, verifying=verifying)

    proof = prove(
        Configuration("aot", parse_plans(("Block+:1:-1", "gelu+:1:-1"))), start, script_batch_size=None, max_error=0.05
    )
    assert proof is not None
    assert (proof.answer, proof.equal_to_script, proof.random_equal) == ("exact", True, True), proof.statement
    # The CPU's generator, the device's, Python's, and NumPy's where there is one.
    assert difference_of(proof.to_script, "random").compared >= 3 * 3


def test_plans_on_generated_code_are_proven_in_bfloat16_on_the_device(tmp_path: Path) -> None:
    """With casts kept they may differ by the order of sums only; as exported they round as they are fused."""
    forward = "loss = model(x.cuda()).pow(2).mean()"
    assert forward in SCRIPT
    under_autocast = f"with torch.autocast('cuda', torch.bfloat16):\n            {forward}"

    def start(name: str, configuration: Configuration, verifying: Verifying) -> RunResult:
        source = SCRIPT.replace(forward, under_autocast)
        return run(tmp_path, "verify", 512, 256, configuration, verifying=verifying, source=source)

    proof = prove(
        Configuration("inductor", parse_plans(("Block+:1:-1",))), start, script_batch_size=None, max_error=0.05
    )
    assert proof is not None
    assert (proof.is_compiled, proof.holds) == (True, True), proof.statement
    assert difference_of(proof.to_engine, "gradients").compared
    assert difference_of(proof.exported, "gradients").compared, "what is exported was looked at too"


_ATTENTION = """
    import sys, torch
    import torch.nn.functional as F
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset
    width, batch, length, heads = int(sys.argv[1]), int(sys.argv[2]), 256, 4
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down, self.drop = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.Dropout(0.1)
        def forward(self, x):
            q, k, v = self.qkv(self.norm(x)).view(-1, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1, is_causal=True)
            x = x + self.drop(self.out(y.transpose(1, 2).reshape(-1, length, width)))
            return x + self.drop(self.down(F.gelu(self.up(x))))
    torch.manual_seed(0)
    model = nn.Sequential(*(Block() for _ in range(4)), nn.Linear(width, 1)).to("cuda", torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters())
    data = TensorDataset(torch.randn(batch * 8, length, width, dtype=torch.bfloat16))
    for epoch in range(100):
        for (x,) in DataLoader(data, batch_size=batch):
            loss = model(x.cuda()).float().pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""


_ATTENTION_PLANS = ("Block+:1:-1", "scaled_dot_product_attention+:1:-1")


def test_attention_is_simulated_and_recomputed_in_whichever_kernel_torch_takes(tmp_path: Path) -> None:
    result = run(tmp_path / "discover", "discover", 256, 32, source=_ATTENTION)
    measured(result.outcomes[0], result)
    assert result.facts is not None, logs(result)
    assert {"Block+", "scaled_dot_product_attention+"} <= {row.cluster_id for row in result.facts.clusters}
    calibration = result.facts.calibration
    assert calibration is not None
    assert calibration.reason == ""
    assert calibration.error is not None
    assert calibration.error < 0.05
    configurations = [
        Configuration("aot", parse_plans(chosen)) for chosen in ((_ATTENTION_PLANS[0],), (_ATTENTION_PLANS[1],), ())
    ]
    result = run(tmp_path / "measure", "measure", 256, 32, *configurations, source=_ATTENTION)
    found = [measured(outcome, result).measurement for outcome in result.outcomes]
    allocated = [measurement.peaks.allocated or 0 for measurement in found]
    assert allocated[0] < allocated[1] < allocated[2]


# cuDNN drops out multiples of a sixteenth only (torch 2.14), and is torch's choice there on recent GPUs.
@pytest.mark.parametrize("dropout", [0.1, 0.125])
def test_attention_with_dropout_is_proven(tmp_path: Path, dropout: float) -> None:
    source = _ATTENTION.replace("dropout_p=0.1", f"dropout_p={dropout}")

    def start(name: str, configuration: Configuration, verifying: Verifying) -> RunResult:
        del name
        return run(tmp_path, "verify", 256, 8, configuration, verifying=verifying, source=source)

    proof = prove(Configuration("aot", parse_plans(_ATTENTION_PLANS)), start, script_batch_size=None, max_error=0.05)
    assert proof is not None
    assert (proof.answer, proof.equal_to_script, proof.random_equal) == ("exact", True, True), proof.statement


def test_inductor_compiles_plans_that_lower_the_peak(tmp_path: Path) -> None:
    allocated = []
    for number, plans in enumerate((_ATTENTION_PLANS[:1], ())):
        configuration = Configuration("inductor", parse_plans(plans))
        result = run(tmp_path / str(number), "measure", 256, 32, configuration, source=_ATTENTION)
        allocated.append(measured(result.outcomes[0], result).measurement.peaks.allocated or 0)
    assert allocated[0] < allocated[1]


def test_plans_under_inductor_draw_the_masks_that_it_draws_without(tmp_path: Path) -> None:
    def start(name: str, configuration: Configuration, verifying: Verifying) -> RunResult:
        del name
        return run(tmp_path, "verify", 256, 8, configuration, verifying=verifying, source=_ATTENTION)

    proof = prove(
        Configuration("inductor", parse_plans(_ATTENTION_PLANS[:1])), start, script_batch_size=None, max_error=0.05
    )
    assert proof is not None
    assert proof.answer in ("exact", "close"), proof.statement
