"""How long others have used a GPU's multiprocessors, whatever pids NVML shows, and where it shows nothing."""

from __future__ import annotations

import pytest

from autotune.machine.meters.nvidia import NvmlMeter
from tests.fakes.nvml import Card, FakeNvml

MIB = 2**20
OWN, CHILD, OTHER, LATER = 100, 101, 7, 8
HOSTS, HOSTS_TOO = 654_321, 654_322


def _meter(card: Card, nvml: FakeNvml | None = None) -> NvmlMeter:
    meter = NvmlMeter(card.uuid, nvml=nvml or FakeNvml(card), list_every=1)
    meter.start()
    return meter


def test_a_neighbour_that_moves_no_memory_is_seen_by_what_it_uses() -> None:
    card = Card("GPU-1", processes={OTHER: 500 * MIB})
    meter = _meter(card)
    card.processes[OWN] = 40 * MIB
    card.work({OWN: 60, OTHER: 40}, until_s=0.5)

    assert meter.sample([OWN]) == 40 * MIB
    assert meter.neighbours.seconds == pytest.approx(0.4 * 0.5)
    assert not meter.contended, "no memory of others may be in the figure"


def test_what_the_run_uses_itself_is_no_neighbours() -> None:
    card = Card("GPU-1", processes={OTHER: 500 * MIB})
    meter = _meter(card)
    card.processes |= {OWN: 40 * MIB, CHILD: 40 * MIB}
    card.work({OWN: 60, CHILD: 30}, until_s=0.5)
    meter.sample([OWN, CHILD])

    assert meter.neighbours.seconds == 0.0

    # Its pid may be shown for a moment longer than the process is there.
    card.work({OWN: 60, CHILD: 30}, until_s=1.0)
    meter.sample([OWN])

    assert meter.neighbours.seconds == 0.0


def test_a_newcomer_is_a_neighbour() -> None:
    card = Card("GPU-1")
    meter = _meter(card)
    card.processes |= {OWN: 40 * MIB, LATER: 0}
    card.work({OWN: 60, LATER: 40}, until_s=0.5)
    meter.sample([OWN])

    assert meter.neighbours.seconds == pytest.approx(0.2)


def test_each_reading_stands_for_the_time_since_the_one_before_and_for_a_second_at_most() -> None:
    card = Card("GPU-1", processes={OTHER: 500 * MIB})
    card.work({OTHER: 100}, until_s=10.0)
    meter = _meter(card)
    card.processes[OWN] = 40 * MIB

    seconds = []
    for until_s in (10.25, None, 10.75, 60.0):
        if until_s is not None:
            card.work({OTHER: 50}, until_s=until_s)
        meter.sample([OWN])
        seconds.append(meter.neighbours.seconds)

    assert seconds == pytest.approx([0.125, 0.0, 0.25, 0.5])


def test_nothing_of_a_reading_was_before_the_time_that_it_names() -> None:
    """The driver samples at 0.3, 0.9, 1.5 ... s of another clock, whose samples are read half a second apart."""
    card = Card("GPU-1", processes={OTHER: 500 * MIB})
    now_s = 100.0
    meter = NvmlMeter(card.uuid, nvml=FakeNvml(card), list_every=1, clock=lambda: now_s)
    meter.start()
    card.processes[OWN] = 40 * MIB

    told, before_s = [], 0.0  # the driver's sample before
    for number in range(1, 9):
        now_s = 100.0 + number / 2
        sample_s = max((0.3 + 0.6 * n for n in range(9) if 0.3 + 0.6 * n <= number / 2), default=0.0)
        if sample_s > before_s:
            card.work({OTHER: 50}, until_s=sample_s)
        meter.sample([OWN])
        if sample_s > before_s:
            told.append((meter.neighbours, 100.0 + before_s))
        before_s = sample_s

    assert [one.seconds for one, _ in told[1:]] == pytest.approx([0.3] * (len(told) - 1), abs=1e-5)
    assert all(one.since_s <= began_s for one, began_s in told)
    assert all(began_s - one.since_s <= 0.5 for one, began_s in told[1:]), "one look"


def test_after_a_pause_a_reading_names_a_second_before_the_last_look() -> None:
    card = Card("GPU-1", processes={OTHER: 500 * MIB})
    now_s = 100.0
    meter = NvmlMeter(card.uuid, nvml=FakeNvml(card), list_every=1, clock=lambda: now_s)
    meter.start()
    card.processes[OWN] = 40 * MIB
    card.work({OTHER: 50}, until_s=0.1)
    for now_s in (100.5, 110.0, 120.0):  # noqa: B007 - the meter reads it
        meter.sample([OWN])
    card.work({OTHER: 50}, until_s=20.1)
    now_s = 120.5
    meter.sample([OWN])

    assert (meter.neighbours.seconds, meter.neighbours.since_s) == (0.5, 119.0)


def test_what_processes_use_is_read_as_seldom_as_their_list() -> None:
    card = Card("GPU-1", processes={OTHER: 500 * MIB})
    meter = NvmlMeter("GPU-1", nvml=FakeNvml(card), list_every=3)
    meter.start()

    seconds = []
    for number in range(1, 7):
        card.work({OTHER: 100}, until_s=float(number))
        meter.sample([OWN])
        seconds.append(meter.neighbours.seconds)

    assert seconds == [1.0, 0.0, 0.0, 1.0, 0.0, 0.0]


def test_in_a_container_the_new_host_pids_are_the_runs() -> None:
    card = Card("GPU-1", processes={OTHER: 500 * MIB})
    meter = _meter(card)
    card.processes[HOSTS] = 40 * MIB
    card.work({HOSTS: 60, OTHER: 40}, until_s=0.5)
    meter.sample([OWN])

    assert meter.neighbours.seconds == pytest.approx(0.2)


def test_of_more_host_pids_than_the_run_has_processes_the_busiest_may_be_the_runs() -> None:
    card = Card("GPU-1")
    meter = _meter(card)
    card.processes |= {HOSTS: 40 * MIB, HOSTS_TOO: 40 * MIB}
    card.work({HOSTS: 60, HOSTS_TOO: 40}, until_s=0.5)
    meter.sample([OWN])

    assert meter.neighbours.seconds == pytest.approx(0.2)

    card.work({HOSTS: 60}, until_s=1.0)
    meter.sample([OWN])

    assert meter.neighbours.seconds == 0.0


@pytest.mark.parametrize("runs", [OWN, HOSTS], ids=["its pid", "a host's pid"])
def test_without_a_list_those_that_used_the_device_before_the_run_are_neighbours(runs: int) -> None:
    card = Card("GPU-1", overhead=500 * MIB)
    card.work({OTHER: 100}, until_s=1.0)
    meter = _meter(card, FakeNvml(card, lists_processes=False))
    card.work({runs: 60, OTHER: 40}, until_s=1.5)
    meter.sample([OWN])

    assert meter.neighbours.seconds == pytest.approx(0.2)


def test_of_one_that_is_listed_no_more_nobody_knows_whose_it_was() -> None:
    card = Card("GPU-1")
    meter = _meter(card)
    card.processes[HOSTS] = 40 * MIB
    card.work({HOSTS: 50, HOSTS_TOO: 50}, until_s=0.5)
    meter.sample([OWN])

    assert meter.neighbours.seconds == 0.0


@pytest.mark.parametrize("calls", [{"nvmlDeviceGetProcessUtilization"}, {"nvmlDeviceGetProcessesUtilizationInfo"}])
def test_a_driver_needs_one_of_the_calls_only(calls: set[str]) -> None:
    card = Card("GPU-1", processes={OTHER: 500 * MIB})
    nvml = FakeNvml(card)
    nvml.samples_use = calls
    meter = _meter(card, nvml)
    card.work({OTHER: 40}, until_s=0.5)
    meter.sample([OWN])

    assert meter.neighbours.seconds == pytest.approx(0.2)


@pytest.mark.parametrize("device", ["GPU-1", "MIG-1"])
def test_where_the_driver_samples_nothing_nobody_is_seen_and_the_memory_is_measured(device: str) -> None:
    part = Card("MIG-1", processes={OTHER: 500 * MIB})
    whole = Card("GPU-1", processes={OTHER: 500 * MIB}, slices=[part])
    nvml = FakeNvml(whole)
    if device == "GPU-1":
        nvml.samples_use = set()
    meter = NvmlMeter(device, nvml=nvml, list_every=1)
    meter.start()
    for card in (whole, part):
        card.processes[OWN] = 40 * MIB
        card.work({OTHER: 40}, until_s=0.5)

    assert meter.sample([OWN]) == 40 * MIB
    assert (meter.neighbours.seconds, meter.problem) == (0.0, "")


def test_a_list_that_the_driver_left_as_it_was_is_not_believed() -> None:
    card = Card("GPU-1", processes={OTHER: 500 * MIB})
    meter = _meter(card)
    card.processes[OWN] = 40 * MIB
    card.work({OWN: 50, OTHER: 2**32 - 1, 0: 50}, until_s=0.5)
    meter.sample([OWN])

    assert meter.neighbours.seconds == 0.0


def test_nvml_that_calls_an_empty_list_a_success_raises_nothing() -> None:
    card = Card("GPU-1", processes={OTHER: 500 * MIB})
    nvml = FakeNvml(card)
    asked = []

    def succeed(handle: Card, since_us: int) -> list[object]:
        asked.append(since_us)
        raise nvml.NVMLError("Success", nvml.NVML_SUCCESS)

    nvml.nvmlDeviceGetProcessUtilization = succeed  # type: ignore[method-assign, assignment]
    meter = _meter(card, nvml)

    assert meter.sample([OWN]) == 0
    assert meter.neighbours.seconds == 0.0
    assert asked


def test_a_device_without_a_figure_of_its_memory_has_neighbours_all_the_same() -> None:
    card = Card("GPU-1", has_memory=False, processes={OTHER: 500 * MIB})
    meter = _meter(card)
    card.processes[OWN] = 40 * MIB
    card.work({OWN: 60, OTHER: 40}, until_s=0.5)

    assert meter.sample([OWN]) == 40 * MIB
    assert meter.neighbours.seconds == pytest.approx(0.2)
