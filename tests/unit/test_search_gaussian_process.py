"""Gaussian processes with a fixed prior, against what is known of them."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
import pytest

from autotune.search.cost.features import Features
from autotune.search.cost.gaussian_process import GaussianProcess, Part, matern
from autotune.search.cost.priors import PeakPrior, Resident, SimulatedPeakPrior


@dataclass(frozen=True)
class Line:
    """Ten plus a slope of unknown size, and nothing else."""

    slope_sd: float = 1.0
    own_sd: float = 0.0

    def mean(self, features):
        return np.full(len(features), 10.0)

    def directions(self, features):
        return self.slope_sd * features.scale[:, None]

    def parts(self, features):
        return [Part(np.full(len(features), self.own_sd))]


def at(*scales):
    scale, none = np.array(scales, dtype=float), np.zeros((len(scales), 0))
    by_kind = ("chosen", "saved_bytes", "recompute_s")
    nothing = dict.fromkeys(by_kind, none)
    zeros = dict.fromkeys(
        ("planned", "compiled", "freed_bytes", "overlap_bytes", "room_bytes", "simulated_bytes"), scale * 0
    )
    return Features(scale=scale, octaves=np.log2(scale), **zeros, **nothing)


def fitted(scales, values, **more):
    return GaussianProcess(
        more.pop("priors", [Line()]), at(*scales), np.array(values), noises=more.pop("noises", (0.01,)), **more
    )


def test_what_is_kept_of_features_is_what_is_computed_of_others_that_are_equal():
    process, asked, other = fitted((1, 2), (10.5, 11.0)), at(1, 2, 3), at(4, 5)
    for _ in range(2):
        again, other_again = dataclasses.replace(asked), dataclasses.replace(other)
        assert np.array_equal(process.mean(asked), process.mean(again))
        assert np.array_equal(process.variance(asked), process.variance(again))
        assert np.array_equal(process.covariance(asked, other), process.covariance(again, other_again))
        # Nor does it matter for the last bit whether both are the same object.
        assert np.array_equal(process.covariance(asked, asked), process.covariance(asked, again))


@dataclass(frozen=True)
class Undirected:
    """Another prior, off in no direction at once."""

    prior: object

    def mean(self, features):
        return self.prior.mean(features)

    def directions(self, features):
        return np.zeros((len(features), 0))

    def parts(self, features):
        return self.prior.parts(features)


def shared(prior, one, other):
    """What two configurations share of the errors of a prior's parts, a variance."""
    return fitted((), (), priors=[Undirected(prior)]).covariance(one, other)[0, 0]


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


def test_bounds_that_were_not_expected_ask_for_another_prior_too():
    sure, unsure = Line(0.0, own_sd=0.5), Line(0.0, own_sd=2.0)
    scales, is_bound = (1.0, 2.0, 3.0, 4.0), [False, True, True, True]
    doubtful = fitted(scales, (10.0, 12.0, 12.0, 12.0), priors=[sure, unsure], is_bound=is_bound)
    trusting = fitted(scales, (10.0, 9.0, 9.0, 9.0), priors=[sure, unsure], is_bound=is_bound)
    assert doubtful.variance(at(8.0))[0] == pytest.approx(4.0, rel=0.01)
    assert trusting.variance(at(8.0))[0] == pytest.approx(0.25, rel=0.01)


def test_likeness_falls_with_distance():
    alike = matern(np.array([0.0]), np.array([0.0, 1.0, 2.0, 8.0]), 1.0)[0]
    assert alike[0] == 1.0
    assert list(alike) == sorted(alike, reverse=True)
    assert alike[-1] < 0.01
    assert matern(np.array([0.0]), np.array([0.0, 0.1]), 0).tolist() == [[1.0, 0.0]]


def test_gaps_of_a_resident_set_are_alike_at_batch_sizes_near_each_other_and_an_allocator_has_none():
    resident, allocator = (SimulatedPeakPrior(1e9, 4e8, resident=kind) for kind in (Resident(), None))
    same, near, far = (shared(resident, at(4.0), at(scale)) for scale in (4.0, 6.0, 32.0))
    assert same > near > 2 * far > 0
    assert same > 10 * shared(allocator, at(4.0), at(4.0))


def test_an_engine_holds_memory_of_its_own_in_the_resident_set_whatever_the_script_is_like():
    plain, planned = at(1.0), dataclasses.replace(at(1.0), planned=np.ones(1), simulated_bytes=np.zeros(1))
    for peak_bytes in (4e8, 4e9):
        priors = [PeakPrior(peak_bytes, 1e8, resident=kind) for kind in (Resident(), None)]
        more = [prior.mean(planned)[0] - prior.mean(plain)[0] for prior in priors]
        assert more == pytest.approx([45 * 2**20, 0.0])


def test_a_batch_size_has_an_error_of_its_own_and_another_one_with_plans():
    prior, plain = PeakPrior(1e9, 1e8, resident=Resident()), at(2.0)
    planned = dataclasses.replace(plain, planned=np.ones(1))
    assert shared(prior, plain, plain) > 0
    assert shared(prior, planned, planned) > 0
    assert shared(prior, plain, planned) == shared(prior, plain, at(3.0)) == 0.0


def test_what_is_simulated_the_same_to_the_byte_needs_the_same():
    def simulated(*sizes):
        return dataclasses.replace(at(*[1.0] * len(sizes)), simulated_bytes=np.array(sizes))

    process = GaussianProcess(
        [SimulatedPeakPrior(1e9, 4e8)], simulated(4e8, 6e8), np.array([1e9, 1.2e9]), noises=(0.003,)
    )
    same, other = np.sqrt(process.variance(simulated(6e8, 6.01e8)))
    assert same < 0.5 * other


def test_what_fusing_changes_is_alike_where_plans_leave_as_much_at_any_batch_size_and_nothing_elsewhere():
    def left(share, scale=1.0):
        return dataclasses.replace(at(scale), simulated_bytes=np.array([share * scale * 4e8]))

    fused, single = (SimulatedPeakPrior(1e9, 4e8, fuses=fuses) for fuses in (True, False))
    own = shared(fused, left(0.25), left(0.25))
    added = {
        share: shared(fused, left(0.25), left(share, 2.0)) - shared(single, left(0.25), left(share, 2.0))
        for share in (0.25, 0.4, 1.0)
    }
    assert added[0.25] == pytest.approx(2 * (own - shared(single, left(0.25), left(0.25))))
    assert added[0.25] > added[0.4] > 4 * added[1.0] > 0
    assert shared(dataclasses.replace(fused, doubt=2.0), left(0.25), left(0.25)) > 3 * own
