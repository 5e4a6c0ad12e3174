"""A winner's gain in parts: what is told apart was measured, and what was not measured is not told apart."""

from __future__ import annotations

import dataclasses
import math

import pytest

from autotune.records.configuration import Configuration
from autotune.records.outcome import Outcome
from autotune.records.study import Comparison, Objective, StudyRecord, Trial, Verdict
from autotune.report.answer import gain_sentences
from autotune.report.build import build_report
from autotune.verdict.gain import Gain, gain_of
from tests.fakes.study_record import BASELINE, GELU, LAYERS, LIMIT_BYTES, measured, out_of_memory, study_record

BATCH = Configuration(batch_size=48)
PLANNED = Configuration("aot", (GELU,), batch_size=48)
CHOSEN = Configuration("aot", (GELU,), batch_size=48, choices=("bf16=1",))
CHOSEN_PLAIN = Configuration(batch_size=48, choices=("bf16=1",))
OWN = (BASELINE, measured(100, 16, 10))


def won(*tried: tuple[Configuration, Outcome], speedup: float = 2.0, objective: Objective | None = None) -> StudyRecord:
    """A study whose winner is the last of its trials."""
    winner = tried[-1][0]
    trials = tuple(Trial(number, one, "finished", outcome) for number, (one, outcome) in enumerate(tried))
    whole = Comparison(winner, speedup, speedup, speedup, peak_ratio=0.5, found="win")
    record = study_record(repeats=())
    return dataclasses.replace(
        record,
        trials=trials,
        spec=dataclasses.replace(record.spec, objective=objective or Objective()),
        verdict=Verdict("winner", winner, "It won.", "it ended", LIMIT_BYTES, (whole,)),
    )


def gain(record: StudyRecord) -> Gain:
    found = gain_of(record)
    assert found is not None
    return found


def parts(record: StudyRecord) -> dict[tuple[str, ...], float]:
    return {part.kinds: round(part.factor, 3) for part in gain(record).parts}


def said(record: StudyRecord) -> str:
    return " ".join(gain_sentences(build_report(record)))


def test_a_gain_of_one_kind_is_all_of_what_the_repetitions_have_shown() -> None:
    record = won(OWN, (BATCH, measured(190, 48, 20)))
    assert parts(record) == {("batch_size",): 2.0}
    assert said(record) == "All of this comes from the batch size (48 instead of 16)."


def test_parts_are_those_of_the_settings_between_and_multiply_to_the_whole() -> None:
    tried = [OWN, (BATCH, measured(150, 48, 20)), (PLANNED, measured(144, 48, 18)), (CHOSEN, measured(288, 48, 15))]
    record = won(*tried)
    assert parts(record) == pytest.approx({("batch_size",): 1.5, ("recompute",): 0.96, ("choices",): 2.0}, rel=0.01)
    whole = gain(record)
    assert math.prod(part.factor for part in whole.parts) == pytest.approx(whole.factor)
    assert whole.missing == ()
    assert "1.50x from the batch size (48 instead of 16), 0.96x from recompute, 2.00x from bf16=1" in said(record)
    assert "each measured once in the search (2.88x the samples/s there)" in said(record)


def test_of_two_ways_the_one_that_was_measured_is_told() -> None:
    tried = [
        OWN,
        (BATCH, measured(150, 48, 20)),
        (CHOSEN_PLAIN, measured(300, 48, 18)),
        (CHOSEN, measured(288, 48, 15)),
    ]
    assert list(parts(won(*tried))) == [("batch_size",), ("choices",), ("recompute",)]


@pytest.mark.parametrize(
    ("between", "why"),
    [
        ((), "batch 48 without plans: not tried"),
        (((BATCH, out_of_memory()),), "batch 48 without plans: ran out of memory"),
    ],
)
def test_what_was_not_measured_is_not_told_apart(between: tuple[tuple[Configuration, Outcome], ...], why: str) -> None:
    smaller = Configuration(batch_size=24)
    record = won(OWN, (smaller, measured(120, 24, 15)), *between, (PLANNED, measured(190, 48, 20)))
    assert parts(record) == {("batch_size", "recompute"): 2.0}
    assert said(record) == (
        "How much of 2.00x is from the batch size (48 instead of 16) and how much from recompute is not known "
        f"({why}). Without recompute the fastest trial that fits was batch 24 without plans, at 1.20x."
    )


def test_recompute_that_makes_room_is_said_to() -> None:
    record = won(OWN, (BATCH, measured(200, 48, 30)), (PLANNED, measured(190, 48, 20)))
    assert parts(record) == pytest.approx({("batch_size",): 2.0, ("recompute",): 0.95}, rel=0.01)
    assert "Batch 48 without plans does not fit by itself." in said(record)
    assert "Without recompute nothing that was tried and fits was faster than your script." in said(record)


def test_where_only_the_script_itself_was_tried_without_recompute_no_more_is_said() -> None:
    record = won(OWN, (PLANNED, measured(190, 48, 20)))
    assert said(record).endswith("Without recompute only your script's own setting was tried.")
    again = won(OWN, (BASELINE, measured(101, 16, 10)), (PLANNED, measured(190, 48, 20)))
    assert said(again) == said(record)


def test_where_memory_is_sought_the_parts_are_of_memory() -> None:
    smaller, planned = Configuration(batch_size=8), Configuration("aot", (LAYERS,), batch_size=8)
    tried = [OWN, (smaller, measured(99, 8, 8)), (planned, measured(98, 8, 6))]
    record = won(*tried, objective=Objective("memory"))
    assert parts(record) == pytest.approx({("batch_size",): 0.8, ("recompute",): 0.75}, rel=0.01)
    assert "(0.60x the memory there): 0.80x from the batch size (8 instead of 16), 0.75x from recompute." in said(
        record
    )


def test_compiling_comes_before_what_is_the_engines() -> None:
    compiled = Configuration("inductor", batch_size=48)
    winner = Configuration("inductor", (GELU,), batch_size=48, choices=("bf16=1",))
    found = gain(won(OWN, (compiled, measured(150, 48, 20)), (winner, measured(190, 48, 20))))
    assert found.parts[0].kinds == ("batch_size", "compilation")
    assert found.parts[0].reached == compiled
    assert set(found.parts[1].kinds) == {"choices", "recompute"}


def test_the_accumulation_goes_with_the_batch_size() -> None:
    small, winner = Configuration(batch_size=8, accumulation=2), Configuration("aot", (GELU,), 0, 8, (), 2)
    record = won(OWN, (small, measured(120, 8, 8)), (winner, measured(150, 8, 7)))
    assert parts(record) == pytest.approx({("batch_size",): 1.2, ("recompute",): 1.25}, rel=0.01)


def test_only_a_winner_has_a_gain() -> None:
    record = won(OWN, (BATCH, measured(190, 48, 20)))
    assert record.verdict is not None
    undecided = dataclasses.replace(record, verdict=dataclasses.replace(record.verdict, kind_of_answer="undecided"))
    assert gain_of(undecided) is None
    assert said(undecided) == ""
    assert gain_of(study_record(verdict=None)) is None


def test_a_winner_that_differs_in_nothing_that_is_told_apart_has_no_parts() -> None:
    assert gain_of(won(OWN, (BASELINE, measured(190, 16, 10)))) is None
