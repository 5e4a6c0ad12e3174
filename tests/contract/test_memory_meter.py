"""What finds GPUs does, and what every MemoryMeter does, whatever it reads from."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import psutil
import pytest

from autotune.machine.meters.nvidia import NVIDIA, Nvidia, read_gpus
from autotune.machine.meters.port import MemoryMeter
from autotune.machine.meters.run_meter import ResidentMeter
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
    variables = {**os.environ, **read_gpus().devices[0].variables}
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


@dataclass
class Machine:
    """A computer with two GPUs that aren't there, or one ``without_driver``, or one that hangs.

    ``let_go`` ends the hanging.
    """

    vendor: Nvidia
    grow: Callable[[int], None]
    without_driver: Nvidia
    hanging: Nvidia
    let_go: Callable[[], None]


RUN, OTHER = 1000, 7


def _nvidia() -> Machine:
    card = Card("GPU-a0", processes={OTHER: 3 * 2**30})

    def grow(mib: int) -> None:
        card.processes[RUN] = (card.processes.get(RUN) or 0) + mib * 2**20

    nvml = FakeNvml(card, Card("GPU-b1"))
    hanging = FakeNvml(card)
    hanging.answers.clear()
    return Machine(
        Nvidia(nvml),
        grow,
        without_driver=Nvidia(FakeNvml(problem="Driver Not Loaded")),
        hanging=Nvidia(hanging, list_within_s=0.02, sample_within_s=0.02),
        let_go=hanging.answers.set,
    )


@pytest.fixture
def machine() -> Iterator[Machine]:
    machine = _nvidia()
    yield machine
    machine.let_go()


@pytest.fixture(
    params=[
        "fake",
        pytest.param("resident", marks=pytest.mark.process),
        "nvidia",
        pytest.param("gpu", marks=[pytest.mark.gpu, pytest.mark.alone]),
    ]
)
def subject(request: pytest.FixtureRequest) -> Subject:
    if request.param == "fake":
        return _fake()
    if request.param == "resident":
        process = request.getfixturevalue("holder")
        return Subject(ResidentMeter(), [process.pid], _asks(process))
    if request.param == "nvidia":
        machine = _nvidia()
        return Subject(machine.vendor.make_meter(machine.vendor.list_gpus({}).devices[0]), [RUN], machine.grow)
    if not GPUS:
        pytest.skip("no GPU here")
    process = request.getfixturevalue("gpu_holder")
    return Subject(NVIDIA.make_meter(read_gpus().devices[0]), [process.pid], _asks(process))


def test_gpus_are_numbered_from_zero_and_each_has_its_own_names(machine: Machine) -> None:
    first, second = machine.vendor.list_gpus({}).devices

    assert (first.index, second.index) == (0, 1)
    assert first.uuid != second.uuid
    assert first.torch_uuids
    assert not set(first.torch_uuids) & set(second.torch_uuids)


def test_a_process_with_a_gpus_variables_sees_that_one_only(machine: Machine) -> None:
    for device in machine.vendor.list_gpus({}).devices:
        assert device.variables
        assert machine.vendor.list_gpus(device.variables).devices == (replace(device, index=0),)


def test_what_is_free_is_less_than_all_by_what_others_hold(machine: Machine) -> None:
    first, second = machine.vendor.list_gpus({}).devices

    assert first.used_bytes == 3 * 2**30
    assert first.free_bytes is not None
    assert second.free_bytes is not None
    assert second.free_bytes - first.free_bytes == 3 * 2**30
    assert first.memory_bytes is not None
    assert first.memory_bytes > second.free_bytes


def test_without_a_driver_there_are_no_gpus_and_the_reason_is_told(machine: Machine) -> None:
    gpus = machine.without_driver.list_gpus({})

    assert gpus.devices == ()
    assert gpus.problem == "Driver Not Loaded"


def test_a_library_that_hangs_is_waited_for_no_longer_than_it_has_time(machine: Machine) -> None:
    gpus = machine.hanging.list_gpus({})
    meter = machine.hanging.make_meter(machine.vendor.list_gpus({}).devices[0])
    meter.start()

    assert gpus.devices == ()
    assert "did not answer within" in gpus.problem
    assert meter.sample([RUN]) is None
    assert "did not answer within" in meter.problem
    meter.close()


def test_looking_for_the_gpus_of_this_machine_never_raises() -> None:
    gpus = read_gpus()

    assert bool(gpus.devices) or gpus.driver is not None or gpus.problem


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


def test_a_good_sample_has_no_problem(subject: Subject) -> None:
    subject.meter.start()
    subject.grow(64)
    subject.meter.sample(subject.pids)

    assert subject.meter.problem == ""
    subject.meter.close()


def test_processes_that_are_gone_do_not_disturb(subject: Subject) -> None:
    gone = next(pid for pid in range(300_000, 400_000) if not psutil.pid_exists(pid))
    subject.meter.start()
    subject.grow(8)

    assert subject.meter.sample([*subject.pids, gone]) == pytest.approx(subject.meter.sample(subject.pids), rel=0.1)
    subject.meter.close()
