"""The cost model as an Optuna sampler: Optuna's own suites, and what it suggests by itself."""

from __future__ import annotations

import optuna
import pytest
from optuna.testing.pytest_samplers import (
    BasicSamplerTestCase,
    MultiObjectiveSamplerTestCase,
    RelativeSamplerTestCase,
)

from autotune.records import Objective, StudySpec
from autotune.search import Aim, build_space
from autotune.search.knowledge import Ground
from autotune.search.model_sampler import ModelSampler
from tests.fakes.landscape import Landscape

LANDSCAPE = Landscape(noise_cv=0.0)
SPACE = build_space(LANDSCAPE.facts, StudySpec(script="train.py"))


def sampler():
    return ModelSampler(Ground(SPACE, LANDSCAPE.facts, Aim(Objective(), LANDSCAPE.limit_bytes)), seed=0)


class TestModelSampler(BasicSamplerTestCase, RelativeSamplerTestCase, MultiObjectiveSamplerTestCase):
    @pytest.fixture
    def sampler(self):
        return sampler


def test_by_itself_it_finds_the_best_of_an_objective_that_optuna_runs():
    best = LANDSCAPE.best(SPACE.configurations())

    def objective(trial):
        point = {
            name: trial.suggest_int(name, values[0], values[-1], log=name == "batch_size")
            for name, values in SPACE.parameters.items()
        }
        configuration = SPACE.configuration(SPACE.snapped(point))
        trial.set_constraint("memory", LANDSCAPE.peak_bytes(configuration) / LANDSCAPE.limit_bytes - 1)
        return LANDSCAPE.samples_per_s(configuration), LANDSCAPE.peak_bytes(configuration)

    study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler())
    study.enqueue_trial(SPACE.point(SPACE.baseline))
    study.optimize(objective, n_trials=12)
    feasible = [trial for trial in study.trials if trial.constraints["memory"] <= 0]
    assert max(trial.values[0] for trial in feasible) >= 0.97 * best
