"""One run at the end of a study that was not allowed to compile: what that would bring."""

from __future__ import annotations

import dataclasses

import pytest

from autotune.errors import RunError
from autotune.records.codec import dumps, loads, to_json
from autotune.records.configuration import Configuration
from autotune.records.outcome import Fallback, Measured
from autotune.records.plan import Plan
from autotune.records.study import Remark, Verdict
from autotune.report.build import build_report
from autotune.tuning import budget
from autotune.tuning.confirmation import compiled_setting
from autotune.verdict.gain import compiled_gain
from tests.fakes.session import Session, new_landscape


def session_of(tmp_path, **more):
    """A study whose script Inductor may compile."""
    return Session(tmp_path, **{"compile_refusal": "", **more})


def compiled_runs(session):
    return [
        configuration
        for run in session.launcher.runs
        for configuration in run.request.configurations
        if configuration.engine == "inductor"
    ]


def test_the_answer_is_run_once_compiled_after_it_was_measured_and_proven(tmp_path):
    session = session_of(tmp_path)
    record = session.tune()
    winner = record.verdict.winner
    (compiled,) = compiled_runs(session)
    assert session.watcher.said[-2:] == ["compiling", "run"]
    assert session.launcher.runs[-1].request.configurations == (compiled,)
    assert not session.launcher.runs[-1].request.may_fork
    assert not session.launcher.runs[-1].request.kernel_search
    assert compiled.batch_size == winner.batch_size
    found = record.verdict.compiled
    assert (found.choice, found.answer, found.configuration) == ("compile", winner, compiled)
    assert isinstance(found.outcome, Measured)
    true = session.landscape.samples_per_s(compiled) / session.landscape.samples_per_s(winner)
    assert compiled_gain(record) == pytest.approx(true, rel=0.1), "that is what the landscape makes of it"
    assert true > 1.2
    assert [one.stage for one in record.verdict.spent.stages][-1] == "compiled"
    assert winner.engine != "inductor", "it is no answer"
    assert loads(Verdict, dumps(record.verdict)) == record.verdict


def test_the_answer_that_another_process_came_to_meanwhile_stays(tmp_path):
    session = session_of(tmp_path)
    words = Remark("winner", "Another process has measured finalists meanwhile.")

    def compiling(configuration):
        session.study.set_verdict(dataclasses.replace(session.study.record().verdict, reason=words))

    session.watcher.compiling = compiling
    verdict = session.tune().verdict
    assert (verdict.reason, verdict.compiled) == (words, None)
    assert len(compiled_runs(session)) == 1


FACTS = new_landscape().facts
BLOCKS, GELU = Plan("Block+", 1, 2), Plan("gelu+", 1, -1)
# What GELU saves at twice the script's own batch.
(GELU_ROW,) = (row for row in FACTS.clusters if row.cluster_id == "gelu+")
SAVED_BYTES = 2 * GELU_ROW.saving_bytes


def test_of_the_answer_s_plans_those_of_blocks_stay_as_operators_have_other_names_there():
    answer = Configuration("aot", (BLOCKS, GELU), 0, 32, ("bf16=1",))
    compiled = compiled_setting(answer, "inductor", FACTS, SAVED_BYTES)
    assert compiled == Configuration("inductor", (BLOCKS,), 0, 32, ("bf16=1",))


@pytest.mark.parametrize(
    ("plans", "room_bytes", "left"),
    [
        ((BLOCKS, GELU), SAVED_BYTES - 1, (Plan("Block+", 1, -1),)),
        ((GELU,), SAVED_BYTES - 1, (Plan("Block+", 1, -1),)),
        ((GELU,), SAVED_BYTES, ()),
        ((BLOCKS,), 0, (BLOCKS,)),
        ((), 0, ()),
    ],
    ids=["blocks and more", "operators", "room enough", "blocks alone", "no plans"],
)
def test_where_memory_has_no_room_for_what_operators_save_all_blocks_are_recomputed_in_their_place(
    plans, room_bytes, left
):
    answer = Configuration("aot" if plans else "eager", plans, 0, 32)
    assert compiled_setting(answer, "inductor", FACTS, room_bytes).plans == left


def test_without_blocks_nothing_takes_the_place_of_operators():
    facts = dataclasses.replace(FACTS, clusters=(GELU_ROW,))
    assert compiled_setting(Configuration("aot", (GELU,), 0, 32), "inductor", facts, 0).plans == ()


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({}, "Inductor's code for CPUs needs a C++ compiler"),
        ({"choices": ("compile",)}, ""),
        ({"engine": "inductor"}, ""),
    ],
    ids=["it cannot be had", "it was allowed", "it was asked for"],
)
def test_nothing_is_compiled_at_the_end_where(tmp_path, changes, refusal):
    session = session_of(tmp_path, changes=changes, compile_refusal=refusal)
    record = session.tune()
    assert record.verdict.compiled is None
    assert "compiling" not in session.watcher.said


def test_where_the_script_is_the_answer_it_is_that_what_is_compiled(tmp_path):
    landscape = dataclasses.replace(new_landscape(), overhead_s=0.0, clusters=())
    session = session_of(tmp_path, landscape=landscape, changes={"engine": "eager", "batch_sizes": (16, 16)})
    record = session.tune()
    assert record.verdict.kind_of_answer == "baseline_best"
    assert compiled_runs(session) == [Configuration("inductor", (), 0, 16)]
    assert compiled_gain(record) == pytest.approx(1.5, rel=0.1)


def test_an_answer_that_is_not_sure_is_not_compiled(tmp_path):
    session = session_of(tmp_path, changes={"max_trials": 1, "finalist_repetitions": 1})
    record = session.tune()
    assert record.verdict.kind_of_answer == "undecided"
    assert compiled_runs(session) == []


def test_without_the_time_for_it_nothing_is_compiled(tmp_path, monkeypatch):
    now_s = [1000.0]
    monkeypatch.setattr(budget.time, "monotonic", lambda: now_s[0])

    def before(run):
        now_s[0] += 10.0

    plenty = session_of(tmp_path / "plenty", before=before, changes={"time_budget_s": 3000.0})
    assert plenty.tune().verdict.compiled is not None
    needed_s = 10.0 * (len(plenty.launcher.runs) - 1)
    now_s[0] = 1000.0
    # A run takes 10 s, and one that compiles is taken to take three times as long.
    short = session_of(tmp_path / "short", before=before, changes={"time_budget_s": needed_s + 20.0})
    record = short.tune()
    assert record.verdict.kind_of_answer == plenty.study.record().verdict.kind_of_answer
    assert record.verdict.compiled is None


def failing(session, outcome):
    def outcome_of(configuration):
        return outcome if configuration.engine == "inductor" else session.landscape.measure(configuration)

    return outcome_of


def test_what_fails_compiled_changes_no_answer_and_is_told_in_the_report(tmp_path):
    usual = Session(tmp_path / "usual", landscape=new_landscape()).tune().verdict
    session = session_of(tmp_path / "failing", landscape=new_landscape())
    failed = Fallback("Inductor could not compile a graph: BackendError: no ptxas", advice="")
    session.launcher._outcome_of = failing(session, failed)
    record = session.tune()
    assert record.verdict.kind_of_answer == usual.kind_of_answer
    assert record.verdict.winner == usual.winner
    assert record.verdict.compiled.outcome == failed
    assert compiled_gain(record) is None
    assert to_json(build_report(record))["compiled"]["cause"] == failed.cause


def test_a_run_that_cannot_be_made_at_all_costs_nobody_the_answer(tmp_path):
    session = session_of(tmp_path)
    launch = session.launcher.run

    def run(request, **more):
        if request.configurations[0].engine == "inductor":
            raise RunError("the disk is full")
        return launch(request, **more)

    session.launcher.run = run
    record = session.tune()
    assert record.verdict.winner is not None
    assert record.verdict.compiled is None
    ((_, outcome, reason),) = session.watcher.compiled_runs
    assert (outcome, reason) == (None, "the disk is full")


def test_an_interruption_while_it_is_compiled_leaves_the_answer(tmp_path):
    session = session_of(tmp_path)
    launch = session.launcher.run

    def run(request, **more):
        if request.configurations[0].engine == "inductor":
            session.interruption.finish.set()
            session.interruption.cancel.set()
        return launch(request, **more)

    session.launcher.run = run
    verdict = session.tune().verdict
    assert verdict.winner is not None
    assert verdict.compiled is None
    assert verdict.needed_s is None
    ((_, _, reason),) = session.watcher.compiled_runs
    assert reason == "the study was stopped"


def test_a_run_that_takes_longer_than_the_budget_is_cut_off_and_counts_for_the_time_that_was_spent(
    tmp_path, monkeypatch
):
    now_s = [1000.0]
    monkeypatch.setattr(budget.time, "monotonic", lambda: now_s[0])
    session = session_of(tmp_path, changes={"time_budget_s": 3000.0})
    launch = session.launcher.run

    def run(request, **more):
        now_s[0] += 10_000.0 if request.configurations[0].engine == "inductor" else 1.0
        return launch(request, **more)

    session.launcher.run = run
    verdict = session.tune().verdict
    assert (verdict.kind_of_answer, verdict.compiled) == ("winner", None)
    assert [one.stage for one in verdict.spent.stages][-1] == "compiled"
    ((_, outcome, reason),) = session.watcher.compiled_runs
    assert (outcome, reason) == (None, "that run took longer than the time that was left")


def test_a_resumed_study_still_knows_what_compiling_brings_and_runs_nothing_for_it(tmp_path):
    session = session_of(tmp_path)
    first = session.tune()
    again = session.again()
    assert again.tune().verdict.compiled == first.verdict.compiled
    assert compiled_runs(again) == []


def test_another_answer_is_compiled_anew(tmp_path):
    session = session_of(tmp_path)
    record = session.tune()
    other = dataclasses.replace(record.verdict.compiled, answer=Configuration(batch_size=24))
    session.study.set_verdict(dataclasses.replace(record.verdict, compiled=other))
    assert compiled_gain(session.study.record()) is None, "it says nothing of this answer"
    again = session.again()
    assert again.tune().verdict.compiled.answer == record.verdict.winner
    assert len(compiled_runs(again)) == 1
