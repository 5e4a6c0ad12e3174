"""What NVML tells of a GPU's clock and power, and what of it stands beside a measurement."""

from __future__ import annotations

import pytest

from autotune.launch.supervise import MeasuredWindow
from autotune.machine.meters.nvidia import NvmlConditions, NvmlMeter
from autotune.machine.meters.run_meter import RunMeter, Sample
from autotune.records.codec import from_json, to_json
from autotune.records.environment import DeviceConditions, DeviceReading, conditions_of, conditions_words
from autotune.records.measurement import Measurement
from autotune.records.progress import Progress
from tests.fakes.memory_meter import FakeMeter, fake_gpu
from tests.fakes.nvml import Card, FakeNvml
from tests.fakes.worker_side import measured

POWER_CAP, HARDWARE, THERMAL, BRAKE = 0x4, 0x8, 0x20, 0x80


def test_clock_power_and_what_holds_them_down_are_read_a_few_times_a_second() -> None:
    now_s = [0.0]
    card = Card("GPU-1", clock_mhz=1410, power_mw=699_500, clock_limits=POWER_CAP | BRAKE)
    conditions = NvmlConditions(FakeNvml(card), clock=lambda: now_s[0])

    assert conditions.read(card) == DeviceReading(1410, 699.5, ("power_cap", "power_brake"))
    now_s[0] = 0.1
    assert conditions.read(card) is None
    now_s[0] = 0.2
    assert conditions.read(card) is not None


@pytest.mark.parametrize(
    ("missing", "left"),
    [
        ({"power_mw": None}, DeviceReading(1755, None, ())),
        ({"clock_limits": None, "clock_mhz": None}, DeviceReading(None, 350.0, None)),
        ({"power_mw": None, "clock_limits": None, "clock_mhz": None}, None),
        ({"answers": False}, None),
    ],
)
def test_what_a_gpu_does_not_tell_is_left_open(missing: dict[str, int], left: DeviceReading | None) -> None:
    card = Card("GPU-1", **missing)
    assert NvmlConditions(FakeNvml(card)).read(card) == left


def test_an_older_driver_is_asked_by_the_name_that_it_knows() -> None:
    card = Card("GPU-1", clock_limits=THERMAL)
    nvml = FakeNvml(card)
    nvml.names_event_reasons = False
    reading = NvmlConditions(nvml).read(card)
    assert reading is not None
    assert reading.limits == ("software_thermal",)


def test_a_slice_has_the_clock_of_its_card() -> None:
    slice_ = Card("MIG-1", clock_mhz=None)
    card = Card("GPU-1", clock_mhz=1980, slices=[slice_])
    reading = NvmlConditions(FakeNvml(card)).read(slice_)
    assert reading is not None
    assert reading.sm_clock_mhz == 1980


def test_the_meter_has_a_reading_where_it_has_no_figure_of_the_memory() -> None:
    card = Card("GPU-1", has_memory=False)
    meter = NvmlMeter("GPU-1", nvml=FakeNvml(card))
    meter.start()
    assert meter.sample([1]) is None
    assert meter.reading == DeviceReading(1755, 350.0, ())
    meter.sample([1])
    assert meter.reading is None, "it was looked at just before"


def test_of_several_gpus_the_slowest_counts_as_the_others_wait_for_it() -> None:
    meters = {"aa": FakeMeter(lambda pids: 1), "bb": FakeMeter(lambda pids: 1)}
    meters["aa"].reading, meters["bb"].reading = DeviceReading(1980), DeviceReading(1200)
    run = RunMeter([(fake_gpu(f"GPU-{name}"), meter) for name, meter in meters.items()])
    run.start()
    training = [Progress("forward", 0, 0, 0, 2, pid, 0.0, name) for pid, name in enumerate(meters, start=1)]
    sample = run.sample(training, lambda: (), main=1)
    assert sample is not None
    assert sample.reading == DeviceReading(1200)


def at(*since_s: float) -> list[Progress]:
    return [Progress("forward", 0, 9, rank, len(since_s), rank, 0.0, "aa", each) for rank, each in enumerate(since_s)]


def completed(*looks: tuple[float, float, DeviceReading | None]) -> Measurement:
    """What stands beside a measurement after looks between two times at which the window began."""
    window = MeasuredWindow()
    for before_s, after_s, reading in looks:
        window.add(Sample("device", 1, reading=reading), at(before_s), at(after_s))
    return window.complete(measured(notes=("said before",)).measurement)


def test_only_looks_at_the_window_that_counts_stand_beside_a_measurement() -> None:
    found = completed(
        (0.0, 0.0, DeviceReading(100)),
        (0.0, 5.0, DeviceReading(200)),
        (5.0, 5.0, DeviceReading(300)),
        (5.0, 7.0, DeviceReading(400)),
        (7.0, 7.0, DeviceReading(1500, 600.0, ("power_cap",))),
        (7.0, 7.0, None),
        (7.0, 7.0, DeviceReading(1700, 700.0, ())),
        (7.0, 0.0, DeviceReading(500)),
        (0.0, 0.0, DeviceReading(600)),
    )
    assert found.conditions == DeviceConditions(2, 1600.0, 1500, 1700, 650.0, 700.0, {"power_cap": 0.5})
    assert found.notes == ("said before",), "at its power cap it works as hard as it may"


def test_of_several_processes_the_last_one_begins_the_window() -> None:
    window = MeasuredWindow()
    for began in ((5.0, 0.0), (5.0, 6.0), (6.0, 5.0), (0.0, 6.0)):
        window.add(Sample("device", 1, reading=DeviceReading(1000)), at(*began), at(*began))
    conditions = window.complete(measured().measurement).conditions
    assert conditions is not None
    assert conditions.readings == 2


def test_a_gpu_that_became_too_hot_is_noted_with_the_reason_and_how_long() -> None:
    hot, fine = DeviceReading(900, 300.0, ("software_thermal", "power_cap")), DeviceReading(1700, 690.0, ("power_cap",))
    found = completed((7.0, 7.0, hot), (7.0, 7.0, fine), (7.0, 7.0, fine), (7.0, 7.0, fine))
    assert found.conditions is not None
    assert found.conditions.throttled_share == 0.25
    assert found.notes[1:] == (
        "the GPU slowed itself down (software thermal) in 25 % of the looks at it: cooler, it may be faster",
    )


def test_nothing_is_said_of_a_gpu_that_nobody_looked_at() -> None:
    found = completed()
    assert (found.conditions, found.notes) == (None, ("said before",))


def test_a_measurement_from_before_conditions_were_looked_at_is_read() -> None:
    found = completed((7.0, 7.0, DeviceReading(900, 300.0, ("power_brake",))))
    data = to_json(found)
    assert from_json(Measurement, data) == found
    del data["conditions"]
    assert from_json(Measurement, data).conditions is None


def test_conditions_are_told_in_a_line() -> None:
    readings = [DeviceReading(1200, 400.0, ("power_cap",)), DeviceReading(1980, 690.0, ())]
    words = "1,590 MHz (1,200 to 1,980), 545 W (at most 690), power cap 50 % of the time"
    assert conditions_words(conditions_of(readings)) == words
    assert conditions_words(conditions_of([])) == ""
    assert conditions_words(conditions_of([DeviceReading(limits=("idle",))])) == "idle 100 % of the time"
