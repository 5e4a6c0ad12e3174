"""What is recorded of a script on a card that is not there."""

from __future__ import annotations

from autotune.worker.absent.recorder import AllocationRecorder


def test_storages_that_go_together_stand_in_the_order_of_their_numbers() -> None:
    """Guards traces of two batch sizes: Python frees a set in the order of addresses, another one in each process."""
    recorder = AllocationRecorder()
    for kind, number in (("f", 3), ("f", 1), ("a", 4), ("f", 2), ("f", 0)):
        recorder._add(kind, number)
    trace = recorder.trace()
    assert trace.kinds == "ffaff"
    assert trace.numbers == (1, 3, 4, 0, 2)
