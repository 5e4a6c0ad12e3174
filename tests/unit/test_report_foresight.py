"""Peaks that discovery alone tells, beside those that were measured."""

from __future__ import annotations

import dataclasses

import pytest

from autotune.predict.course import Moment
from autotune.predict.prediction import Predictor
from autotune.records.configuration import Configuration
from autotune.records.study import Trial
from autotune.report import foresight
from autotune.report.build import build_report
from autotune.report.chart import draw_foresight
from autotune.report.sentences import foresight_sentence
from tests.fakes.predictable import BLOCK, PREDICTABLE
from tests.fakes.study_record import measured, study_record

GIB = 1 << 30
OWN = Configuration("eager", (), 0, 8)
LARGER = Configuration("eager", (), 0, 16)
PLANNED = Configuration("aot", (BLOCK,), 0, 16)
WITH = [((), 8), ((), 16), ((BLOCK,), 16)]


def study(*tried, facts=PREDICTABLE):
    facts = dataclasses.replace(facts, baseline=OWN)
    trials = (Trial(0, OWN, "finished", measured(100, 8, 1)),)
    trials += tuple(Trial(number, one, "finished", outcome) for number, (one, outcome) in enumerate(tried, start=1))
    return dataclasses.replace(study_record(repeats=(), verdict=None), facts=facts, trials=trials)


def foreseen(record):
    return [point.foreseen_bytes for point in build_report(record).points]


def test_peaks_are_told_from_the_scripts_own_and_what_the_graphs_say_differs_from_it():
    own, larger, planned = foreseen(study((LARGER, measured(90, 16, 1)), (PLANNED, measured(80, 16, 1))))
    assert own is None, "it is what the others are told from"
    predictor = Predictor(PREDICTABLE)
    told = [predictor.predict(Configuration("aot", plans, 0, size)).peak_bytes for plans, size in WITH]
    assert (larger - GIB, planned - GIB) == (told[1] - told[0], told[2] - told[0])
    assert larger > GIB


def test_speeds_are_told_from_the_scripts_own_and_the_time_of_what_is_recomputed():
    record = study((LARGER, measured(90, 16, 1)), (PLANNED, measured(80, 16, 1)))
    own, larger, planned = (point.foreseen_samples_per_s for point in build_report(record).points)
    measurement = record.trials[0].measured.measurement
    again_s = Predictor(PREDICTABLE).predict(PLANNED).recompute_time_s
    assert own is None
    assert larger == measurement.samples_per_s, "what a larger batch brings is not told"
    assert planned == pytest.approx(8 / (8 / measurement.samples_per_s + again_s), rel=0.01)
    assert planned < larger


def test_what_cannot_be_simulated_is_not_told():
    other = Configuration("ortmodule", (), 0, 16)
    chosen = dataclasses.replace(LARGER, choices=("bf16=1",))
    assert foreseen(study((other, measured(90, 16, 1)), (chosen, measured(90, 16, 1)))) == [None] * 3
    without = dataclasses.replace(PREDICTABLE, graphs=())
    assert foreseen(study((LARGER, measured(90, 16, 1)), facts=without)) == [None] * 2
    unmeasured = study((LARGER, measured(90, 16, 1)))
    assert foreseen(dataclasses.replace(unmeasured, trials=unmeasured.trials[1:])) == [None]


def test_it_is_said_how_far_off_they_are():
    # The graphs are of some hundred bytes, so what they tell is the script's own peak.
    one = build_report(study((LARGER, measured(90, 16, 2))))
    speed = "It tells the speed of 1 trial: 11.1 % off; what a larger batch brings is not in that, only trials tell it."
    assert foresight_sentence(one) == f"Discovery alone tells the peak of 1 trial: 50 % off. {speed}"
    made = build_report(study((LARGER, measured(90, 16, 2)), (PLANNED, measured(80, 16, 1.25))))
    told = (
        "Discovery alone tells the peaks of 2 trials: half of them within 35 %, the worst 50 % off. It tells the speeds"
    )
    assert foresight_sentence(made).startswith(told)
    assert foresight_sentence(build_report(study_record())) == ""


def test_what_is_told_exactly_lies_on_the_line():
    made = build_report(study((LARGER, measured(100, 16, 1)), (PLANNED, measured(80, 16, 2))))
    peaks, speeds = draw_foresight(made)
    for chart, is_higher in ((peaks, True), (speeds, False)):
        exact, other = chart.marks
        across = (exact.x - chart.left) / (chart.right - chart.left)
        assert across == pytest.approx((chart.bottom - exact.y) / (chart.bottom - chart.top), abs=0.01)
        assert (other.y < exact.y) == is_higher
    assert draw_foresight(build_report(study_record())) == ()


def steps(*tried, winner=None):
    record = study(*tried)
    if winner is not None:
        verdict = dataclasses.replace(study_record().verdict, winner=winner, proofs=(), comparisons=())
        record = dataclasses.replace(record, verdict=verdict)
    return build_report(record).steps


def test_the_memory_over_a_step_comes_to_the_measured_peak():
    script, setting = steps((PLANNED, measured(80, 16, 2)), winner=PLANNED)
    assert (script.name, setting.name) == ("your script", "this setting")
    assert (max(script.totals), max(setting.totals)) == (GIB, 2 * GIB)
    assert script.parameters == 1010
    assert script.optimizer_state == 2000
    assert script.block_names == ("Block 1",)
    assert 0 < script.num_forward < len(script.gradients)


def test_the_memory_of_a_step_is_told_once_where_the_script_is_the_answer():
    assert [step.name for step in steps(winner=OWN)] == ["your script"]


def test_the_memory_of_a_setting_that_cannot_be_simulated_is_left_out():
    other = Configuration("ortmodule", (), 0, 16)
    assert [step.name for step in steps((other, measured(80, 16, 2)), winner=other)] == ["your script"]
    assert build_report(study_record()).steps == ()


def test_many_moments_and_blocks_become_few_and_no_peak_is_lost():
    moments = [Moment(number % 977, (), 0, 0, is_forward=True) for number in range(5000)]
    fewer = foresight._fewer(moments)
    assert len(fewer) == 80
    assert max(one.level for one in fewer) == 976
    assert foresight._fewer(moments[:3]) == moments[:3]
    groups = foresight._groups(50)
    assert len(groups) == 8
    assert [number for group in groups for number in group] == list(range(50))
    names = ["Block+"] * 50
    assert [foresight._group_name(names, group) for group in groups][:2] == ["Block 1 to 6", "Block 7 to 12"]
    assert foresight._groups(0) == []


def test_gradients_that_a_step_finds_are_there_from_its_beginning():
    trace = dataclasses.replace(PREDICTABLE.traces[0], gradients=700)
    (step,) = build_report(study(facts=dataclasses.replace(PREDICTABLE, traces=(trace,)))).steps
    assert step.gradients[0] == 700
