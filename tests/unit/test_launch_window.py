"""What the meter saw of a GPU while a trial was measured."""

from __future__ import annotations

import pytest

from autotune.launch.supervise import MeasuredWindow
from autotune.machine.meters.port import Neighbours
from autotune.machine.meters.run_meter import Sample
from autotune.records.measurement import Measurement, Peaks
from autotune.records.progress import Progress
from tests.fakes.worker_side import measured


def at(*measuring_since_s: float) -> list[Progress]:
    """Where processes are that have been measuring since then, or do not measure."""
    return [Progress("forward", 0, 3, rank, 2, 100 + rank, 0.0, "aa", s) for rank, s in enumerate(measuring_since_s)]


def busy(*seconds: float, since_s: float = 9.0) -> list[Sample]:
    """Samples that tell of so many seconds in which others used the GPU."""
    return [Sample("device", 90, neighbours=Neighbours(each, since_s)) for each in seconds]


def completed(window: MeasuredWindow, *, waited: float = 0.0) -> Measurement:
    """Of three steps of 0.1 s."""
    return window.complete(measured(peaks=Peaks(reserved=60), waited_share=waited).measurement)


def test_others_that_used_the_gpu_while_the_trial_was_measured_contended_it_and_took_that_share() -> None:
    window = MeasuredWindow()
    for sample in busy(0.06, 0.0, 0.03):
        window.add(sample, at(7.0), at(7.0))
    found = completed(window, waited=0.25)

    assert found.contended
    assert found.waited_share == pytest.approx(0.25 + 0.3)
    assert found.notes == ("other programs used the GPU for 30 % of the measured time",)


@pytest.mark.parametrize(
    ("before", "after"),
    [((0.0,), (0.0,)), ((0.0,), (7.0,)), ((7.0,), (0.0,)), ((7.0, 0.0), (7.0, 0.0)), ((), ())],
    ids=["warm-up", "until it begins", "until it is over", "one rank", "nobody"],
)
def test_what_others_did_while_not_every_process_measured_is_left_out(
    before: tuple[float, ...], after: tuple[float, ...]
) -> None:
    window = MeasuredWindow()
    window.add(*busy(1.0), at(*before), at(*after))
    found = completed(window)

    assert (found.contended, found.waited_share, found.notes) == (False, 0.0, ())


def test_a_window_that_begins_anew_leaves_out_what_was_seen_before() -> None:
    window = MeasuredWindow()
    window.add(*busy(1.0), at(7.0), at(7.0))
    window.add(*busy(0.0), at(8.0), at(8.0))

    assert not completed(window).contended


def test_what_others_did_in_a_time_that_may_have_begun_before_the_window_is_left_out() -> None:
    window = MeasuredWindow()
    window.add(*busy(1.0, since_s=6.9), at(7.0), at(7.0))
    assert not completed(window).contended

    window.add(*busy(0.03, since_s=7.0), at(7.0), at(7.0))
    assert completed(window).waited_share == pytest.approx(0.1)


def test_a_desktop_that_draws_itself_is_no_contention() -> None:
    window = MeasuredWindow()
    window.add(*busy(0.012), at(7.0), at(7.0))
    found = completed(window)

    assert (found.contended, found.waited_share, found.notes) == (False, 0.0, ())


def test_no_more_than_the_whole_time_is_lost_to_others() -> None:
    window = MeasuredWindow()
    window.add(*busy(1.0), at(7.0), at(7.0))
    found = completed(window, waited=0.25)

    assert found.waited_share == 1.0
    assert "100 %" in str(found.notes)
