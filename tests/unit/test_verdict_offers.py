"""What compiling brings, by one run of it: told where it is more than chance, and may be the answer."""

from __future__ import annotations

import dataclasses

import pytest

from autotune.records.configuration import Configuration
from autotune.records.outcome import Measured, OutOfMemory
from autotune.records.study import CompiledRun, Objective, Repeat, StudyRecord, StudySpec, Trial, Verdict
from autotune.verdict.gain import compiled_gain
from tests.fakes.landscape import MIB, Landscape, measured

FACTS = Landscape().facts
BASELINE = FACTS.baseline
LIMIT = 900 * MIB
COMPILED = Configuration("inductor", (), 0, 16)
SPEED, MEMORY = Objective(), Objective("memory")
STEADY, ROUGH = (100.0, 100.4, 99.8), (100.0, 108.0, 94.0)


def came_to(rate, peak_mib=800, **flags):
    return measured(rate, 16, peak_mib * MIB, **flags)


def study(outcome, rates=STEADY, *, answer=BASELINE, objective=SPEED, peak_mib=800):
    """A study whose answer is the script as it is, measured in these repetitions, and once compiled."""
    trials = (Trial(0, BASELINE, "finished", came_to(100.0, peak_mib)),)
    repetitions = tuple(Repeat(BASELINE, number, came_to(rate, peak_mib)) for number, rate in enumerate(rates))
    compiled = CompiledRun("compile", answer, COMPILED, outcome)
    verdict = Verdict("baseline_best", BASELINE, "", "", LIMIT, compiled=compiled)
    spec = StudySpec(script="train.py", objective=objective)
    return StudyRecord("a study", spec, 0.0, "0.1.0", FACTS, trials, repetitions, verdict)


def test_a_gain_beyond_the_scatter_of_the_answer_s_repetitions_is_told_by_their_mean():
    assert compiled_gain(study(came_to(140.0))) == pytest.approx(1.4, rel=0.01)


@pytest.mark.parametrize(
    ("rate", "rates", "is_told"),
    [
        (104.0, STEADY, False),
        (107.0, STEADY, True),
        (117.0, ROUGH, False),
        (140.0, ROUGH, True),
        (108.0, (), False),
        (112.0, (), True),
        (80.0, STEADY, False),
    ],
    ids=["too little", "little", "within noise", "beyond noise", "nobody knows", "far enough", "slower"],
)
def test_less_than_chance_may_bring_is_not_told(rate, rates, is_told):
    assert (compiled_gain(study(came_to(rate), rates)) is not None) == is_told


def test_measured_once_on_a_busy_machine_an_answer_may_be_as_fast_by_itself():
    record = study(came_to(180.0), ())
    assert compiled_gain(record) is not None
    measurement = dataclasses.replace(came_to(100.0).measurement, contended=True)
    busy = dataclasses.replace(record, trials=(Trial(0, BASELINE, "finished", Measured(measurement)),))
    assert compiled_gain(busy) is None
    assert compiled_gain(dataclasses.replace(busy, repeats=study(came_to(180.0)).repeats)) is not None


@pytest.mark.parametrize(
    "outcome",
    [
        OutOfMemory("out of memory"),
        came_to(140.0, 901),
        came_to(140.0, allocator_retries=1),
        came_to(140.0, nonfinite_loss=True),
        came_to(0.0),
    ],
    ids=["out of memory", "over the limit", "thrashed", "no number", "not counted"],
)
def test_what_may_not_be_the_answer_brings_nothing(outcome):
    assert compiled_gain(study(outcome)) is None


def test_what_was_compiled_of_another_answer_says_nothing_of_this_one():
    assert compiled_gain(study(came_to(140.0), answer=Configuration(batch_size=32))) is None


def test_without_such_a_run_there_is_nothing_to_tell():
    record = study(came_to(140.0))
    assert compiled_gain(dataclasses.replace(record, verdict=None)) is None
    verdict = dataclasses.replace(record.verdict, compiled=None)
    assert compiled_gain(dataclasses.replace(record, verdict=verdict)) is None


def test_in_search_of_memory_it_is_memory_that_counts_and_no_slower():
    assert compiled_gain(study(came_to(101.0, 600), objective=MEMORY)) == pytest.approx(800 / 600)
    assert compiled_gain(study(came_to(140.0, 800), objective=MEMORY)) is None
    assert compiled_gain(study(came_to(90.0, 600), objective=MEMORY)) is None
