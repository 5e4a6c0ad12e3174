"""Peaks that discovery alone tells, beside those that were measured."""

from __future__ import annotations

import dataclasses

from autotune import report
from autotune.predict import Predictor
from autotune.records import Configuration, Trial
from autotune.report import build_report
from autotune.report.chart import draw_foresight
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
    assert report.foresight_sentence(one) == "Discovery alone tells the peak of 1 trial: 50 % off."
    made = build_report(study((LARGER, measured(90, 16, 2)), (PLANNED, measured(80, 16, 1.25))))
    assert report.foresight_sentence(made) == (
        "Discovery alone tells the peaks of 2 trials: half of them within 35 %, the worst 50 % off."
    )
    assert report.foresight_sentence(build_report(study_record())) == ""


def test_what_is_told_exactly_lies_on_the_line():
    chart = draw_foresight(build_report(study((LARGER, measured(90, 16, 1)), (PLANNED, measured(80, 16, 2)))))
    exact, higher = chart.marks
    assert (
        abs((exact.x - chart.left) / (chart.right - chart.left) - (chart.bottom - exact.y) / (chart.bottom - chart.top))
        < 0.01
    )
    assert higher.y < exact.y
    assert draw_foresight(build_report(study_record())) is None
