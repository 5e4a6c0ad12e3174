"""The training process's own figures of a CUDA device, with a fake one."""

from __future__ import annotations

import gc

import pytest
import torch

from autotune.worker.device import cuda_device, device_uuid, limit_memory, outside_bytes
from autotune.worker.environment import _driver_version, describe_environment
from autotune.worker.garbage import uncollected
from autotune.worker.measuring.clocks import DeviceClock
from autotune.worker.measuring.peaks import MemoryWatch
from tests.fakes.cuda import FakeCuda, FakeDevice

GIB = 2**30


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    monkeypatch.setattr(MemoryWatch, "latest", None)
    return FakeCuda(monkeypatch, FakeDevice(), FakeDevice())


def test_figures_are_those_of_the_device_that_is_trained_on(cuda: FakeCuda) -> None:
    watch = MemoryWatch(1)
    watch.begin()
    cuda[1].hold(3 * GIB, outside=GIB)
    cuda[1].retries = 2
    clock = DeviceClock(1)
    clock.mark()

    peaks = watch.peaks()

    assert (peaks.allocated, peaks.reserved) == (3 * GIB, 3 * GIB)
    assert peaks.non_torch is None, "the device holds what other processes have as well"
    assert watch.allocator_retries() == 2
    assert cuda.recorded_on == [1]
    assert describe_environment(1).device_name == "Fake 1"


def test_a_device_is_known_by_the_first_tensor_on_one() -> None:
    class OnDevice:
        is_cuda, device = True, torch.device("cuda:1")

    assert cuda_device([torch.zeros(1), OnDevice(), torch.zeros(1)]) == 1  # type: ignore[list-item]
    assert cuda_device([torch.zeros(1)]) is None


def test_memory_on_a_second_device_is_said(cuda: FakeCuda) -> None:
    watch = MemoryWatch(1)
    watch.begin()
    assert watch.peaks()
    assert not any("cuda" in note for note in watch.notes)

    cuda[0].hold(GIB)
    watch.peaks()

    assert "peaks are those of cuda:1, but the process holds memory on cuda:0 as well" in watch.notes


def test_a_script_that_resets_the_peaks_does_not_lower_them(cuda: FakeCuda) -> None:
    watch = MemoryWatch()
    cuda[0].hold(9 * GIB)
    cuda[0].hold(GIB)
    watch.begin()
    cuda[0].hold(5 * GIB)
    cuda[0].hold(2 * GIB)
    torch.cuda.reset_peak_memory_stats()

    assert watch.peaks().allocated == watch.peaks().reserved == 5 * GIB

    second = MemoryWatch()
    second.begin()
    assert second.peaks().reserved == 2 * GIB


def test_who_only_follows_resets_nothing_and_keeps_what_the_script_resets(cuda: FakeCuda) -> None:
    watch = MemoryWatch()
    cuda[0].hold(9 * GIB)
    cuda[0].hold(GIB)
    watch.follow()
    assert cuda[0].peak_allocated == 9 * GIB
    torch.cuda.reset_peak_memory_stats()

    assert cuda[0].peak_allocated == GIB
    assert watch.peaks().allocated == watch.peaks().reserved == 9 * GIB


def test_an_allocation_that_failed_inside_a_library_is_a_note(cuda: FakeCuda) -> None:
    cuda[0].failures = 3
    watch = MemoryWatch()
    watch.begin()
    cuda[0].failures = 5

    watch.peaks()

    assert "the allocator ran out of memory 2 times, and training went on" in watch.notes


def test_no_device_is_asked_for_the_name_of_the_cpu(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda[1].uuid = "ffc79498-8ff3-c2dc-3b0d-fafd804516ae"
    assert device_uuid(1) == "ffc79498-8ff3-c2dc-3b0d-fafd804516ae"

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: pytest.fail("a device was touched"))
    assert device_uuid(None) == ""


OTHERS, CONTEXT = 30 * GIB, 2 * GIB
BEFORE = 80 * GIB - OTHERS


def limited(cuda: FakeCuda, *, free_before: int | None = BEFORE, num_processes: int = 1) -> float:
    """What torch's allocator may take of the second device under a limit of 40 GiB, in GiB."""
    cuda[1].hold(3 * GIB, outside=OTHERS + CONTEXT)
    outside = outside_bytes(1, free_before=free_before, num_processes=num_processes)
    limit_memory(40 * GIB, 1, outside_bytes=outside or 0)
    assert cuda[0].fraction is None
    return float(cuda[1].fraction * 80)


def test_what_the_run_holds_outside_the_allocator_comes_off_a_limit_and_what_others_hold_does_not(
    cuda: FakeCuda,
) -> None:
    assert limited(cuda) == pytest.approx(38)
    assert limited(cuda, num_processes=2) == pytest.approx(38)


def test_nothing_comes_off_a_limit_where_it_could_be_anothers(cuda: FakeCuda) -> None:
    assert limited(cuda, free_before=None) == pytest.approx(40)
    assert limited(cuda, num_processes=3) == pytest.approx(40)


def test_others_that_have_gone_add_nothing_to_a_limit(cuda: FakeCuda) -> None:
    assert limited(cuda, free_before=BEFORE - 9 * GIB) == pytest.approx(40)


def test_others_that_come_before_the_first_step_do_not_take_the_limit_away(cuda: FakeCuda) -> None:
    assert limited(cuda, free_before=BEFORE + 25 * GIB) == pytest.approx(40 - 10)


@pytest.mark.parametrize("collects", [True, False], ids=["collecting", "not collecting"])
def test_garbage_is_looked_for_again_after_an_error_too_if_the_script_has_it_so(collects: bool) -> None:
    def fail() -> None:
        with uncollected():
            assert not gc.isenabled()
            raise ValueError("inside")

    (gc.enable if collects else gc.disable)()
    try:
        with pytest.raises(ValueError, match="inside"):
            fail()
        assert gc.isenabled() is collects
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("first_line", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024", "550.54.15"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (root)", "580.95.05"),
        ("something else", None),
    ],
)
def test_the_driver_is_what_the_kernels_module_says(tmp_path, first_line, version):
    path = tmp_path / "version"
    path.write_text(f"{first_line}\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n")
    assert _driver_version(path) == version
    assert _driver_version(tmp_path / "none") is None
