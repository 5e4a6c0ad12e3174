"""Expectations from simulation: calibrated to what was measured, and the plans that follow from them."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from autotune.predict import Predictor
from autotune.records import BatchControl, Calibration, ClusterFacts, Configuration, StudySpec
from autotune.search import build_space
from autotune.search.forecast import Forecast, Predictions
from autotune.search.knowledge import Knowledge, Observation
from autotune.search.seeds import next_seeds
from tests.fakes.predictable import BLOCK, DROPOUT, GRAPH, PREDICTABLE

KIB = 1024
# A thousand times the graph that is counted by hand, twice: the second runs on top of what the first has saved.
LARGE = replace(GRAPH, formulas=("10", "100000*batch", "10000*batch", "4"), workspace=())
FACTS = replace(
    PREDICTABLE,
    baseline=Configuration(),
    graphs=(LARGE, LARGE),
    clusters=(
        ClusterFacts("Block+", 1, 2, 1_600_000, "200000*batch", 2e-5, is_layer=True),
        ClusterFacts("dropout+[mask]", 1, 2, 160_000, "20000*batch", 6e-6),
    ),
)
SPACE = build_space(FACTS, StudySpec(script="train.py"))
PREDICTOR = Predictor(FACTS)
# What a process holds besides.
OFFSET = 5_000_000


def simulated(*plans, batch=8):
    return PREDICTOR.predict(Configuration("aot", plans, batch_size=batch)).peak_bytes


def seen(number, configuration, peak_bytes, limit):
    return Observation(number, configuration, "seed", "scored", 10.0, peak_bytes, peak_bytes <= limit)


def knowing(limit, *observed, facts=FACTS):
    own = seen(0, SPACE.baseline, simulated() + OFFSET, limit)
    return Knowledge(
        SPACE, facts, limit, [own, *(seen(n + 1, one, peak, limit) for n, (one, peak) in enumerate(observed))]
    )


def test_one_measured_peak_tells_what_a_process_holds_besides() -> None:
    knowledge = knowing(1 << 40)
    assert knowledge.simulates
    for batch in (4, 8, 64):
        for plans in ((), (DROPOUT,), (BLOCK,)):
            expected = knowledge.peak_bytes(Configuration("aot", plans, batch_size=batch))
            assert expected == simulated(*plans, batch=batch) + OFFSET


def test_measured_peaks_far_apart_tell_how_they_grow() -> None:
    measured = [
        (Configuration("aot", batch_size=batch), OFFSET + 1.2 * simulated(batch=batch)) for batch in (8, 16, 32)
    ]
    forecast = Forecast(Predictions(FACTS, SPACE), SPACE, measured)
    expected = forecast.peak_bytes(Configuration("aot", (DROPOUT,), batch_size=64))
    assert expected == pytest.approx(OFFSET + 1.2 * simulated(DROPOUT, batch=64), rel=0.03)


def test_noise_in_plans_of_one_batch_size_says_nothing_about_larger_ones() -> None:
    plain = [(SPACE.plain(batch), OFFSET + simulated(batch=batch)) for batch in (8, 16, 32)]
    plans = ((), (DROPOUT,), (BLOCK,), (BLOCK, DROPOUT))
    for signs in itertools.product((-1, 1), repeat=len(plans)):
        noisy = [
            (Configuration("aot", some, batch_size=8), (OFFSET + simulated(*some)) * (1 + 0.02 * sign))
            for some, sign in zip(plans, signs, strict=True)
        ]
        forecast = Forecast(Predictions(FACTS, SPACE), SPACE, [*plain, *noisy])
        expected = forecast.peak_bytes(Configuration("aot", (DROPOUT,), batch_size=64))
        assert expected == pytest.approx(OFFSET + simulated(DROPOUT, batch=64), rel=0.06)


def test_recompute_takes_as_much_longer_as_the_batch_is_larger() -> None:
    knowledge = knowing(1 << 40)
    once, twice = (knowledge.recompute_time_s(Configuration("aot", (BLOCK,), batch_size=batch)) for batch in (8, 16))
    assert once == pytest.approx(20e-6)
    assert twice == pytest.approx(2 * once)


def test_where_nothing_can_be_simulated_the_plan_table_tells() -> None:
    elsewhere = Calibration("2.13.0", "another CPU", "float32/bfloat16", 2, {"batch": 8}, error=0.01)
    rough = knowing(1 << 40, facts=replace(FACTS, calibration=elsewhere))
    planned = Configuration("aot", (DROPOUT,), batch_size=16)
    assert not rough.simulates
    assert rough.peak_bytes(planned) == rough.estimate.peak_bytes(planned) != knowing(1 << 40).peak_bytes(planned)


def planned(*, layers=0, dropouts=0):
    return SPACE.configuration({"batch_size": 8, "Block+": layers, "dropout+[mask]": dropouts})


def test_a_baseline_over_the_limit_is_first_met_with_the_least_recompute_that_fits() -> None:
    assert simulated(BLOCK) < simulated(DROPOUT) < simulated()
    for limit in (simulated(DROPOUT), simulated(BLOCK)):
        knowledge = knowing(OFFSET + limit + KIB)

        def fitting(among, knowledge=knowledge):
            fits = (one for one in among if one.plans and knowledge.peak_bytes(one) <= knowledge.limit_bytes)
            return min(fits, key=knowledge.recompute_time_s)

        everything = [one for one in SPACE.configurations() if one.batch_size == 8]
        assert fitting(next_seeds(knowledge)) == fitting(everything)


def test_what_the_first_run_has_shown_is_used_before_anything_else_is_tried() -> None:
    """The engine turned out to need less than the script untouched: less recompute may do."""
    limit = OFFSET + simulated(BLOCK) + KIB
    deep = planned(layers=2, dropouts=2)
    as_expected = knowing(limit, (deep, OFFSET + simulated(BLOCK, DROPOUT)))
    assert planned(dropouts=2) not in next_seeds(as_expected)
    lighter = knowing(limit, (deep, simulated(BLOCK, DROPOUT)))
    assert planned(dropouts=2) in next_seeds(lighter)


def test_less_recompute_than_fits_is_not_tried_alone_where_it_should_miss_the_limit() -> None:
    limit = OFFSET + simulated(DROPOUT) + KIB
    known = knowing(limit, (planned(dropouts=2), OFFSET + simulated(DROPOUT)))
    assert all(known.recompute_time_s(one) > known.recompute_time_s(planned(dropouts=2)) for one in next_seeds(known))


def test_what_fits_is_known_where_the_batch_size_cannot_be_set_too() -> None:
    facts = replace(FACTS, batch_control=BatchControl("none"))
    space = build_space(facts, StudySpec(script="train.py"))
    limit = OFFSET + simulated(DROPOUT) + KIB
    fitting = space.configuration({"Block+": 0, "dropout+[mask]": 2})
    peaks = [(space.baseline, OFFSET + simulated()), (fitting, OFFSET + simulated(DROPOUT))]
    knowledge = Knowledge(space, facts, limit, [seen(number, *one, limit) for number, one in enumerate(peaks)])
    assert all(knowledge.peak_bytes(one) <= limit for one in next_seeds(knowledge))
    assert next_seeds(knowledge)[0].plans == planned(layers=2, dropouts=2).plans
