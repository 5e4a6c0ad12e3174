"""What is counted between marks, to the byte."""

from __future__ import annotations

import gc

import pytest
import torch

from autotune.worker.describing.allocations import Allocations, Stretch
from autotune.worker.describing.calibration import Calibrator
from autotune.worker.describing.dimensions import Dimensions
from tests.fakes.cuda import FakeCuda, FakeDevice

KIB = 1024


def test_stretches_end_at_marks_and_know_their_highest_point() -> None:
    with Allocations() as allocations:
        allocations.mark()
        kept = torch.empty(4 * KIB, dtype=torch.uint8)
        passing = torch.empty(8 * KIB, dtype=torch.uint8)
        del passing
        allocations.mark()
        del kept
        allocations.mark()
    assert allocations.stretches == [Stretch(0, 0), Stretch(4 * KIB, 12 * KIB), Stretch(0, 4 * KIB)]


def test_only_what_was_allocated_while_counting_is_seen_to_end() -> None:
    # Blocks of the same size get addresses that torch has seen in the first count, and has not seen the end of.
    with Allocations() as allocations:
        allocations.mark()
        first = [torch.empty(4 * KIB) for _ in range(50)]
        allocations.mark()
    del first
    second = [torch.empty(4 * KIB) for _ in range(50)]
    with Allocations() as again:
        again.mark()
        del second
        again.mark()
    assert allocations.stretches[-1].end == 50 * 16 * KIB
    assert again.stretches[-1] == Stretch(0, 0)


def test_garbage_waits_while_counting_and_a_second_profiler_is_refused() -> None:
    assert gc.isenabled()
    with Allocations():
        assert not gc.isenabled()
        with pytest.raises(RuntimeError, match="in use"), Allocations():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_allocator_that_does_not_count_is_not_taken_for_one_that_holds_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Guards predictions under cudaMallocAsync: its zeros made every workspace empty and every peak exact."""
    cuda = FakeCuda(monkeypatch, FakeDevice())
    assert Calibrator(Dimensions([], {})).reason == ""
    cuda.backend = "cudaMallocAsync"

    reason = Calibrator(Dimensions([], {})).reason

    assert "cudaMallocAsync, which does not count the bytes that are asked for" in reason
    assert "without backend:cudaMallocAsync in PYTORCH_CUDA_ALLOC_CONF" in reason
    with pytest.raises(RuntimeError, match="does not count"), Allocations():
        pytest.fail("it was entered")
    assert gc.isenabled()


def test_an_allocator_that_the_script_has_put_in_is_not_said_to_come_from_a_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    FakeCuda(monkeypatch, FakeDevice()).backend = "pluggable"

    reason = Calibrator(Dimensions([], {})).reason

    assert "the script has put another allocator (pluggable) in the place of torch's" in reason
    assert "ALLOC_CONF" not in reason
