"""What is printed of a study that is over: the facts that discovery found, and the answer."""

from __future__ import annotations

import io
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from rich.console import Console

from autotune.cli import gate, options, tables
from autotune.cli.summary import how_to_go_on, how_to_launch, print_summary
from autotune.errors import UsageError
from autotune.records.facts import AccumulationControl, BatchControl, OutsideFacts
from autotune.records.inference import InferenceFacts, InferenceMoment, InferencePhase, OperatorTime
from autotune.records.outcome import OutOfMemory, ScriptError
from autotune.records.study import CompiledRun, Objective, Remark
from autotune.report.answer import compiled_sentence
from autotune.report.build import build_report, describe_facts
from tests.fakes.landscape import measured
from tests.fakes.study_record import LAYERS, WINNER, baseline_best, study_record


def test_of_many_plans_the_first_are_printed_and_the_rest_counted():
    facts = study_record().facts
    rows = tuple(replace(facts.clusters[1], cluster_id=f"op{number}+") for number in range(60))
    console = Console(file=io.StringIO(), width=200)
    tables.print_facts(console, describe_facts(replace(facts, clusters=rows, dimensions={}, calibration=None)))
    written = console.file.getvalue()
    shown = len(re.findall(r"^op\d+\+", written, re.MULTILINE))
    assert 0 < shown < 60
    assert f"\n… and {60 - shown} more\n" in written
    assert "\nsavings of several plans cannot be summed\n" in written, "no sizes are told with it"


def test_where_no_plan_can_be_had_nothing_is_said_of_savings():
    facts = replace(study_record().facts, clusters=(), outside=(OutsideFacts("LSTM", 1, 8),))
    console = Console(file=io.StringIO(), width=200)
    tables.print_facts(console, describe_facts(facts))
    written = console.file.getvalue()
    assert "LSTM" in written
    assert "savings" not in written


def test_a_model_has_all_of_its_phases_printed_and_the_slowest_operators():
    moments = tuple(InferenceMoment(phase, 1 << 20, 1 << 20) for phase in get_args(InferencePhase))
    operators = tuple(OperatorTime(f"Kind{number}", 1, 1.0, 8) for number in range(9))
    facts = replace(study_record().facts, clusters=(), inference=InferenceFacts(8, moments, operators))
    console = Console(file=io.StringIO(), width=200)
    tables.print_facts(console, describe_facts(facts))
    written = console.file.getvalue()
    assert all(re.search(f"^{phase} ", written, re.MULTILINE) for phase in get_args(InferencePhase))
    assert "… and 3 more" in written


def test_facts_without_plans_say_why_and_what_is_left():
    def told(**changes):
        console = Console(file=io.StringIO(), width=300)
        tables.print_facts(console, describe_facts(replace(study_record().facts, clusters=(), **changes)))
        return console.file.getvalue()

    assert "No plans: nothing in this script can be recomputed." in told()
    undescribed = told(undescribed=OutOfMemory("out of memory"))
    assert "No plans" not in undescribed
    assert "could not be described: out of memory." in undescribed
    left_alone = told(batch_control=BatchControl("none", reason="no loader"))
    assert "Batch size is left alone: no loader. Pass the batch size as an option behind `--`, as " in left_alone
    assert "{batch_size:16}" in left_alone
    accumulates = AccumulationControl("none", 4)
    assert "Each optimizer step accumulates 4 micro-batches." in told(accumulation_control=accumulates)


def summary_of(record, bundle=None, *, width=200):
    console = Console(file=io.StringIO(), width=width)
    print_summary(console, record, bundle)
    return console.file.getvalue()


def test_who_has_the_best_setting_already_is_told_to_keep_it(tmp_path):
    assert "Keep running your script as you do" in summary_of(baseline_best(), tmp_path)
    assert "Keep running" not in summary_of(study_record(), tmp_path)


def test_the_summary_counts_failures_and_shows_the_first_that_is_not_about_memory():
    written = summary_of(study_record())
    assert "4 of 16 trials failed: 2 out of memory, 1 timed out, 1 script error." in written
    assert "no training step within 120 s" in written
    assert "autotune show train-9f2c --trial 15" in written


def test_commands_in_the_summary_are_in_one_line_on_a_narrow_terminal_too(tmp_path):
    (tmp_path / "stack.json").touch()
    name = "a long 'name' " * 8

    lines = summary_of(replace(study_record(), name=name), tmp_path, width=60).splitlines()

    (show,) = [line for line in lines if "autotune show" in line]
    (run,) = [line for line in lines if "autotune launch" in line]
    assert shlex.split(show.partition("log: ")[2]) == ["autotune", "show", name, "--trial", "15"]
    assert shlex.split(run)[-4:] == ["--", "--data", "my books", "--epochs=3"]


def test_the_summary_says_after_the_figures_what_was_proven_of_the_winner():
    record = study_record()
    written = summary_of(record)
    assert written.index("Winner ") < written.index("In the first 3 steps at batch 48, with the same seeds")
    unproven = summary_of(replace(record, verdict=replace(record.verdict, proofs=())))
    assert "Not checked yet: its gradients were not compared." in unproven
    assert "roven" not in summary_of(baseline_best())


def compiled(outcome, **changes):
    record = study_record(**changes)
    run = CompiledRun("compile", WINNER, replace(WINNER, engine="inductor", plans=(LAYERS,)), outcome)
    return replace(record, verdict=replace(record.verdict, compiled=run))


def test_who_compiles_on_is_told_of_the_choices_that_the_answer_made_unasked_too():
    record = compiled(measured(262.0, 48, 20 << 30))
    report = build_report(record)
    assert "--allow compile," in compiled_sentence(report)
    winner = replace(report.winner, configuration=replace(WINNER, choices=("expandable-segments=1",)))
    assert "--allow expandable-segments,compile," in compiled_sentence(replace(report, winner=winner))


def test_the_summary_says_what_compiling_would_bring_and_how_to_have_it():
    record = compiled(measured(262.0, 48, 20 << 30))
    assert (
        "Recomputing 4 of 12 Blocks at batch 48 compiled by Inductor gave about 1.4x as many samples per second as the "
        "answer (1 run): run the same command with --allow compile, as a new study, to search for the best."
    ) in " ".join(summary_of(record).split())
    spec = replace(record.spec, choices=("bf16",))
    assert "with --allow bf16,compile, as a new study" in " ".join(summary_of(replace(record, spec=spec)).split())
    memory = replace(record, spec=replace(record.spec, objective=Objective("memory")))
    less = compiled(measured(190.0, 48, 11 << 30), spec=memory.spec)
    assert "needed about 0.5x the answer's memory (1 run)" in " ".join(summary_of(less).split())


def test_who_has_the_best_setting_but_for_compiling_keeps_it_unless_it_is_compiled(tmp_path):
    record, own = baseline_best(), study_record().facts.baseline
    run = CompiledRun("compile", own, replace(own, engine="inductor"), measured(262.0, 16, 10 << 30))
    record = replace(record, verdict=replace(record.verdict, compiled=run))
    assert "Unless you compile, keep running your script as you do" in summary_of(record, tmp_path)


def test_the_summary_is_silent_of_compiling_that_brings_nothing_or_failed():
    for outcome in (measured(187.0, 48, 20 << 30), ScriptError("BackendError: no ptxas"), OutOfMemory("out of memory")):
        assert "ompil" not in summary_of(compiled(outcome))


def test_an_unconfirmed_answer_is_not_called_a_winner():
    record = study_record()
    assert "Winner " in summary_of(record)
    unsure = summary_of(replace(record, verdict=replace(record.verdict, kind_of_answer="undecided")))
    assert "Winner " not in unsure
    assert "Best so far" in unsure


def test_the_command_shown_can_be_typed_from_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    record = study_record()
    here = replace(record, spec=replace(record.spec, script=str(tmp_path / "a b" / "train.py"), python=sys.executable))
    assert how_to_launch(here, Path("out")) == "autotune launch out 'a b/train.py' -- --data 'my books' --epochs=3"
    elsewhere = replace(record, spec=replace(record.spec, arguments=()))
    assert how_to_launch(elsewhere, Path("out")) == (
        "autotune launch out /home/ada/gpt/train.py --python /home/ada/venv/bin/python"
    )


def test_the_command_to_go_on_names_the_database_where_it_is_not_the_default():
    record = study_record()
    assert how_to_go_on(record, options.DEFAULT_STORAGE).endswith("autotune resume train-9f2c")
    assert how_to_go_on(record, "my.db").endswith("autotune resume train-9f2c --storage my.db")


def test_what_is_left_to_confirm_is_told_with_the_time_that_it_takes():
    record = study_record()
    record = replace(record, verdict=replace(record.verdict, kind_of_answer="undecided", needed_s=95.0))
    assert how_to_go_on(record, options.DEFAULT_STORAGE) == (
        "To confirm what was found takes about 1m35s: autotune resume train-9f2c --time-budget 2m"
    )


def test_who_allowed_too_few_repetitions_to_confirm_anything_is_told_to_allow_more():
    record = study_record()
    record = replace(record, verdict=replace(record.verdict, kind_of_answer="undecided", needed_s=95.0))
    record = replace(record, spec=replace(record.spec, finalist_repetitions=2))
    assert how_to_go_on(record, options.DEFAULT_STORAGE) == (
        "Fewer than 3 repetitions confirm nothing: give its `autotune run` command again with --study train-9f2c "
        "--repetitions 14"
    )
    # Where the baseline does not fit, two repetitions are all that is measured.
    record = replace(record, verdict=replace(record.verdict, kind_of_answer="baseline_does_not_fit"))
    assert "autotune resume" in how_to_go_on(record, options.DEFAULT_STORAGE)


def test_a_study_that_made_all_its_trials_needs_more_of_them_to_go_on():
    record = study_record()
    record = replace(record, spec=replace(record.spec, max_trials=16))
    assert how_to_go_on(record, options.DEFAULT_STORAGE).endswith("autotune resume train-9f2c --max-trials 32")


def test_a_model_may_be_held_against_another_version_of_it_and_not_against_a_script(tmp_path):
    for name in ("model.onnx", "other.onnx", "train.py"):
        (tmp_path / name).touch()
    spec = replace(study_record().spec, script=str(tmp_path / "model.onnx"), engine="onnxruntime")
    assert gate.is_file(spec)
    other = gate.other_version(str(tmp_path / "other.onnx"), spec)
    assert other.script == str(tmp_path / "other.onnx")
    with pytest.raises(UsageError, match=r"no other version of model\.onnx"):
        gate.other_version(str(tmp_path / "train.py"), spec)
    assert not gate.is_file(replace(spec, script="/usr/bin/torchrun"))


def test_a_study_that_a_busy_machine_drowned_is_to_be_run_again_and_not_resumed():
    record = study_record()
    busy = tuple(
        replace(one, outcome=replace(one.outcome, measurement=replace(one.outcome.measurement, contended=True)))
        if one.measured
        else one
        for one in record.trials
    )
    drowned = replace(record.verdict, kind_of_answer="undecided", winner=None, is_drowned=True)
    for trials, ends in ((busy, "--study train-9f2c-2"), (record.trials, "autotune resume train-9f2c")):
        assert how_to_go_on(replace(record, trials=trials, verdict=drowned), options.DEFAULT_STORAGE).endswith(ends)
    assert how_to_go_on(replace(record, trials=busy), options.DEFAULT_STORAGE).endswith("autotune resume train-9f2c")
    interrupted = replace(record, trials=busy, verdict=drowned)
    assert "autotune resume" in how_to_go_on(interrupted, options.DEFAULT_STORAGE, is_interrupted=True)


def test_a_winner_of_memory_is_told_with_the_bound_on_its_peak():
    record = study_record()
    (won,) = record.verdict.comparisons
    won = replace(won, peak_ratio=0.8, peak_ratio_low=0.78, peak_ratio_high=0.82, found_fast="win")
    memory = replace(record, spec=replace(record.spec, objective=Objective("memory")))
    written = summary_of(replace(memory, verdict=replace(record.verdict, comparisons=(won,))))
    assert "At most 0.820x the memory of your script, and at least 1.166x as fast, in 3 repetitions." in written


def test_the_summary_says_a_reason_once():
    record = study_record()
    written = summary_of(record)
    assert written.count("1.18x the samples per second") == written.count("as fast as your script") == 1
    assert "At least 1.166x as fast as your script, in 3 repetitions." in written
    assert "Finalist " not in written, "all of a single one is said already"
    twice = replace(record.verdict, comparisons=record.verdict.comparisons * 2)
    assert "Finalist " in summary_of(replace(record, verdict=twice))
    unsure = summary_of(replace(record, verdict=replace(record.verdict, kind_of_answer="undecided")))
    assert unsure.count("not confirmed") == 1
    assert "It is 1.166x to 1.195x as fast as your script in 3 repetitions." in unsure
    doubted = replace(record.verdict, remarks=(Remark("machine_busy", "The machine was busy."),))
    assert "3 repetitions. The machine was busy." in summary_of(replace(record, verdict=doubted))


def test_sentences_of_a_log_are_not_broken():
    written = io.StringIO()
    console = tables.make_console()
    console.file = written
    console.print("word " * 100)
    assert written.getvalue().count("\n") == 1
