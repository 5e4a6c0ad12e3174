"""Where a run's memory is read: on the devices that its processes name, or as their resident sets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.machine.meters.port import Neighbours
from autotune.machine.meters.run_meter import RunMeter, Sample
from autotune.records.progress import Progress
from tests.fakes.memory_meter import FakeMeter, fake_gpu

HELD = {"aa": 5, "bb": 7, "cc": 9}


def progress(*devices: str) -> list[Progress]:
    """Of training processes 1, 2, ... on these devices."""
    return [Progress("forward", 0, 0, 0, 1, pid, 0.0, name) for pid, name in enumerate(devices, start=1)]


@pytest.fixture
def meters() -> dict[str, FakeMeter]:
    return {name: FakeMeter(lambda pids, held=held: held * len(pids)) for name, held in HELD.items()}


@pytest.fixture
def meter(meters: dict[str, FakeMeter]) -> RunMeter:
    """Of a machine with three devices; a resident set is 100 bytes."""
    meter = RunMeter(
        [(fake_gpu(f"GPU-{name}"), meters[name]) for name in HELD], resident=FakeMeter(lambda pids: 100 * len(pids))
    )
    meter.start()
    return meter


def seen(**held: int) -> Sample:
    return Sample("device", max(held.values()), by_device=held)


def members() -> tuple[int, ...]:
    return (1, 90, 91)


def test_the_device_that_a_process_names_is_read_with_all_processes_of_the_run(meter: RunMeter) -> None:
    assert meter.sample(progress("bb"), members, main=1) == seen(bb=3 * 7)
    assert meter.sample(progress("aa"), members, main=1) == seen(aa=3 * 5)


def test_of_several_devices_the_fullest_counts(meter: RunMeter, meters: dict[str, FakeMeter]) -> None:
    assert meter.sample(progress("aa", "bb"), lambda: (), main=1) == seen(aa=2 * 5, bb=2 * 7)

    meters["aa"].contended = True
    contended = replace(seen(aa=2 * 5, bb=2 * 7), contended=True)
    assert meter.sample(progress("aa", "bb"), lambda: (), main=1) == contended
    assert meter.sample(progress("cc"), lambda: (), main=1) == seen(cc=9)


def test_of_several_devices_the_one_that_others_use_most_counts(meter: RunMeter, meters: dict[str, FakeMeter]) -> None:
    for uuid, seconds in (("aa", 0.2), ("bb", 0.1), ("cc", 0.9)):
        meters[uuid].neighbours = Neighbours(seconds, since_s=4.0)

    used = replace(seen(aa=2 * 5, bb=2 * 7), neighbours=Neighbours(0.2, since_s=4.0))
    assert meter.sample(progress("aa", "bb"), lambda: (), main=1) == used
    assert meter.sample(progress(""), lambda: (), main=1) == Sample("resident", 100)


def test_processes_that_all_train_on_the_cpu_are_measured_by_their_resident_sets(meter: RunMeter) -> None:
    assert meter.sample(progress("", ""), lambda: pytest.fail("all processes were looked for"), main=1) == Sample(
        "resident", 200
    )
    assert meter.sample(progress("", "aa"), lambda: (), main=1) == seen(aa=2 * 5)


def test_without_any_gpu_the_main_process_is_measured_before_it_trains(meter: RunMeter) -> None:
    alone = RunMeter(resident=FakeMeter(lambda pids: 100 * sum(pids)))
    alone.start()
    assert (meter.must_be_told, alone.must_be_told) == (True, False)
    assert alone.sample([], members, main=7) == Sample("resident", 700)
    assert alone.sample(progress("", ""), members, main=7) == Sample("resident", 300)


def test_a_device_that_was_not_found_has_no_figure_and_the_reason_is_what_kept_it_from_being_found() -> None:
    meter = RunMeter(problem="Driver/library version mismatch")

    assert meter.sample(progress("dd"), members, main=1) == Sample(
        "device", None, unread="Driver/library version mismatch"
    )


def test_what_is_wrong_with_one_device_is_said_beside_the_figure_of_another(
    meter: RunMeter, meters: dict[str, FakeMeter]
) -> None:
    meters["aa"].problem = "only part of it is listed"
    read = meter.sample(progress("aa", "dd"), lambda: (), main=1)

    assert read is not None
    assert (read.used_bytes, read.doubt) == (2 * 5, "only part of it is listed")
    assert read.unread


def test_a_card_that_is_named_for_its_slices_means_the_first() -> None:
    slices = [(fake_gpu(f"MIG-{name}", card="GPU-card", used=used), FakeMeter(lambda pids, used=used: used))
              for name, used in (("x", 10), ("y", 20))]  # fmt: skip
    meter = RunMeter(slices)
    meter.start()

    assert meter.sample(progress("card"), members, main=1) == seen(card=10)
    assert meter.sample(progress("y"), members, main=1) == seen(y=20)
    assert meter.free_bytes == {"x": 890, "card": 890, "y": 880}


def test_what_was_free_before_the_run_is_told_where_it_is_known() -> None:
    meter = RunMeter([(fake_gpu("GPU-aa"), FakeMeter()), (fake_gpu("GPU-bb", total=None), FakeMeter())])

    assert meter.free_bytes == {"aa": 600}
    assert meter.usable_bytes == {"aa": 900}


def test_every_device_is_read_before_the_run_and_let_go_of_after_it(
    meter: RunMeter, meters: dict[str, FakeMeter]
) -> None:
    assert {one.state for one in meters.values()} == {"started"}

    meter.close()

    assert {one.state for one in meters.values()} == {"closed"}
