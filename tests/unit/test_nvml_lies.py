"""NVML that lies or fails, in ways that are met in the field: what the user is shown of a trial all the same.

Each way is a fake NVML below a whole run: the vendor's meter, the watch over a process, its measurement, and the row of
``autotune show``. What the process holds is always the same: the figure is measured another way, or it is flagged.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from autotune.machine.meters.nvidia import Nvidia, meter_for
from autotune.machine.meters.run_meter import RunMeter, Sample
from autotune.records.configuration import Configuration
from autotune.records.measurement import Measurement
from autotune.records.outcome import Measured
from autotune.records.study import Trial
from autotune.report.build import build_report
from autotune.report.tables import trial_table
from tests.fakes.nvml import NOT_AVAILABLE, Card, FakeNvml
from tests.fakes.study_record import study_record
from tests.fakes.worker_side import run_script

pytestmark = pytest.mark.process

GIB = 2**30
RESERVED, CONTEXT, OTHERS = 6 * GIB, GIB, 3 * GIB
NEIGHBOUR, HOST_PID = 7, 4_000_001
# A sample takes up to three looks.
FEW = 4

# The process knows what torch has reserved; what it holds besides it can tell where NVML said what was free before.
WORKER = f"""
run.device = "aa"
outside = {CONTEXT} if run.request.free_bytes else None
with open("pid.new", "w") as file:
    file.write(str(os.getpid()))
os.rename("pid.new", "pid")
run.progress("forward", measuring_since_s=1.0)
while not os.path.exists("read"):
    time.sleep(0.01)
run.result(0, measured(peaks=Peaks(reserved={RESERVED}, non_torch=outside)))
"""


@dataclass
class Machine:
    """A GPU that another program holds a part of, and NVML."""

    nvml: FakeNvml
    card: Card


@dataclass(frozen=True)
class Lie:
    """What NVML does, and what must come of it.

    ``before`` is how it is before the run. ``trains`` is called with the pid and the number of the look, before each
    look at the card from then on that the process trains. NVML has ``within_s`` for a sample.
    """

    before: Callable[[Machine], object]
    trains: Callable[[Machine, int, int], object]
    peak: int
    device: int | None
    flag: str
    contended: bool = False
    within_s: float = 60.0


def nothing(*_: object) -> None:
    """As a card that hides nothing."""


def comes(machine: Machine, pid: int, look: int) -> None:
    """The process takes its memory."""
    machine.card.processes[pid] = RESERVED + CONTEXT


def stands_still(machine: Machine, pid: int, look: int) -> None:
    comes(machine, pid, look)
    machine.card.used = OTHERS


def is_not_available(machine: Machine, pid: int, look: int) -> None:
    comes(machine, pid, look)
    machine.card.used = NOT_AVAILABLE


def has_no_figures_per_process(machine: Machine) -> None:
    machine.card.processes, machine.card.used = {NEIGHBOUR: None}, OTHERS


def comes_without_a_figure_and_the_neighbour_goes(machine: Machine, pid: int, look: int) -> None:
    machine.card.processes = {pid: None}
    machine.card.used = OTHERS + RESERVED + CONTEXT


def lists_nobody(machine: Machine) -> None:
    machine.card.processes, machine.card.overhead = {}, OTHERS


def takes_unlisted(machine: Machine, pid: int, look: int) -> None:
    machine.card.overhead = OTHERS + RESERVED + CONTEXT


def comes_under_another_pid(machine: Machine, pid: int, look: int) -> None:
    comes(machine, HOST_PID, look)


def is_lost_after_a_few_looks(machine: Machine, pid: int, look: int) -> None:
    comes(machine, pid, look)
    machine.card.answers = look < FEW


def fails_to_start(machine: Machine) -> None:
    machine.nvml.problem = "Driver/library version mismatch"


def hangs_after_a_few_looks(machine: Machine, pid: int, look: int) -> None:
    comes(machine, pid, look)
    if look == FEW:
        machine.nvml.answers.clear()


def a_neighbour_comes_and_goes(machine: Machine, pid: int, look: int) -> None:
    comes(machine, pid, look)
    machine.card.processes[HOST_PID] = 20 * GIB if FEW <= look < 2 * FEW else 0


def a_neighbour_computes(machine: Machine, pid: int, look: int) -> None:
    comes(machine, pid, look)
    machine.card.work({pid: 50, NEIGHBOUR: 50}, until_s=look)


WHOLE = RESERVED + CONTEXT
LIES = {
    # Layers that share a GPU out count what their own containers hold, some of it: Project-HAMi/HAMi#409.
    "its figure stands still": Lie(
        nothing, stands_still, WHOLE, None, "CUDA's figure.*the meter saw less on the GPU than torch reserved"
    ),
    # Or their counters wrap around: Project-HAMi/HAMi#1181.
    "it says that more is used than there is": Lie(
        nothing, is_not_available, WHOLE, WHOLE, f"lists for the run's processes.*{NOT_AVAILABLE} of"
    ),
    # NVIDIA GB10 and Jetson have no memory of their own: kubernetes-sigs/dra-driver-nvidia-gpu#1073.
    "it has no figure of the memory": Lie(
        lambda machine: setattr(machine.card, "has_memory", False),
        comes,
        WHOLE,
        WHOLE,
        "lists for the run's processes.*Not Supported",
    ),
    # WSL 2: Syllo/nvtop#432. Who has gone is seen, what it held is not.
    "its processes have no figures": Lie(
        has_no_figures_per_process,
        comes_without_a_figure_and_the_neighbour_goes,
        WHOLE,
        WHOLE,
        "contended",
        contended=True,
    ),
    # Containers: NVIDIA/nvidia-docker#179.
    "it lists no process": Lie(
        lists_nobody, takes_unlisted, WHOLE, WHOLE, "NVML does not list the run.*would be in the peak"
    ),
    # Containers with a pid namespace of their own: NVIDIA/nvidia-docker#1483. Nothing is wrong with the figure.
    "it lists the pids of the host": Lie(nothing, comes_under_another_pid, WHOLE, WHOLE, ""),
    # A card that falls off the bus: LSSI-ETH/plmfit#40.
    "the GPU is lost half-way": Lie(
        nothing, is_lost_after_a_few_looks, WHOLE, WHOLE, "the peak may be higher.*no figure .NVML: GPU is lost"
    ),
    # A driver that was updated under a running system: NVIDIA/nvidia-container-toolkit#394.
    "the driver is not its library's": Lie(
        fails_to_start, nothing, RESERVED, None, "not known, and not in the peak.*version mismatch.*autotune doctor"
    ),
    # A driver that waits for the card: NVIDIA/open-gpu-kernel-modules#971, leptonai/gpud#117.
    "it hangs half-way": Lie(
        nothing,
        hangs_after_a_few_looks,
        WHOLE,
        WHOLE,
        "the peak may be higher.*NVML did not answer within 0.2 s",
        within_s=0.2,
    ),
    "a neighbour comes and goes": Lie(nothing, a_neighbour_comes_and_goes, WHOLE, WHOLE, "contended", contended=True),
    "its memory says nothing of a neighbour that computes": Lie(
        nothing,
        a_neighbour_computes,
        WHOLE,
        WHOLE,
        "other programs used the GPU for 100 % of the measured time, contended",
        contended=True,
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_measured_another_way_or_flagged(lie: str, tmp_path: Path) -> None:
    expected = LIES[lie]
    card = Card("GPU-aa", processes={NEIGHBOUR: OTHERS})
    machine = Machine(FakeNvml(card), card)
    expected.before(machine)
    looks = count()

    def look() -> None:
        if (tmp_path / "pid").exists():
            expected.trains(machine, int((tmp_path / "pid").read_text()), next(looks))

    machine.nvml.before_read = look
    vendor = Nvidia(machine.nvml, sample_within_s=expected.within_s)
    try:
        result = run_script(
            tmp_path,
            WORKER,
            meter_factory=lambda devices: followed(meter_for(devices, vendor=vendor), tmp_path / "read"),
        )
    finally:
        machine.nvml.answers.set()

    (outcome,) = result.outcomes
    assert isinstance(outcome, Measured), outcome
    measurement = outcome.measurement
    assert (measurement.peaks.fit_bytes, measurement.peaks.device) == (expected.peak, expected.device)
    assert measurement.contended == expected.contended
    peak, words = shown(measurement)
    assert peak == f"{expected.peak // GIB} GiB"
    assert re.fullmatch(f"fits, on the front, .*{expected.flag}.*" if expected.flag else "fits, on the front", words)


def followed(meter: RunMeter, told: Path) -> RunMeter:
    """The meter, which tells the process once it has sampled it for a while."""
    samples, sample_it = count(), meter.sample

    def sample(*arguments: Any, **options: Any) -> Sample | None:
        sample = sample_it(*arguments, **options)
        if sample is not None and sample.kind == "device" and next(samples) == 3 * FEW:
            told.touch()
        return sample

    meter.sample = sample  # type: ignore[method-assign]
    return meter


def shown(measurement: Measurement) -> tuple[str, str]:
    """The trial's peak and result in the table of ``autotune show``."""
    trial = Trial(0, Configuration(), "finished", Measured(measurement))
    (row,) = trial_table(build_report(study_record(trials=(trial,), repeats=(), verdict=None))).rows
    return row[4], row[5]
