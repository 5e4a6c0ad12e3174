"""What only a GPU and its driver show of neighbours: who computes, who waits, and which card a number means."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest
import torch

from autotune.launch.process import ProcessLauncher
from autotune.machine.devices import Device
from autotune.machine.meters.nvidia import NvmlMeter, read_gpus
from autotune.records.configuration import Configuration
from autotune.records.measurement import Measurement
from autotune.records.measuring import Measuring
from autotune.records.outcome import Measured
from autotune.records.run import Request

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.alone,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

# Some readings of what processes use, which are several in a second.
_MEASURING = Measuring(min_steps=5, max_steps=10**6, min_measure_s=3.0, max_measure_s=5.0)

_SCRIPT = """
    import os, sys, torch
    from torch import nn
    width, batch, processor = map(int, sys.argv[1:])
    if processor >= 0:
        os.sched_setaffinity(0, {processor})
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(12))).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6, foreach=False)
    x = torch.randn(batch, width, device="cuda")
    while True:
        model(x).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
_MULTIPLIES = """
    import torch
    a = torch.randn(4096, 4096, device="cuda")
    b = torch.empty_like(a)
    torch.mm(a, a, out=b)
    torch.cuda.synchronize()
    print("ready", flush=True)
    while True:
        for _ in range(20):
            torch.mm(a, a, out=b)
        torch.cuda.synchronize()
"""
_HOLDS = """
    import sys, torch
    held = torch.zeros(4096, 4096, device="cuda")
    torch.cuda.synchronize()
    print("ready", flush=True)
    sys.stdin.readline()
"""
_SPINS = """
    import os, sys
    os.sched_setaffinity(0, {int(sys.argv[1])})
    print("ready", flush=True)
    while True:
        pass
"""


@pytest.fixture
def device() -> Device:
    """The first GPU."""
    devices = read_gpus().devices
    if not devices:
        pytest.skip("NVML lists no device")
    return devices[0]


@pytest.fixture
def sampled(device: Device) -> Device:
    """One whose driver samples what processes use."""
    pynvml.nvmlInit()
    try:
        pynvml.nvmlDeviceGetProcessUtilization(pynvml.nvmlDeviceGetHandleByUUID(device.uuid), 0)
    except pynvml.NVMLError as error:
        if error.value not in (pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_SUCCESS):
            pytest.skip(f"the driver does not tell what processes use: {error}")
    finally:
        pynvml.nvmlShutdown()
    return device


@contextlib.contextmanager
def beside(source: str, device: Device, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """As long as this lasts, a process runs that is no part of any run."""
    command = [sys.executable, "-c", textwrap.dedent(source), *map(str, arguments)]
    variables = {**os.environ, **device.variables}
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True, env=variables) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def measure(folder: Path, *, width: int = 1024, batch: int = 4096, processor: int = -1) -> Measurement:
    """The script as it is, on the first GPU; on one ``processor`` only where one is given."""
    folder.mkdir(exist_ok=True)
    script = folder / "train.py"
    script.write_text(textwrap.dedent(_SCRIPT))
    launcher = ProcessLauncher(
        python=sys.executable,
        root=folder / "runs",
        working_directory=folder,
        start_timeout_s=180,
        trial_timeout_s=120,
    )
    arguments = (str(width), str(batch), str(processor))
    request = Request("measure", str(script), arguments, (Configuration(),), measuring=_MEASURING)
    result = launcher.run(request, devices=(0,), on_event=lambda _: None, cancel=threading.Event())
    (outcome,) = result.outcomes
    logs = "\n".join(path.read_text(errors="replace")[-2000:] for path in result.directory.glob("std*.log"))
    assert isinstance(outcome, Measured), f"{outcome}\n{logs}"
    return outcome.measurement


def test_a_neighbour_that_computes_contends_a_trial_though_its_memory_stands_still(
    sampled: Device, tmp_path: Path
) -> None:
    with beside(_MULTIPLIES, sampled):
        found = measure(tmp_path)
    assert found.contended, found.notes
    assert any("other programs used the GPU for" in note for note in found.notes), found.notes
    assert found.waited_share > 0.05


def test_a_neighbour_that_only_holds_memory_contends_nothing(sampled: Device, tmp_path: Path) -> None:
    with beside(_HOLDS, sampled):
        found = measure(tmp_path)
    assert not any("other programs used the GPU for" in note for note in found.notes), found.notes


@pytest.mark.parametrize("neighbour", [_HOLDS, _MULTIPLIES], ids=["idle", "busy"])
def test_a_meter_tells_what_others_use_from_what_the_run_uses(sampled: Device, neighbour: str) -> None:
    meter = NvmlMeter(sampled.uuid, list_every=1)
    with beside(neighbour, sampled):
        meter.start()
        with beside(_MULTIPLIES, sampled) as run:
            used_s, began_s = 0.0, time.monotonic()
            while time.monotonic() - began_s < 4.0:
                meter.sample([run.pid])
                used_s += meter.neighbours.seconds
                time.sleep(0.1)
    meter.close()
    if neighbour == _HOLDS:
        assert used_s < 0.05 * 4.0
    else:
        # Two that never rest have about a half of the time each.
        assert used_s > 0.1 * 4.0


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor")
def test_threads_that_wait_for_a_processor_contend_a_trial(device: Device, tmp_path: Path) -> None:
    if not Path("/proc/self/schedstat").exists():
        pytest.skip("the kernel keeps no figures of waiting")
    processor = max(os.sched_getaffinity(0))
    with beside(_SPINS, device, processor), beside(_SPINS, device, processor):
        found = measure(tmp_path, width=64, batch=8, processor=processor)
    assert found.contended
    assert found.waited_share > 0.05


def test_autograds_threads_for_the_device_have_the_name_by_which_they_are_counted() -> None:
    torch.ones(1, device="cuda", requires_grad=True).sum().backward()
    names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    assert any(name.startswith("pt_autograd_") for name in names), names


def test_a_process_with_a_gpus_variables_trains_on_that_one() -> None:
    devices = read_gpus().devices
    if not devices:
        pytest.skip("NVML lists no device")
    source = "import torch; print(torch.cuda.device_count(), torch.cuda.get_device_properties(0).uuid)"
    for device in devices:
        variables = {**os.environ, **device.variables}
        done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, env=variables, check=True)
        count, uuid = done.stdout.split()
        assert count == "1"
        assert uuid in device.torch_uuids, device.variables
