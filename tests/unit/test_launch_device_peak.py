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
    return peak.complete(measured(peaks=Peaks(reserved=reserved, non_torch=from_cuda)).measurement, {})


def test_the_highest_sample_is_the_peak_and_needs_no_note() -> None:
    found = _completed(*(Sample("device", used) for used in (50, 90, 70)))

    assert (found.peaks.device, found.peaks.non_torch, found.notes) == (90, 30, ())


@pytest.mark.parametrize(("devices", "seen"), [("ab", (90, 70)), ("ac", (90, None)), ("aa", (None, None))])
def test_a_rank_has_the_peak_of_a_device_that_it_has_alone(devices: str, seen: tuple[int | None, ...]) -> None:
    peak = DevicePeak()
    for used in ({"a": 50, "b": 70}, {"a": 90, "b": 65, "c": 5}):
        peak.add(Sample("device", max(used.values()), by_device=used))
    ranks = tuple(Peaks(reserved=reserved, non_torch=1) for reserved in (60, 40))

    found = peak.complete(measured(peaks=Peaks(reserved=60), rank_peaks=ranks).measurement, dict(enumerate(devices)))

    assert found.peaks.fit_bytes == 90
    assert tuple(one.device for one in found.rank_peaks) == seen
    alone = zip(ranks, seen, strict=True)
    assert [one.fit_bytes for one in found.rank_peaks] == [known or one.fit_bytes for one, known in alone]


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
