"""The training process's own figures of a CUDA device, with a fake one."""

from __future__ import annotations

import pytest
import torch

from autotune.worker.environment import describe_environment
from autotune.worker.meters import MemoryWatch, StepClock, cuda_device
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
    clock = StepClock(1)
    clock.mark()

    peaks = watch.peaks()

    assert (peaks.allocated, peaks.reserved, peaks.non_torch) == (3 * GIB, 3 * GIB, GIB)
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


def test_an_allocation_that_failed_inside_a_library_is_a_note(cuda: FakeCuda) -> None:
    cuda[0].failures = 3
    watch = MemoryWatch()
    watch.begin()
    cuda[0].failures = 5

    watch.peaks()

    assert "the allocator ran out of memory 2 times, and training went on" in watch.notes
