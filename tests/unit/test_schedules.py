"""Learning rate schedules that were made for the script's own batch size, told at another one."""

from __future__ import annotations

import dataclasses

import pytest

from autotune.export.readme import render_readme
from autotune.export.stack import build_stack
from autotune.records.facts import BatchControl, EpochFacts
from autotune.records.measurement import Schedule
from autotune.records.outcome import Measured
from autotune.records.schedules import schedule_caution
from autotune.report.build import build_report
from autotune.report.sentences import batch_sentences
from tests.fakes.study_record import BASELINE, WINNER, accumulating, study_record

OPTIONS = BatchControl("loaders", (0,), options={"--heads": 16, "--train-batch": 16})
ONE_CYCLE = Schedule("OneCycleLR", 300, raises_beyond=True)


def cautioned(own, now, *, samples=4800, drops_last=True, winner=WINNER, micro_batches=1, control=OPTIONS):
    """The caution of a study whose script's and winner's trials had these schedules; an epoch has 4,800 samples."""
    record = accumulating(study_record(), micro_batches)
    given = {BASELINE.key: own, WINNER.key: now}

    def scheduled(trial):
        schedules = given.get(trial.configuration.key)
        if trial.measured is None or schedules is None:
            return trial
        measurement = dataclasses.replace(trial.measured, schedules=tuple(schedules))
        return dataclasses.replace(trial, outcome=Measured(measurement))

    epoch = None if samples is None else EpochFacts(samples, drops_last)
    facts = dataclasses.replace(record.facts, epoch=epoch, batch_control=control)
    record = dataclasses.replace(record, facts=facts, trials=tuple(map(scheduled, record.trials)))
    return schedule_caution(record, winner), record


def test_a_schedule_of_the_scripts_own_epochs_that_ends_too_late_is_told_with_the_option_to_pass():
    said, record = cautioned([ONE_CYCLE], [ONE_CYCLE])
    assert said == (
        "Your OneCycleLR is made for 300 steps: one epoch at your own batch size. At batch size 48, one epoch has 100 "
        "steps. If you train for one epoch, you end after 33.3 % of the schedule. Pass the batch size as an option "
        "instead, behind `--`: `--train-batch={batch_size:16}`."
    )
    stack = build_stack(record, WINNER)
    assert stack.cautions == (said,)
    assert " ".join(said.split()) in " ".join(render_readme(stack, "bundle", ()).split())
    report = build_report(record)
    assert batch_sentences(report)[-1] == said


@pytest.mark.parametrize(
    ("schedule", "end"),
    [
        (Schedule("OneCycleLR", 900, raises_beyond=True), "The script fails at step 901."),
        (
            Schedule("CosineAnnealingLR", 900),
            "If you train for 3 epochs, the schedule ends after 50 % of the training.",
        ),
    ],
)
def test_a_schedule_that_ends_too_early_is_told_with_what_happens_then(schedule, end):
    smaller = dataclasses.replace(WINNER, batch_size=8)
    record = cautioned([schedule], [schedule])[1]
    trial = next(one for one in record.trials if one.configuration.key == WINNER.key)
    trials = (*record.trials, dataclasses.replace(trial, number=99, configuration=smaller))
    measured = dataclasses.replace(trial.measured, batch_size=8, samples_per_step=(8,) * 24)
    trials = (*trials[:-1], dataclasses.replace(trials[-1], outcome=Measured(measured)))
    said = schedule_caution(dataclasses.replace(record, trials=trials), smaller)
    assert "900 steps: 3 epochs at your own batch size. At batch size 8, 3 epochs have 1,800 steps" in said
    assert end in said


@pytest.mark.parametrize(("drops_last", "steps"), [(True, 900), (False, 903)])
def test_epochs_are_recognized_with_and_without_a_last_batch_that_is_not_whole(drops_last, steps):
    schedule, other = Schedule("CosineAnnealingLR", steps), Schedule("CosineAnnealingLR", steps + 1)
    assert "3 epochs" in cautioned([schedule], [schedule], samples=4810, drops_last=drops_last)[0]
    assert cautioned([other], [other], samples=4810, drops_last=drops_last)[0] == ""


def test_a_schedule_of_accumulated_steps_is_recognized():
    schedule = Schedule("LambdaLR", 75)
    assert "75 steps: one epoch" in cautioned([schedule], [schedule], micro_batches=4)[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"now": [Schedule("OneCycleLR", 100, raises_beyond=True)]},  # it follows the batch size
        {"own": [Schedule("OneCycleLR", 1000)], "now": [Schedule("OneCycleLR", 1000)]},  # no whole epochs
        {"samples": None},
        {"winner": BASELINE},
        {"winner": dataclasses.replace(WINNER, batch_size=16)},
        {"winner": dataclasses.replace(WINNER, batch_size=64)},  # never measured
    ],
)
def test_nothing_is_said_of_schedules_that_fit_or_of_which_nothing_is_known(changes):
    given = {"own": [ONE_CYCLE], "now": [ONE_CYCLE]} | changes
    assert cautioned(**given)[0] == ""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"--bs": 16, "--heads": 16}, "`--bs={batch_size:16}`."),
        ({"--train_bsz": 16, "--heads": 16}, "`--train_bsz={batch_size:16}`."),
        ({"--workers": 16}, "as `--batch-size={batch_size:16}`"),
        ({}, "as `--batch-size={batch_size:16}`, or let the script ask `autotune.batch_size()`."),
        ({"--batch": 16, "--eval-batch": 16}, "`--batch={batch_size:16}`."),
        ({"--eval_batch_size": 16}, "as `--batch-size={batch_size:16}`"),
        ({"--batch": 16, "--latest-batch": 16}, "as `--batch-size={batch_size:16}`"),
        ({"--heads": 16, "--layers": 16}, "as `--batch-size={batch_size:16}`"),
        ({"--batch": 32}, "as `--batch-size={batch_size:16}`"),
    ],
)
def test_the_option_to_pass_is_the_only_one_that_can_be_meant(options, said):
    assert said in BatchControl("loaders", options=options).advice_to_pass(16)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"--batch_size": 128, "--hidden": 64}, "`--batch_size={batch_size:128}`."),
        ({"--hidden": 64}, "as `--batch-size={batch_size:32}`, where 32 stands for the script's own number"),
        ({"--batch": 16, "--micro-batch": 4}, "as `--batch-size={batch_size:32}`, where 32 stands for"),
    ],
)
def test_where_no_samples_were_counted_the_only_option_for_a_batch_size_is_named(options, said):
    assert said in BatchControl("none", options=options).advice_to_pass(None)


def test_an_item_may_be_a_whole_batch_whose_size_an_option_says():
    control = BatchControl("loaders", options={"--batch_size": 4})
    assert control.option(1) == "--batch_size={batch_size:4}"
    assert control.option(2) == ""


@pytest.mark.parametrize("how", ["arguments", "function"])
def test_whoever_passes_the_batch_size_already_is_not_told_to(how):
    control = BatchControl(how, options={"--bs": 16})
    assert control.advice_to_pass(16) == ""
    assert cautioned([ONE_CYCLE], [ONE_CYCLE], control=control)[0].endswith("33.3 % of the schedule.")


@pytest.mark.parametrize(
    "kept",
    [
        BASELINE,
        dataclasses.replace(WINNER, batch_size=16),
        dataclasses.replace(WINNER, batch_size=32, accumulation=2),
    ],
)
def test_a_setting_that_keeps_the_steps_of_an_epoch_is_told_nothing_however_they_are_rounded(kept):
    # 301 batches make 75.25 steps of four batches; the script's 3 epochs have 76 steps each.
    schedule = Schedule("CosineAnnealingLR", 228)
    record = cautioned([schedule], [schedule], samples=4810, drops_last=False, micro_batches=4)[1]
    trial = next(one for one in record.trials if one.configuration.key == BASELINE.key)
    trials = (*record.trials, dataclasses.replace(trial, number=99, configuration=kept))
    assert schedule_caution(dataclasses.replace(record, trials=trials), kept) == ""
    other = dataclasses.replace(kept, batch_size=64, accumulation=0)
    trials = (*record.trials, dataclasses.replace(trial, number=99, configuration=other))
    assert schedule_caution(dataclasses.replace(record, trials=trials), other) != ""
