"""What a search concludes from the outcomes so far."""

from __future__ import annotations

import dataclasses

import pytest

from autotune.records import HostOutOfMemory, OutOfMemory, ScriptError, StudySpec
from autotune.search import build_space
from autotune.search.estimate import Estimate
from autotune.search.judging import is_feasible, score
from autotune.search.knowledge import Knowledge, Observation
from autotune.search.seeds import next_seeds
from tests.fakes.landscape import MIB, Landscape, measured

LANDSCAPE = Landscape(ceiling_bytes=2400 * MIB, noise_cv=0.0)
FACTS, LIMIT = LANDSCAPE.facts, LANDSCAPE.limit_bytes
SPACE = build_space(FACTS, StudySpec(script="train.py"))


def at(batch_size, **counts):
    point = dict.fromkeys(SPACE.counts, 0) | {f"{name}+": count for name, count in counts.items()}
    return SPACE.configuration(point | {"batch_size": batch_size})


def seen(number, configuration, *, origin="seed"):
    if not LANDSCAPE.fits(configuration):
        return Observation(number, configuration, origin, "scored", 0.0, 1.1 * LIMIT, out_of_memory=True)
    rate, peak = LANDSCAPE.samples_per_s(configuration), LANDSCAPE.peak_bytes(configuration)
    return Observation(number, configuration, origin, "scored", rate, peak, feasible=True)


def knowing(*configurations):
    return Knowledge(SPACE, FACTS, LIMIT, [seen(i, one) for i, one in enumerate((SPACE.baseline, *configurations))])


def test_one_peak_and_the_memory_split_are_enough_to_expect_other_peaks():
    estimate = Estimate(SPACE, FACTS, [(SPACE.baseline, LANDSCAPE.peak_bytes(SPACE.baseline))])
    for configuration in (at(32), at(64), at(32, gelu=12), at(64, Block=6, gelu=12), at(32, Block=12)):
        assert estimate.peak_bytes(configuration) == pytest.approx(LANDSCAPE.peak_bytes(configuration), rel=0.1)


def test_savings_are_learnt_from_what_plans_really_saved():
    wasteful = Landscape(activations_bytes=40 * MIB)
    peaks = [(at(16), 1440 * MIB), (at(16, gelu=12), 1440 * MIB - 40 * MIB)]
    estimate = Estimate(SPACE, wasteful.facts, peaks)
    assert estimate.peak_bytes(at(32, gelu=12)) == pytest.approx((800 + 2 * 640 - 80) * MIB, rel=0.01)


def test_without_any_peak_expectations_still_order_a_run():
    estimate = Estimate(SPACE, FACTS, [])
    assert not estimate.is_calibrated
    assert estimate.peak_bytes(at(16, Block=12)) < estimate.peak_bytes(at(16, Block=6)) < estimate.peak_bytes(at(16))


def test_a_run_goes_from_least_to_most_memory():
    run = [at(32, gelu=12), at(32, Block=12, gelu=12), at(32, Block=3), at(32, Block=12)]
    peaks = [LANDSCAPE.peak_bytes(configuration) for configuration in knowing().in_order(run)]
    assert peaks == sorted(peaks)


def test_what_was_tried_is_not_open():
    knowledge = Knowledge(SPACE, FACTS, LIMIT, [seen(0, SPACE.baseline)], tried=[at(24).key])
    assert not knowledge.is_open(SPACE.baseline)
    assert not knowledge.is_open(at(24))
    assert knowledge.is_open(at(32))


def test_far_over_the_limit_is_hopeless_and_a_little_over_is_not():
    knowledge = knowing()
    assert LIMIT < LANDSCAPE.peak_bytes(at(48)) < 1.3 * LIMIT
    assert knowledge.is_open(at(48))
    assert not knowledge.is_open(at(96))


def test_where_something_ran_out_of_memory_no_less_recompute_and_no_larger_batch_is_tried():
    knowledge = knowing(at(64, gelu=12))
    assert not knowledge.is_open(at(64, gelu=6))
    assert not knowledge.is_open(at(96, gelu=12))
    assert knowledge.is_open(at(64, gelu=12, Block=3))
    assert knowledge.is_open(at(48, gelu=12))


def test_while_nothing_fits_no_larger_batch_is_tried():
    tight = LANDSCAPE.peak_bytes(SPACE.baseline) - MIB
    baseline = Observation(0, SPACE.baseline, "baseline", "scored", 300.0, LANDSCAPE.peak_bytes(SPACE.baseline))
    knowledge = Knowledge(SPACE, FACTS, tight, [baseline])
    assert not knowledge.is_open(at(24, Block=12))
    assert knowledge.is_open(at(16, Block=12))
    assert knowledge.is_open(at(8))


def test_what_is_slower_than_the_best_by_far_rules_out_more_recompute_at_that_batch_size_and_below():
    knowledge = knowing(at(32), at(16, gelu=12))
    assert knowledge.best.configuration == at(32)
    assert not knowledge.may_win(at(16, gelu=12, Block=3))
    assert not knowledge.may_win(at(8, gelu=12))
    assert knowledge.may_win(at(32, gelu=12))
    assert knowledge.may_win(at(48, gelu=12, Block=12))


def test_feasible_is_under_the_limit_without_thrashing_and_with_a_finite_loss():
    def judged(outcome, *, baseline_is_finite=True):
        return is_feasible(outcome.measurement, 100, baseline_is_finite=baseline_is_finite)

    assert judged(measured(10.0, 8, 100))
    assert not judged(measured(10.0, 8, 101))
    assert not judged(measured(10.0, 8, 50, allocator_retries=1))
    assert not judged(measured(10.0, 8, 50, nonfinite_loss=True))
    assert judged(measured(10.0, 8, 50, nonfinite_loss=True), baseline_is_finite=False)


def scored(outcome, expected_bytes=None):
    return score(outcome, 1000, expected_bytes=expected_bytes, baseline_is_finite=True)


def test_a_sampler_is_told_by_how_much_the_limit_is_missed_or_kept():
    assert scored(measured(10.0, 8, 900)).violation == pytest.approx(-0.1)
    assert scored(measured(10.0, 8, 1300)).violation == pytest.approx(0.3)
    assert scored(measured(10.0, 8, 900, allocator_retries=1)).violation > 0


def test_out_of_memory_is_no_samples_and_the_largest_excess_known():
    failure = OutOfMemory("out of memory", needed_bytes=1500)
    assert scored(failure).samples_per_s == 0.0
    assert scored(failure).violation == pytest.approx(0.5)
    assert scored(failure, expected_bytes=2000.0).violation == pytest.approx(1.0)
    assert scored(HostOutOfMemory("killed")).violation == pytest.approx(0.1)


def test_other_failures_teach_a_sampler_nothing():
    assert scored(ScriptError("ValueError")) is None
    assert scored(measured(10.0, 8, 900, nonfinite_loss=True)) is None


CHOOSING = build_space(FACTS, StudySpec(script="train.py", engine="ortmodule", choices=("compute-optimizer",)))


def with_choice(value, batch_size, **counts):
    point = CHOOSING.plain_point | {f"{name}+": count for name, count in counts.items()}
    return CHOOSING.configuration(point | {"batch_size": batch_size, "compute-optimizer": value})


def choosing(*configurations):
    tried = [seen(i, one) for i, one in enumerate((CHOOSING.baseline, *configurations))]
    return Knowledge(CHOOSING, FACTS, LIMIT, tried)


def test_what_one_choice_shows_says_nothing_of_the_other():
    too_large = with_choice(1, 48, gelu=6)
    assert not LANDSCAPE.fits(too_large)
    knowledge = choosing(too_large, with_choice(1, 16), with_choice(1, 16, Block=12))
    assert not knowledge.is_open(with_choice(1, 48))
    assert knowledge.is_open(with_choice(0, 48))
    assert not knowledge.may_win(with_choice(1, 16, Block=12, gelu=12))
    assert knowledge.may_win(with_choice(0, 16, Block=12, gelu=12))


def test_the_fastest_is_tried_with_each_choice_made_otherwise_once_the_other_seeds_are_done():
    knowledge = choosing()
    tried = []
    while chosen := next_seeds(knowledge):
        tried += chosen
        knowledge = choosing(*tried)
    (otherwise,) = [one for one in tried if one.choices]
    best = max((one for one in tried if not one.choices and LANDSCAPE.fits(one)), key=LANDSCAPE.samples_per_s)
    assert otherwise == tried[-1]
    assert otherwise == dataclasses.replace(best, choices=("compute-optimizer=0",))
