"""Which GPU a device index means, under CUDA_VISIBLE_DEVICES, and whose it is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from autotune.errors import UsageError
from autotune.launch.process import device_variables
from autotune.machine.devices import find_device
from autotune.machine.meters.nvidia import Nvidia, NvmlMeter, meter_for
from tests.fakes.nvml import Card, FakeNvml

FOUR = [Card(f"GPU-{letter}0{letter}0-1", name=f"card {letter}") for letter in "abcd"]


def _uuids(setting: str | None, *cards: Card) -> list[str]:
    nvml = FakeNvml(*(cards or FOUR))
    variables = {} if setting is None else {"CUDA_VISIBLE_DEVICES": setting}
    gpus = Nvidia(nvml).list_gpus(variables)
    assert [device.index for device in gpus.devices] == list(range(len(gpus.devices)))
    return [device.uuid for device in gpus.devices]


@pytest.mark.parametrize(
    ("setting", "letters"),
    [
        (None, "abcd"),
        ("2,0", "ca"),
        (" 1 , 3 ", "bd"),
        ("GPU-c0c0-1,GPU-a", "ca"),
        ("0,-1,2", "a"),
        ("0,9,2", "a"),
        ("1,1", ""),
        ("GPU-", ""),
        ("", ""),
        ("all", ""),
    ],
)
def test_the_variable_is_read_by_cudas_rules(setting: str | None, letters: str) -> None:
    assert _uuids(setting) == [f"GPU-{letter}0{letter}0-1" for letter in letters]


def test_slices_of_a_card_stand_in_for_it() -> None:
    sliced = Card("GPU-a", slices=[Card("MIG-1"), None, Card("MIG-2")])
    whole = Card("GPU-b")

    assert _uuids(None, sliced, whole) == ["MIG-1", "MIG-2", "GPU-b"]
    assert _uuids("1,0", sliced, whole) == ["GPU-b", "MIG-1"]
    assert _uuids("MIG-2", sliced, whole) == ["MIG-2"]


def test_a_lost_card_does_not_renumber_the_others() -> None:
    lost = Card("GPU-a", answers=False)

    assert _uuids("1", lost, Card("GPU-b")) == ["GPU-b"]
    assert _uuids(None, lost, Card("GPU-b")) == ["GPU-b"]


def test_a_card_that_does_not_even_have_a_name_hides_no_other() -> None:
    nvml = FakeNvml(Card("GPU-a"), Card("GPU-b"))
    name_of = nvml.nvmlDeviceGetName

    def name(card: Card) -> str:
        if card.uuid == "GPU-a":
            raise nvml.NVMLError("GPU is lost")
        return name_of(card)

    nvml.nvmlDeviceGetName = name  # type: ignore[method-assign]

    assert [device.uuid for device in Nvidia(nvml).list_gpus({}).devices] == ["GPU-b"]


def test_memory_is_told_apart_into_the_drivers_and_the_processes() -> None:
    card = Card("GPU-a", total=1000, reserved=50, processes={1: 200})

    (device,) = Nvidia(FakeNvml(card)).list_gpus({}).devices

    assert (device.memory_bytes, device.reserved_bytes, device.used_bytes) == (1000, 50, 200)


def test_a_device_without_memory_of_its_own_says_so() -> None:
    (device,) = Nvidia(FakeNvml(Card("GPU-a", has_memory=False))).list_gpus({}).devices

    assert device.memory_bytes is None
    assert device.free_bytes is None


def test_what_is_free_is_held_neither_by_processes_nor_by_the_driver() -> None:
    card = Card("GPU-a", total=1000, reserved=50, processes={1: 200})

    (device,) = Nvidia(FakeNvml(card)).list_gpus({}).devices

    assert device.free_bytes == 750


def test_cuda_calls_a_device_by_its_uuid_without_the_prefix_and_a_slice_by_its_cards_too() -> None:
    sliced = Card("GPU-c0-1", slices=[Card("MIG-d0-2")])

    of_slice, of_card = Nvidia(FakeNvml(sliced, Card("GPU-e0-3"))).list_gpus({}).devices

    assert of_slice.torch_uuids == ("d0-2", "c0-1")
    assert of_card.torch_uuids == ("e0-3",)


def test_without_a_driver_there_are_no_devices_and_the_reason_is_kept() -> None:
    gpus = Nvidia(FakeNvml(problem="NVML Shared Library Not Found")).list_gpus({})

    assert gpus.devices == ()
    assert gpus.problem == "NVML Shared Library Not Found"


def test_a_process_may_be_given_several_devices_in_any_order() -> None:
    cards = Card("GPU-a"), Card("GPU-b"), Card("GPU-c")
    gpus = Nvidia(FakeNvml(*cards)).list_gpus({"CUDA_MPS_PIPE_DIRECTORY": "/no/such/pipes"})
    given = device_variables([2, 0], read=lambda: gpus)
    assert given == {"CUDA_VISIBLE_DEVICES": "2,0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert device_variables([], read=lambda: gpus) == {}


def _given(index: int, *cards: Card, **variables: str) -> dict[str, str]:
    # A service of this machine's is none of the test's business.
    variables.setdefault("CUDA_MPS_PIPE_DIRECTORY", "/no/such/pipes")
    return device_variables([index], read=lambda: Nvidia(FakeNvml(*cards)).list_gpus(variables))


def test_a_run_is_given_its_device_by_the_number_that_it_has_on_the_bus() -> None:
    assert _given(0, *FOUR, CUDA_VISIBLE_DEVICES="2,0") == {
        "CUDA_VISIBLE_DEVICES": "2",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }


@pytest.mark.parametrize(
    "first",
    [
        Card("GPU-a", slices=[Card("MIG-1")]),
        Card("GPU-a", slices=[None]),
        Card("GPU-a", answers=False),
        Card("GPU-a", bus=9),
    ],
    ids=["sliced", "sliced, without a slice", "lost", "in another order"],
)
def test_where_cuda_may_count_cards_in_another_way_a_run_is_given_its_device_by_uuid(first: Card) -> None:
    last = len(Nvidia(FakeNvml(first, Card("GPU-b"))).list_gpus({}).devices) - 1

    assert _given(last, first, Card("GPU-b")) == {"CUDA_VISIBLE_DEVICES": "GPU-b"}


def test_a_slice_is_given_by_uuid() -> None:
    assert _given(0, Card("GPU-a", slices=[Card("MIG-1")])) == {"CUDA_VISIBLE_DEVICES": "MIG-1"}


def test_where_a_service_shares_cards_out_a_run_is_given_its_device_by_uuid(tmp_path: Path) -> None:
    assert _given(1, *FOUR, CUDA_MPS_PIPE_DIRECTORY=str(tmp_path)) == {"CUDA_VISIBLE_DEVICES": "GPU-b0b0-1"}


def test_nvml_is_opened_once_for_all_lists_and_meters() -> None:
    nvml = FakeNvml(*FOUR)
    vendor = Nvidia(nvml)
    for device in (*vendor.list_gpus({}).devices, *vendor.list_gpus({}).devices):
        meter = vendor.make_meter(device)
        meter.start()
        meter.close()

    assert nvml.initialized == 1


def test_nvml_that_could_not_be_opened_is_tried_again() -> None:
    nvml = FakeNvml(*FOUR, problem="Driver Not Loaded")
    vendor = Nvidia(nvml)
    assert vendor.list_gpus({}).devices == ()
    nvml.problem = ""

    assert len(vendor.list_gpus({}).devices) == len(FOUR)


def test_lists_and_meters_of_this_process_share_one_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml(Card("GPU-a"))
    monkeypatch.setitem(sys.modules, "pynvml", nvml)

    assert [device.uuid for device in Nvidia().list_gpus({}).devices] == ["GPU-a"]
    NvmlMeter("GPU-a").start()

    assert nvml.initialized == 1


def test_an_index_that_is_not_there_names_those_that_are() -> None:
    gpus = Nvidia(FakeNvml(*FOUR)).list_gpus({"CUDA_VISIBLE_DEVICES": "2,0"})

    with pytest.raises(UsageError, match=r"no device 2: found 0 \(card c\), 1 \(card a\)"):
        find_device(2, gpus)


def test_without_any_gpu_the_error_says_why() -> None:
    with pytest.raises(UsageError, match=r"no GPU was found\. Driver Not Loaded"):
        find_device(0, Nvidia(FakeNvml(problem="Driver Not Loaded")).list_gpus({}))


def test_a_meter_is_for_a_gpu_that_is_there() -> None:
    present = Nvidia(FakeNvml(Card("GPU-a", processes={7: 5})))

    assert meter_for((0,), vendor=present).must_be_told
    assert not meter_for((), vendor=Nvidia(FakeNvml(problem="no driver"))).must_be_told
    with pytest.raises(UsageError, match="no device 1: found 0"):
        meter_for((1,), vendor=present)
