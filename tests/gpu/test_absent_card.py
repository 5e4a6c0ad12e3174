"""A script followed by sizes alone needs what torch's own allocator then counts on the device."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
import torch

from autotune.launch.process import ProcessLauncher
from autotune.launch.requests import trace_request
from autotune.predict.device_peak import DevicePeak, peak_of
from autotune.records.cards import Card
from autotune.records.study import StudySpec

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

LOOP = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
{model}
model = Model().cuda()
optimizer = torch.optim.{optimizer}(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda", enabled={scaled})
data = TensorDataset(torch.randn(64, {shape}), torch.randint(0, 10, (64,)))
for step, (x, y) in enumerate(DataLoader(data, 16, shuffle=True, pin_memory=True, num_workers=0)):
    x, y = x.cuda(non_blocking=True), y.to("cuda")
    optimizer.zero_grad()
    with torch.autocast("cuda", torch.{dtype}, enabled={autocast}):
        loss = F.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    print(f"{{step}} {{loss.item():.3f}}")
    if step == 1:
        break
"""
LAYERS = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        blocks = ((nn.Linear(2048, 2048), nn.LayerNorm(2048), nn.GELU()) for _ in range(6))
        self.layers = nn.Sequential(*(module for block in blocks for module in block))
        self.head = nn.Linear(2048, 10)
    def forward(self, x):
        return self.head(F.dropout(self.layers(x), 0.1))
"""
ATTENTION = """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(512), nn.Linear(512, 1536), nn.Linear(512, 512)
    def forward(self, x):
        q, k, v = (t.unflatten(-1, (8, 64)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, {how})
        return x + self.out(y.transpose(1, 2).flatten(-2))
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Linear(512, 10)
    def forward(self, x):
        for block in self.blocks:
            x = {call}
        return self.head(x.mean(1))
"""
PLAIN = ATTENTION.format(how="is_causal=True", call="block(x)")
MASKED = ATTENTION.format(
    how='attn_mask=torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device="cuda").tril()', call="block(x)"
)
CHECKPOINTED = ATTENTION.format(how="", call="torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)")
SEQUENCE = "1024, 512"


def source(model: str, shape: str, *, optimizer: str = "AdamW", autocast: str = "", scaled: bool = False) -> str:
    filled = {"dtype": autocast or "bfloat16", "autocast": bool(autocast), "scaled": scaled}
    return LOOP.format(model=model, shape=shape, optimizer=optimizer, **filled)


def counted(script: Path) -> DevicePeak:
    """Run the script on the device, and return what torch's allocator has counted."""
    told = "\nprint('PEAKS', torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())\n"
    # Tests of this folder set the size of cuBLAS' workspace.
    usual = {name: value for name, value in os.environ.items() if name != "CUBLAS_WORKSPACE_CONFIG"}
    command = [sys.executable, "-c", script.read_text() + told]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=usual)
    assert run.returncode == 0, run.stderr[-2000:]
    (line,) = (line for line in run.stdout.splitlines() if line.startswith("PEAKS"))
    _, allocated, reserved = line.split()
    return DevicePeak(int(allocated), int(reserved))


def followed(script: Path, folder: Path) -> DevicePeak:
    """Follow it by sizes alone."""
    properties = torch.cuda.get_device_properties(0)
    capability = (properties.major, properties.minor)
    card = Card("this", properties.name, properties.total_memory, capability, properties.multi_processor_count)
    spec = StudySpec(str(script))
    launcher = ProcessLauncher(
        python=sys.executable, root=folder, working_directory=script.parent, start_timeout_s=180, trial_timeout_s=120
    )
    result = launcher.run(trace_request(spec, card), device=None, on_event=lambda _: None, cancel=threading.Event())
    assert result.traced is not None, f"{result.outcomes} {result.failure}"
    return peak_of(result.traced.trace, card)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(source(LAYERS, "2048"), id="layers"),
        pytest.param(source(LAYERS, "2048", optimizer="SGD", autocast="float16", scaled=True), id="layers in halves"),
        pytest.param(source(PLAIN, SEQUENCE), id="attention"),
        pytest.param(source(PLAIN, SEQUENCE, autocast="bfloat16"), id="attention in halves"),
        pytest.param(source(MASKED, SEQUENCE, autocast="bfloat16"), id="attention with a mask"),
        pytest.param(source(CHECKPOINTED, SEQUENCE, autocast="bfloat16"), id="checkpointed attention"),
    ],
)
def test_a_script_followed_by_sizes_needs_what_the_allocator_counts(text: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(text))
    truth, peak = counted(script), followed(script, tmp_path / "runs")
    assert peak.allocated == pytest.approx(truth.allocated, rel=0.01)
    # A tensor more or less at one moment may cost a segment: 6 % of these small models, on an A100.
    assert peak.reserved == pytest.approx(truth.reserved, rel=0.07)
