"""Scripts that tests run on the device, and how."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.launch.port import RunResult
from autotune.launch.process import ProcessLauncher
from autotune.machine.meters.nvidia import read_gpus
from autotune.records.configuration import Configuration
from autotune.records.facts import Preload
from autotune.records.measuring import GpuMeasuring, Measuring
from autotune.records.outcome import Measured, Outcome
from autotune.records.run import Request, Verifying

SCRIPT = """
import sys, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
width, batch = int(sys.argv[1]), int(sys.argv[2])
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down, self.drop = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.Dropout(0.1)
    def forward(self, x):
        return x + self.drop(self.down(nn.functional.gelu(self.up(x))))
torch.manual_seed(0)
model = nn.Sequential(*(Block() for _ in range(4)), nn.Linear(width, 1)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
data = TensorDataset(torch.randn(batch * 8, width))
for epoch in range(200):
    for (x,) in DataLoader(data, batch_size=batch):
        loss = model(x.cuda()).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""

GIB = 2**30

# The GPU without kernels (tests/fakes/null_gpu) cannot show these.
IS_NULL = "NULL_GPU" in os.environ
needs_values = pytest.mark.skipif(IS_NULL, reason="the null GPU computes no values")
needs_speeds = pytest.mark.skipif(IS_NULL, reason="the null GPU has no speeds")

# Long enough for some looks at NVML, however short the steps are.
QUICK = Measuring(min_steps=5, max_steps=500, min_measure_s=0.2, max_measure_s=2.0, on_gpu=GpuMeasuring(0.0, 0.0, 0))


def run(
    tmp_path: Path,
    mode: str,
    width: int,
    batch: int,
    *configurations: Configuration,
    limit_bytes: int | None = None,
    verifying: Verifying | None = None,
    source: str = SCRIPT,
    devices: tuple[int, ...] = (0,),
    may_fork: bool = False,
    preload: tuple[str, ...] = (),
    measuring: Measuring = QUICK,
) -> RunResult:
    """Run a script, that above on the first device by default; the folders of the run are below ``tmp_path``."""
    gpus = read_gpus()
    assert gpus.devices, f"NVML lists no device: {gpus.problem}"
    tmp_path.mkdir(exist_ok=True)
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(source))
    launcher = ProcessLauncher(
        python=sys.executable,
        root=tmp_path / "runs",
        working_directory=tmp_path,
        start_timeout_s=180,
        trial_timeout_s=120,
    )
    request = Request(
        mode,  # type: ignore[arg-type]
        str(script),
        (str(width), str(batch)),
        configurations or (Configuration(),),
        measuring=measuring,
        memory_limit_bytes=limit_bytes,
        verifying=verifying or Verifying(),
        may_fork=may_fork,
        preload=Preload(preload),
    )
    return launcher.run(request, devices=devices, on_event=lambda _: None, cancel=threading.Event())


def logs(result: RunResult) -> str:
    return "\n".join(path.read_text(errors="replace")[-2000:] for path in result.directory.glob("std*.log"))


def measured(outcome: Outcome | None, result: RunResult) -> Measured:
    assert isinstance(outcome, Measured), f"{outcome}\n{logs(result)}"
    return outcome


@contextlib.contextmanager
def held_by_another_process(size: int) -> Iterator[None]:
    """Have a process that is no part of any run hold ``size`` bytes of the first device, as long as this lasts."""
    source = f"""
        import sys, torch
        held = torch.ones({size}, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        print("held", flush=True)
        sys.stdin.readline()
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(source)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": read_gpus().devices[0].uuid},
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield
        finally:
            process.kill()
