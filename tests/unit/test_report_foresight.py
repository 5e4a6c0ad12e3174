"""Peaks that discovery alone tells, beside those that were measured."""

from __future__ import annotations

import dataclasses

from autotune.predict.memory_timeline import Moment
from autotune.predict.prediction import Predictor
from autotune.records.configuration import Configuration
from autotune.records.study import Trial
from autotune.report import foresight
from autotune.report.build import build_report
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
