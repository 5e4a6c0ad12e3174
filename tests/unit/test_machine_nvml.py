"""The NVML meter: whose memory is it?"""

from __future__ import annotations

import pytest

from autotune.errors import RunError
from autotune.machine.meters.nvidia import NvmlMeter
from tests.fakes.nvml import Card, FakeNvml

MIB = 2**20
OWN, OTHER, LATER = 100, 7, 8


def _meter(card: Card, **options: object) -> NvmlMeter:
    meter = NvmlMeter(card.uuid, nvml=FakeNvml(card, **options), list_every=1)
    meter.start()
    return meter


def test_what_others_hold_is_not_the_runs() -> None:
    card = Card("GPU-1", overhead=100 * MIB, processes={OTHER: 500 * MIB})
    meter = _meter(card)
    card.processes[OWN] = 40 * MIB
    card.overhead = 103 * MIB

    assert meter.sample([OWN]) == 43 * MIB
    assert not meter.contended


@pytest.mark.parametrize("moved_mib", [200, -200])
def test_others_that_move_are_taken_out_and_said(moved_mib: int) -> None:
    card = Card("GPU-1", processes={OTHER: 500 * MIB})
    meter = _meter(card)
    card.processes[OWN] = 40 * MIB
    card.processes[OTHER] = (500 + moved_mib) * MIB

    assert meter.sample([OWN]) == 40 * MIB
    assert meter.contended


def test_contention_ends_when_the_others_are_back_where_they_were() -> None:
    card = Card("GPU-1", processes={OTHER: 500 * MIB, OWN: 0})
    meter = _meter(card)
    card.processes[OTHER] = 900 * MIB
    meter.sample([OWN])
    card.processes[OTHER] = 500 * MIB

    assert meter.sample([OWN]) == 0
    assert not meter.contended


def test_a_few_mib_are_no_contention() -> None:
    card = Card("GPU-1", processes={OTHER: 500 * MIB})
    meter = _meter(card)
    card.processes |= {OWN: 40 * MIB, OTHER: 504 * MIB}

    assert meter.sample([OWN]) == 40 * MIB
    assert not meter.contended


def test_a_newcomer_is_contention() -> None:
    card = Card("GPU-1")
    meter = _meter(card)
    card.processes |= {OWN: 40 * MIB, LATER: 300 * MIB}

    assert meter.sample([OWN]) == 40 * MIB
    assert meter.contended


def test_a_desktop_that_draws_counts_among_the_others() -> None:
    card = Card("GPU-1", drawing={OTHER: 300 * MIB})
    meter = _meter(card)
    card.processes |= {OWN: 40 * MIB}
    card.drawing[OTHER] = 400 * MIB

    assert meter.sample([OWN]) == 40 * MIB
    assert meter.contended


def test_in_a_container_more_new_host_pids_than_processes_are_contention() -> None:
    card = Card("GPU-1")
    meter = _meter(card)
    card.processes |= {654_321: 40 * MIB, 654_322: 40 * MIB}

    meter.sample([OWN])

    assert meter.contended


def test_in_a_container_others_that_move_are_still_taken_out() -> None:
    card = Card("GPU-1", processes={OTHER: 500 * MIB})
    meter = _meter(card)
    card.processes |= {654_321: 40 * MIB, OTHER: 700 * MIB}

    assert meter.sample([OWN]) == 40 * MIB
    assert meter.contended


def test_without_figures_per_process_the_devices_own_is_what_counts() -> None:
    card = Card("GPU-1", processes={OTHER: None}, used=500 * MIB)
    meter = _meter(card)
    card.processes[OWN] = None
    card.used = 540 * MIB

    assert meter.sample([OWN]) == 40 * MIB
    assert not meter.contended

    del card.processes[OTHER]
    meter.sample([OWN])
    assert meter.contended


def test_without_a_process_list_the_devices_own_is_what_counts() -> None:
    card = Card("GPU-1", processes={OTHER: 500 * MIB})
    meter = _meter(card, lists_processes=False)
    card.processes[OWN] = 40 * MIB

    assert meter.sample([OWN]) == 40 * MIB
    assert not meter.contended
    assert "what others have taken meanwhile would be in the peak" in meter.problem


def test_a_process_list_that_comes_later_makes_no_newcomers() -> None:
    card = Card("GPU-1", processes={OTHER: 500 * MIB})
    nvml = FakeNvml(card, lists_processes=False)
    meter = NvmlMeter("GPU-1", nvml=nvml, list_every=1)
    meter.start()
    nvml.lists_processes = True
    card.processes[OWN] = 40 * MIB

    assert meter.sample([OWN]) == 40 * MIB
    assert not meter.contended


def test_a_driver_that_does_not_list_who_draws_lists_who_computes() -> None:
    card = Card("GPU-1", processes={OTHER: 500 * MIB})
    nvml = FakeNvml(card)
    nvml.lists_drawing = False
    meter = NvmlMeter("GPU-1", nvml=nvml, list_every=1)
    meter.start()
    card.processes |= {OWN: 40 * MIB, OTHER: 700 * MIB}

    assert meter.sample([OWN]) == 40 * MIB
    assert meter.contended


def test_a_host_pid_that_equals_one_of_the_runs_is_still_a_strangers() -> None:
    card = Card("GPU-1", processes={OWN: 500 * MIB})
    meter = _meter(card)
    card.processes[654_321] = 40 * MIB

    assert meter.sample([OWN]) == 40 * MIB
    assert not meter.contended


@pytest.mark.parametrize("own", [OWN, 654_321], ids=["its pid", "a host's pid"])
def test_without_a_figure_of_the_device_what_is_listed_for_the_run_is_added_up(own: int) -> None:
    card = Card("GPU-1", has_memory=False, processes={OTHER: 500 * MIB})
    meter = _meter(card)
    card.processes[own] = 40 * MIB

    assert meter.sample([OWN]) == 40 * MIB
    assert "Not Supported" in meter.problem


@pytest.mark.parametrize(
    ("processes", "lists"), [({}, True), ({OWN: None}, True), ({OWN: 40 * MIB, LATER: 3, 9: 3}, False)]
)
def test_without_any_figure_there_is_no_sample(processes: dict[int, int | None], lists: bool) -> None:
    card = Card("GPU-1", has_memory=False)
    meter = _meter(card, lists_processes=lists)
    card.processes |= processes

    assert (meter.sample([OWN]), meter.problem) == (None, "NVML: Not Supported")


def test_more_host_pids_than_processes_are_not_added_up_as_the_runs() -> None:
    card = Card("GPU-1", has_memory=False)
    meter = _meter(card)
    card.processes |= {654_321: 40 * MIB, 654_322: 40 * MIB}

    assert meter.sample([OWN]) is None


def test_a_baseline_that_could_not_be_read_is_not_taken_for_none() -> None:
    card = Card("GPU-1", processes={OTHER: 500 * MIB}, has_memory=False)
    meter = _meter(card, lists_processes=False)
    card.has_memory = True

    assert meter.sample([OWN]) is None


def test_a_process_that_holds_more_than_there_is_has_no_figure() -> None:
    card = Card("GPU-1", processes={OTHER: 2**50}, used=500 * MIB)
    meter = _meter(card)
    card.processes, card.used = {OWN: 40 * MIB}, 540 * MIB

    assert meter.sample([OWN]) == 40 * MIB
    assert meter.contended


def test_a_neighbour_that_goes_while_it_is_looked_at_is_in_no_sample() -> None:
    card = Card("GPU-1")
    nvml = FakeNvml(card)
    meter = NvmlMeter("GPU-1", nvml=nvml, list_every=1)
    meter.start()
    card.processes |= {OWN: 40 * MIB, LATER: 300 * MIB}
    looks = []

    def look() -> None:
        looks.append(dict(card.processes))
        if len(looks) == 2:
            del card.processes[LATER]

    nvml.before_read = look

    assert meter.sample([OWN]) == 40 * MIB


def test_the_process_list_is_read_less_often_than_the_memory_while_that_stands_still() -> None:
    card = Card("GPU-1", processes={OTHER: 500 * MIB})
    meter = NvmlMeter("GPU-1", nvml=FakeNvml(card), list_every=3)
    meter.start()
    card.processes[OWN] = 900 * MIB
    meter.sample([OWN])
    card.processes |= {OTHER: 900 * MIB, OWN: 500 * MIB}

    noticed = []
    for _ in range(3):
        meter.sample([OWN])
        noticed.append(meter.contended)

    assert noticed == [False, False, True]


def test_what_others_have_only_just_taken_is_in_no_sample() -> None:
    card = Card("GPU-1", processes={OTHER: 500 * MIB})
    meter = NvmlMeter("GPU-1", nvml=FakeNvml(card), list_every=100)
    meter.start()
    card.processes[OWN] = 40 * MIB
    meter.sample([OWN])
    card.processes[LATER] = 900 * MIB

    assert meter.sample([OWN]) == 40 * MIB
    assert meter.contended


@pytest.mark.parametrize("nvml", [FakeNvml(problem="Driver Not Loaded"), FakeNvml(Card("GPU-2"))])
def test_a_device_that_cannot_be_read_is_a_run_error(nvml: FakeNvml) -> None:
    with pytest.raises(RunError, match="GPU-1"):
        NvmlMeter("GPU-1", nvml=nvml).start()
