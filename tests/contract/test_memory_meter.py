"""What every MemoryMeter does, whatever it reads from."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import psutil
import pytest

from autotune.launch import MemoryMeter, NvmlMeter, ResidentMeter, read_gpus
from tests.fakes.memory_meter import FakeMeter
from tests.fakes.nvml import Card, FakeNvml

GPUS = len(read_gpus().devices)

_HOLDER = """
import sys
held = []
for line in sys.stdin:
    held.append(bytearray(b"x") * (int(line) * 2**20))
    print(len(held), flush=True)
"""

_GPU_HOLDER = """
import sys, torch
held = []
for line in sys.stdin:
    held.append(torch.ones(int(line) * 2**20, dtype=torch.uint8, device="cuda"))
    torch.cuda.synchronize()
    print(len(held), flush=True)
"""


@dataclass
class Subject:
    """A meter with something to measure: ``grow(mib)`` makes the run hold so much more."""

    meter: MemoryMeter
    pids: list[int]
    grow: Callable[[int], None]


@pytest.fixture
def holder() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", _HOLDER], stdin=-1, stdout=-1, text=True) as process:
        yield process
        process.kill()


@pytest.fixture
def gpu_holder() -> Iterator[subprocess.Popen[str]]:
    variables = {**os.environ, "CUDA_VISIBLE_DEVICES": read_gpus().devices[0].uuid}
    command = [sys.executable, "-c", _GPU_HOLDER]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True, env=variables) as process:
        yield process
        process.kill()


def _asks(process: subprocess.Popen[str]) -> Callable[[int], None]:
    def grow(mib: int) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{mib}\n")
        process.stdin.flush()
        assert process.stdout.readline()

    return grow


def _fake() -> Subject:
    held = [0]

    def grow(mib: int) -> None:
        held[0] += mib * 2**20

    return Subject(FakeMeter(lambda pids: held[0] if os.getpid() in pids else None), [os.getpid()], grow)


def _nvml() -> Subject:
    card = Card("GPU-1", processes={7: 3 * 2**30})

    def grow(mib: int) -> None:
        card.processes[1000] = (card.processes.get(1000) or 0) + mib * 2**20

    return Subject(NvmlMeter("GPU-1", nvml=FakeNvml(card), list_every=1), [1000], grow)


@pytest.fixture(params=["fake", "resident", "nvml", pytest.param("gpu", marks=pytest.mark.gpu)])
def subject(request: pytest.FixtureRequest) -> Subject:
    if request.param == "fake":
        return _fake()
    if request.param == "nvml":
        return _nvml()
    if request.param == "resident":
        process = request.getfixturevalue("holder")
        return Subject(ResidentMeter(), [process.pid], _asks(process))
    if not GPUS:
        pytest.skip("no GPU here")
    process = request.getfixturevalue("gpu_holder")
    return Subject(NvmlMeter(read_gpus().devices[0].uuid), [process.pid], _asks(process))


def test_a_sample_follows_what_the_run_holds(subject: Subject) -> None:
    subject.meter.start()
    subject.grow(8)
    before = subject.meter.sample(subject.pids)
    subject.grow(64)
    after = subject.meter.sample(subject.pids)
    subject.meter.close()

    assert before is not None
    assert after is not None
    assert after - before == pytest.approx(64 * 2**20, rel=0.1)


def test_a_run_alone_is_not_contended(subject: Subject) -> None:
    subject.meter.start()
    subject.grow(64)
    subject.meter.sample(subject.pids)

    assert subject.meter.contended is False
    subject.meter.close()


def test_processes_that_are_gone_do_not_disturb(subject: Subject) -> None:
    gone = next(pid for pid in range(300_000, 400_000) if not psutil.pid_exists(pid))
    subject.meter.start()
    subject.grow(8)

    assert subject.meter.sample([*subject.pids, gone]) == pytest.approx(subject.meter.sample(subject.pids), rel=0.1)
    subject.meter.close()
