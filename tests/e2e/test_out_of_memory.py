"""A trial that runs out of memory leaves nothing to the one after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.kill import processes_of
from tests.benchmarks.oom_alternating import alternate


@pytest.mark.slow
def test_good_trials_between_ones_that_run_out_of_memory_are_measured_as_without_them(tmp_path: Path) -> None:
    report = alternate(tmp_path, pairs=2)

    assert report.out_of_memory == 2
    assert len(report.after_out_of_memory.samples_per_s) == len(report.after_good.samples_per_s) == 2
    # A leftover of 2**50 bytes, or of a process, would show in the peak; rates are for the benchmark.
    assert 0.9 < report.peak_ratio < 1.1
    assert processes_of(tmp_path) == []
