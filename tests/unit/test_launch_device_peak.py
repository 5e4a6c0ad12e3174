"""What the meter saw of a trial on GPUs, held against what torch and CUDA say. Whole runs: test_nvml_lies.py."""

from __future__ import annotations

import pytest

from autotune.launch.supervise import DevicePeak
from autotune.machine.meters.run_meter import Sample
from autotune.records.measurement import Measurement, Peaks
from tests.fakes.worker_side import measured


def _completed(*samples: Sample, reserved: int = 60, from_cuda: int | None = 10) -> Measurement:
    peak = DevicePeak()
    for sample in samples:
        peak.add(sample)
    return peak.complete(measured(peaks=Peaks(reserved=reserved, non_torch=from_cuda)).measurement)


def test_the_highest_sample_is_the_peak_and_needs_no_note() -> None:
    found = _completed(*(Sample("device", used) for used in (50, 90, 70)))

    assert (found.peaks.device, found.peaks.non_torch, found.notes) == (90, 30, ())


@pytest.mark.parametrize(("from_cuda", "words"), [(10, "CUDA's figure"), (None, "not in the peak")])
def test_a_trial_that_nobody_looked_at_is_flagged_with_what_stands_for_the_meter(
    from_cuda: int | None, words: str
) -> None:
    found = _completed(from_cuda=from_cuda)

    assert (found.peaks.device, found.peaks.non_torch) == (None, from_cuda)
    (note,) = found.notes
    assert words in note
    assert "over before the meter could look" in note


@pytest.mark.parametrize(("from_cuda", "peak"), [(10, 75), (40, 100), (None, 75)])
def test_where_the_meter_was_blind_for_a_while_the_larger_figure_counts(from_cuda: int | None, peak: int) -> None:
    found = _completed(Sample("device", 75), Sample("device", None, unread="lost"), from_cuda=from_cuda)

    assert found.peaks.fit_bytes == peak
    (note,) = found.notes
    assert "the peak may be higher" in note


def test_a_doubt_about_a_figure_that_is_left_out_is_not_told() -> None:
    doubtful = _completed(Sample("device", 75, doubt="only listed"))
    left_out = _completed(Sample("device", 5, doubt="only listed"))

    assert doubtful.notes == ("only listed",)
    assert "only listed" not in str(left_out.notes)
