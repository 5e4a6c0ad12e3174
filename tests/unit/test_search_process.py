"""Gaussian processes with a fixed prior, against what is known of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

from autotune.search.costs import SimulatedPeakPrior
from autotune.search.features import Features
from autotune.search.process import Process, matern


@dataclass(frozen=True)
class Line:
    """Ten plus a slope of unknown size, and nothing else."""

    slope_sd: float = 1.0
    own_sd: float = 0.0

    def mean(self, features):
        return np.full(len(features), 10.0)

    def directions(self, features):
        return self.slope_sd * features.scale[:, None]

    def residual(self, features, others):
        return np.zeros((len(features), len(others)))

    def residual_variance(self, features):
        return np.full(len(features), self.own_sd**2)


def at(*scales):
    scale, none = np.array(scales, dtype=float), np.zeros((len(scales), 0))
    nil = scale * 0
    return Features(scale, np.log2(scale), nil, none, none, nil, nil, nil, none, none, none, nil)


def fitted(scales, values, **more):
    return Process(
        more.pop("priors", [Line()]), at(*scales), np.array(values), noises=more.pop("noises", (0.01,)), **more
    )


def test_without_a_measurement_the_prior_is_what_is_thought():
    process = fitted((), ())
    assert process.mean(at(1, 2)).tolist() == [10.0, 10.0]
    assert process.variance(at(1, 2)) == pytest.approx([1.0, 4.0])


def test_one_measurement_moves_the_slope_by_as_much_as_its_noise_lets_it():
    # Posterior of a slope with prior N(0, 1) and one measurement 12 = 10 + slope, of noise 0.12.
    precision = 1 + 1 / 0.12**2
    process = fitted((1.0,), (12.0,))
    assert process.mean(at(2.0))[0] == pytest.approx(10 + 2 * (2 / 0.12**2) / precision, rel=1e-4)
    assert process.variance(at(2.0))[0] == pytest.approx(4 / precision, rel=1e-4)


def test_what_makes_both_larger_says_nothing_about_their_difference():
    process = fitted((1.0,), (12.0,))
    both = process.covariance(at(2.0, 2.0), at(2.0, 2.0))
    assert both[0, 0] + both[1, 1] - both[0, 1] - both[1, 0] == pytest.approx(0.0, abs=1e-12)


def test_a_bound_moves_what_is_expected_above_it_and_no_further_than_that_needs():
    assert fitted((1.0,), (11.0,), is_bound=[True]).mean(at(1.0))[0] > 11.0
    # The mean of a standard normal above 1 is phi(1) / (1 - Phi(1)).
    expected = 10 + math.exp(-0.5) / math.sqrt(2 * math.pi) / (0.5 * math.erfc(1 / math.sqrt(2)))
    assert fitted((1.0,), (11.0,), is_bound=[True]).mean(at(1.0))[0] == pytest.approx(expected, rel=0.01)


def test_a_bound_that_is_met_anyway_changes_next_to_nothing():
    assert fitted((1.0,), (5.0,), is_bound=[True]).mean(at(1.0))[0] == pytest.approx(10.0, abs=0.01)


def test_the_noise_is_taken_from_how_measurements_scatter():
    chance = np.random.default_rng(0)
    scales = [1.0] * 12
    calm, wild = (11 + 11 * sd * chance.standard_normal(12) for sd in (0.003, 0.05))
    assert fitted(scales, calm, noises=(0.01, 0.003, 0.05)).noise == 0.003
    assert fitted(scales, wild, noises=(0.01, 0.003, 0.05)).noise == 0.05
    assert fitted(scales[:2], wild[:2], noises=(0.01, 0.003, 0.05)).noise == 0.01


def test_another_prior_is_taken_only_where_measurements_ask_for_it():
    tame, loose = Line(0.0, own_sd=0.001), Line(0.0, own_sd=2.0)
    assert fitted((1.0, 2.0, 3.0, 4.0), (8.0, 12.0, 9.0, 11.0), priors=[tame, loose]).variance(at(1.0))[0] > 1.0
    assert fitted((1.0, 2.0, 3.0, 4.0), (10.0, 10.0, 10.0, 10.0), priors=[tame, loose]).variance(at(1.0))[0] < 1e-3


def test_likeness_falls_with_distance():
    alike = matern(np.array([0.0]), np.array([0.0, 1.0, 2.0, 8.0]), 1.0)[0]
    assert alike[0] == 1.0
    assert list(alike) == sorted(alike, reverse=True)
    assert alike[-1] < 0.01


def test_gaps_of_a_resident_set_are_alike_at_batch_sizes_near_each_other_and_an_allocator_has_none():
    resident, allocator = (SimulatedPeakPrior(1000.0, 400.0, kind) for kind in (True, False))
    same, near, far = (resident.residual(at(4.0), at(scale))[0, 0] for scale in (4.0, 6.0, 32.0))
    assert same > near > 2 * far > 0
    assert allocator.residual(at(4.0), at(4.0))[0, 0] == 0
    assert resident.residual_variance(at(4.0))[0] > same > allocator.residual_variance(at(4.0))[0]
