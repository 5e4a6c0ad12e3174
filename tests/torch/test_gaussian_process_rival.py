"""Optuna's Gaussian process, which loads torch, as a rival of the search."""

from __future__ import annotations

import pytest

from tests.benchmarks.landscapes import rivals
from tests.benchmarks.landscapes.synthetic import transformer
from tests.benchmarks.landscapes.table import Table

pytestmark = pytest.mark.slow  # guards benchmarks, and nothing that is shipped

LANDSCAPE = transformer("small", own=8, sizes=(4, 8, 16, 32), fits=20, layers=4).landscape()


def test_the_gaussian_process_goes_on_until_something_near_the_best_was_measured(monkeypatch):
    monkeypatch.setattr(rivals, "NEAR", 0.8)  # a tenth below the best it may be sure of what it has, and stay there
    table = Table(LANDSCAPE)
    effort = rivals.gaussian_process(table, 0)
    assert effort.found == effort.stopped
    assert effort.stopped.seconds == 30.0 * effort.stopped.trials > 0
    assert effort.loss <= 0.2
    assert rivals.gaussian_process(Table(LANDSCAPE), 0) == effort


def test_a_gaussian_process_that_proposes_the_same_again_and_again_gives_up(monkeypatch):
    monkeypatch.setattr(rivals, "_MOST_PROPOSALS_GP", 12)
    monkeypatch.setattr(rivals, "NEAR", 2.0)
    effort = rivals.gaussian_process(Table(LANDSCAPE), 0)
    assert effort.found is None
    assert effort.stopped.trials <= 12


def test_the_gaussian_process_models_memory_as_a_constraint(monkeypatch):
    monkeypatch.setattr(rivals, "_MOST_TRIALS_GP", 14)
    monkeypatch.setattr(rivals, "NEAR", 2.0)
    modelled, model = [], rivals.GPSampler._get_constraints_acqf_args

    def spied(self, violations, *args):
        modelled.append(violations)
        return model(self, violations, *args)

    monkeypatch.setattr(rivals.GPSampler, "_get_constraints_acqf_args", spied)
    table = Table(LANDSCAPE)
    rivals.gaussian_process(table, 0)
    assert modelled, "it draws ten settings first"
    entries = [entry for entry in LANDSCAPE.table if entry.peak_memory_bytes is not None]
    over = [entry.peak_memory_bytes / table.limit_bytes - 1 for entry in entries]
    for one in modelled[-1][:, 0]:
        assert one == pytest.approx(0.1) or min(abs(one - each) for each in over) < 1e-9
