"""What is printed while a study runs: a line for each trial, and the one that moves."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from autotune.cli.live.display import Display
from autotune.launch.port import Event
from autotune.records.configuration import Configuration
from autotune.records.outcome import OutOfMemory, ScriptError
from autotune.records.plan import Plan
from autotune.records.study import StudySpec
from autotune.records.words import brief_words
from autotune.search.space import build_space
from autotune.tuning.budget import Interruption
from tests.fakes.landscape import measured
from tests.fakes.study_record import LIMIT_BYTES, WINNER, proof, study_record

SPACE = build_space(study_record().facts, StudySpec(script="/x/train.py", batch_sizes=(16, 64)))


@pytest.fixture
def display():
    """A display that writes to ``display.written()``; the moving line is ``display.line()``."""
    file = io.StringIO()
    spec = StudySpec(script="/x/train.py", time_budget_s=600.0, memory_limit_bytes=2 * LIMIT_BYTES)
    shown = Display(Console(file=file, width=200), spec, Interruption())
    shown.written = file.getvalue
    shown.line = shown._line
    shown.interruption = shown._interruption
    return shown


def test_the_first_run_says_once_that_the_script_runs_for_real(display):
    display.discovering()
    assert display.written().count("really runs your script") == 1
    assert "`finally:` blocks" in display.written()
    assert "autotune then undoes its changes to files (--leave-files" in display.written()


def test_a_limit_above_what_there_is_is_pointed_out(display):
    record = study_record()
    display.discovered(record.facts, record.baseline.outcome, LIMIT_BYTES)
    assert "--memory-limit 48 GiB is more than there is: 24 GiB" in display.written()


def test_a_loss_that_is_not_a_number_is_flagged(display):
    record = study_record()
    nan = replace(record.baseline.outcome.measurement, nonfinite_loss=True)
    display.discovered(record.facts, replace(record.baseline.outcome, measurement=nan), LIMIT_BYTES)
    assert "loss is NaN or infinite" in display.written()


def test_a_note_that_the_script_and_its_measurement_have_is_told_once(display):
    record = study_record()
    measurement = replace(record.baseline.outcome.measurement, notes=("of both", "of its steps"))
    facts = replace(record.facts, notes=("of both",))
    display.discovered(facts, replace(record.baseline.outcome, measurement=measurement), LIMIT_BYTES)
    assert [display.written().count(f"note: {one}") for one in measurement.notes] == [1, 1]


def test_each_trial_has_its_line_and_the_best_so_far_is_marked(display):
    record = study_record()
    display.discovered(record.facts, record.baseline.outcome, LIMIT_BYTES)
    display.trial_ended(1, WINNER, measured(400.0, 48, LIMIT_BYTES // 2))
    display.trial_ended(2, Configuration(batch_size=24), measured(100.0, 24, LIMIT_BYTES // 2))
    display.trial_ended(3, Configuration(batch_size=96), measured(900.0, 96, LIMIT_BYTES + 1))
    display.trial_ended(4, Configuration(batch_size=99), OutOfMemory("out of memory in backward", phase="backward"))
    first, second, third, fourth = display.written().splitlines()[-4:]
    assert "best so far" in first
    assert "best so far" not in second
    assert "over the limit" in third
    assert "best so far" not in third
    assert "out of memory in backward" in fourth


def test_a_cause_of_several_lines_takes_one_and_moves_no_cursor(display):
    display.trial_ended(3, Configuration("eager", (), 0, 16), ScriptError("first\nsecond\x1b[2J"))
    assert display.written().count("\n") == 1
    assert "first" in display.written()
    assert "\x1b" not in display.written()


def test_what_cannot_win_is_not_the_best_so_far(display):
    display.trial_ended(3, Configuration("eager", (), 0, 16), measured(900.0, 16, 1, allocator_retries=2))
    assert "best so far" not in display.written()


def test_what_a_repetition_rules_out_is_the_best_no_more_whatever_ruled_it_out(display):
    record = study_record()
    display.discovered(record.facts, record.baseline.outcome, LIMIT_BYTES)
    display.trial_ended(1, WINNER, measured(400.0, 48, LIMIT_BYTES // 2))
    display.repeated(WINNER, 0, measured(400.0, 48, LIMIT_BYTES // 2))
    assert "best 400.0 samples/s" in display.line()
    display.repeated(WINNER, 1, measured(400.0, 48, LIMIT_BYTES // 2, allocator_retries=3))
    assert re.search(r"best 15[\d.]+ samples/s", display.line())


def test_the_moving_line_says_what_runs_the_best_so_far_and_the_time_left(display):
    record = study_record()
    display.discovered(record.facts, record.baseline.outcome, LIMIT_BYTES)
    display.searching(SPACE)
    display.run_began((), (WINNER,))
    display.event((), Event("step", 0, 7, "forward", None, 1.0))
    line = display.line()
    assert f"step 7, {brief_words(WINNER, record.facts.clusters)}" in line
    assert re.search(r"best 15[\d.]+ samples/s", line)
    assert re.search(r"(10m|9m59s) left", line)
    display.interruption.finish.set()
    assert "Ctrl-C again stops now" in display.line()


def test_the_baseline_is_no_setting_among_the_finalists(display):
    own, other = study_record().facts.baseline, WINNER
    display.discovered(study_record().facts, measured(400.0, 16, LIMIT_BYTES // 2), LIMIT_BYTES)
    display.repeating((own, other), 28)
    display.repeating((other,), 2)
    said = [line for line in display.written().splitlines() if line.startswith("Confirmation: ")]
    assert said == [
        "Confirmation: 1 setting and your script, measured again in turns, at most 28 runs",
        "Confirmation: 1 setting, measured again in turns, at most 2 runs",
    ]


def test_finalists_that_are_alike_in_words_are_told_apart_by_their_codes(display):
    first, second, third = (
        Configuration("aot", tuple(Plan(f"{name}+", 1, -1) for name in names), batch_size=16)
        for names in (("a", "b", "c"), ("a", "b", "d"), ("a",))
    )
    display.repeating((first, second, third), 4)
    for one in (first, second, third):
        display.repeated(one, 0, measured(400.0, 16, LIMIT_BYTES // 2))
    lines = display.written().splitlines()
    assert lines[-3].endswith("batch 16, a+:1:-1 b+:1:-1 c+:1:-1")
    assert lines[-2].endswith("batch 16, a+:1:-1 b+:1:-1 d+:1:-1")
    assert lines[-1].endswith("batch 16, recompute all a operators")


def test_a_search_is_told_in_batch_sizes_and_kinds(display):
    display.searching(SPACE)
    display.searching(replace(SPACE, batch_sizes=(16,), choices={"bf16": (0, 1)}))
    display.searching(replace(SPACE, batch_sizes=(32,), counts={}, clusters=()))
    display.searching(replace(SPACE, batch_sizes=(), counts={}, clusters=()))
    several, one, other, none = [line for line in display.written().splitlines() if line]
    sizes, kinds = len(SPACE.batch_sizes), len(SPACE.counts)
    assert several.startswith(f"Searching {sizes} batch sizes (16 to 64) and {kinds} kinds of plans: at most 60 trials")
    assert one.startswith(f"Searching {kinds} kinds of plans and bf16 at batch size 16: at most 60 trials")
    assert none == "There is nothing to search: one batch size, and no plan that may help."
    assert other.startswith("Searching nothing but the script at batch size 32: at most 60 trials")


def test_the_moving_line_names_each_device(display):
    display.searching(SPACE)
    for devices in ((0,), (1, 2)):
        display.run_began(devices, (WINNER,))
    assert "device 0: " in display.line()
    assert "devices 1,2: " in display.line()
    assert "\n" not in display.line()


def test_a_resumed_search_says_what_is_done_already_and_goes_on_where_a_repetition_rules_the_best_out():
    record = study_record()
    file = io.StringIO()
    shown = Display(Console(file=file, width=200), record.spec, Interruption(), known=record.trials)
    shown.discovered(record.facts, record.baseline.outcome, LIMIT_BYTES)
    shown.searching(SPACE)
    shown.searching_again()
    assert f"{len(record.trials)} trials are done already, the best 18" in file.getvalue()
    assert "Search goes on, because a repetition ruled a finalist out" in file.getvalue()


def test_a_loss_that_is_no_number_is_flagged_in_its_trials_line(display):
    display.trial_ended(1, WINNER, measured(400.0, 48, 1, nonfinite_loss=True))
    assert "the loss is NaN or infinite" in display.written()


def test_a_repetition_that_failed_says_of_what(display):
    display.repeated(WINNER, 2, OutOfMemory("out of memory in backward"))
    assert display.written().startswith("repetition 3  out of memory in backward  ")


def test_time_that_is_too_short_for_repetitions_is_told_with_what_they_take(display):
    display.no_time(150.4)
    assert "repetitions and equivalence check take about 2m30s." in display.written()


def test_a_proof_is_told_at_once_only_where_it_does_not_hold(display):
    display.proved(proof())
    assert display.written() == ""
    display.proved(replace(proof(), answer="inexact", statement="Gradients differ."))
    assert display.written() == "Gradients differ.\n"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"leaves_files": True}, "its changes to files stay (--leave-files)."),
        ({"working_directory": "/x/.autotune/scratch"}, "in /x/.autotune/scratch."),
    ],
)
def test_the_first_run_says_what_becomes_of_files(changes, said):
    file = io.StringIO()
    spec = replace(StudySpec(script="/x/train.py"), **changes)
    Display(Console(file=file, width=200), spec, Interruption()).discovering()
    assert f"including its `finally:` blocks; {said}\n" in file.getvalue()


def test_the_moving_line_says_how_long_discovery_takes_and_when_it_stops(display):
    display.discovering()
    assert re.search(r"Discovery, \d+s so far: starting the script", display.line())
    display.interruption.finish.set()
    display.interruption.cancel.set()
    assert ", stopping: " in display.line()


def test_the_moving_line_says_how_long_a_description_may_take_and_forgets_that_with_the_run(display):
    display.discovering()
    display.event((), Event("describing", 0, 9, "optimizer", None, 8.0, may_take_s=90.0))
    assert display.line().endswith(" of at most 1m30s")
    display.event((), Event("ended", 0, 9, "optimizer", None, 60.0))
    assert "at most" not in display.line()


def test_a_baseline_that_failed_has_no_figures_to_print(display):
    display.discovered(study_record().facts, OutOfMemory("out of memory"), LIMIT_BYTES)
    assert "Baseline" not in display.written()


@pytest.mark.parametrize("reason", ["the study was stopped", "It failed."])
def test_why_it_is_not_known_what_compiling_would_bring_is_one_sentence(display, reason):
    display.compiled(Configuration("inductor"), None, reason=reason)
    assert f"The gain from compiling is unknown: {reason.rstrip('.')}.\n" in display.written()
