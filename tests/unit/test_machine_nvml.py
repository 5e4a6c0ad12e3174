"""The NVML meter: whose memory is it?"""

from __future__ import annotations

import pytest

from autotune.errors import RunError
from autotune.machine.meters import NvmlMeter
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


def test_in_a_container_new_host_pids_are_the_runs() -> None:
    card = Card("GPU-1", processes={OTHER: 500 * MIB})
    meter = _meter(card)
    card.processes[654_321] = 40 * MIB

    assert meter.sample([OWN]) == 40 * MIB
    assert not meter.contended


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


def test_a_device_without_memory_of_its_own_has_no_samples() -> None:
    meter = _meter(Card("GPU-1", has_memory=False))

    assert meter.sample([OWN]) is None


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

    assert nvml.initialized == 0


def test_nvml_is_let_go_of_once() -> None:
    nvml = FakeNvml(Card("GPU-1"))
    meter = NvmlMeter("GPU-1", nvml=nvml)
    meter.start()
    assert nvml.initialized == 1

    meter.close()
    meter.close()
    assert nvml.initialized == 0
