"""The time budget: when a study ends, and what it keeps for its finalists."""

from __future__ import annotations

import dataclasses

import pytest
from optuna.trial import TrialState

from autotune.records import OutOfMemory
from autotune.tuning import budget
from autotune.tuning.budget import Budget, Interruption
from tests.fakes.landscape import MIB
from tests.fakes.session import Session, states


class Clock:
    def __init__(self, monkeypatch):
        self.now_s = 1000.0
        monkeypatch.setattr(budget.time, "monotonic", lambda: self.now_s)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def test_a_budget_is_over_when_its_time_is_spent(clock):
    budget = Budget(60.0, Interruption())
    assert budget.why_over() == ""
    clock.now_s += 60.0
    assert budget.why_over() == "The time budget is spent."


def test_a_budget_keeps_time_for_the_finalists_and_for_the_run_about_to_begin(clock):
    budget = Budget(100.0, Interruption())
    budget.note_run(10.0, alone=True)
    clock.now_s += 29.0
    assert budget.why_over(runs_to_keep=6) == ""
    clock.now_s += 1.0  # 70 s left: six runs of 10 s, and the one about to begin
    assert "finalists" in budget.why_over(runs_to_keep=6)
    assert budget.why_over() == ""


def test_the_next_trial_of_a_run_under_way_needs_no_run_of_its_own(clock):
    budget = Budget(100.0, Interruption())
    budget.note_run(10.0, alone=True)
    clock.now_s += 35.0
    assert "finalists" in budget.why_over(runs_to_keep=6)
    assert budget.why_over(runs_to_keep=6, in_run=True) == ""
    clock.now_s += 5.0
    assert "finalists" in budget.why_over(runs_to_keep=6, in_run=True)


def test_a_baseline_over_the_limit_is_kept_no_time_for(tmp_path, clock):
    def before(run):
        clock.now_s += 10.0

    # With rounds of the baseline to keep time for, there would be none for a trial.
    changes = {"time_budget_s": 100.0, "memory_limit_bytes": 1000 * MIB}
    session = Session(tmp_path, before=before, changes=changes)
    session.tune()
    assert len(session.searched) >= 2


def test_no_time_is_kept_for_finalists_as_long_as_there_are_none(tmp_path, clock):
    def before(run):
        clock.now_s += 20.0

    # Six rounds and a proof would take all that is left after discovery.
    session = Session(tmp_path, before=before, changes={"time_budget_s": 180.0})
    session.tune()
    assert session.searched


def test_what_discovery_does_after_measuring_is_no_part_of_a_run(tmp_path, clock):
    noted = []

    def outcome_of(configuration):
        clock.now_s += 5.0
        return session.landscape.measure(configuration)

    def event(device, event):
        if event.kind == "ended" and len(session.launcher.runs) == 1:
            clock.now_s += 60.0

    session = Session(tmp_path, outcome_of=outcome_of, changes={"max_trials": 1})
    session.watcher.event = event
    note_run = Budget.note_run
    Budget.note_run = lambda self, seconds, *, alone: noted.append(seconds) or note_run(self, seconds, alone=alone)
    try:
        session.tune()
    finally:
        Budget.note_run = note_run
    assert max(noted) == 5.0


def test_a_budget_keeps_nothing_for_finalists_that_would_not_fit_anyway(clock):
    budget = Budget(100.0, Interruption())
    budget.note_run(30.0, alone=True)
    clock.now_s += 50.0
    assert budget.why_over(runs_to_keep=6) == ""
    assert not budget.holds(6)


def test_a_run_of_one_configuration_tells_more_than_a_shared_one(clock):
    budget = Budget(100.0, Interruption())
    budget.note_run(50.0, alone=False)
    assert not budget.holds(6)
    budget.note_run(1.0, alone=True)
    assert budget.holds(6)


def test_a_resumed_study_expects_runs_to_take_what_they_took(tmp_path, clock):
    first = Session(tmp_path)
    trials = first.tune().trials
    slow = [dataclasses.replace(one, started_at=0.0, finished_at=40.0, run_directory=str(one.number)) for one in trials]
    assert Budget(100.0, Interruption(), trials).holds(6)
    assert not Budget(100.0, Interruption(), slow).holds(6)


def test_an_interrupted_budget_is_over_at_once(clock):
    interruption = Interruption()
    budget = Budget(60.0, interruption)
    interruption.finish.set()
    assert budget.why_over() == "It was interrupted."
    assert not budget.holds(1)


def test_the_search_stops_in_time_for_its_finalists(tmp_path, clock):
    def before(run):
        clock.now_s += 10.0

    session = Session(tmp_path, before=before, changes={"time_budget_s": 120.0})
    record = session.tune()
    assert "kept for measuring the finalists" in record.verdict.stop_reason
    assert len(record.repeats) >= 6
    assert record.verdict.kind_of_answer == "winner"
    assert clock.now_s <= 1000.0 + 120.0 + 30.0


def test_a_run_of_several_configurations_ends_with_the_budget_too(tmp_path, clock):
    def outcome_of(configuration):
        if len(session.launcher.runs[-1].request.configurations) > 1:
            clock.now_s += 1000.0
        return session.landscape.measure(configuration)

    session = Session(tmp_path, outcome_of=outcome_of, changes={"time_budget_s": 1000.0, "max_trials": 60})
    record = session.tune()
    asked = sum(len(run.request.configurations) for run in session.launcher.runs)
    assert asked > sum(trial.outcome is not None for trial in record.trials), "no run was cut short"
    assert clock.now_s == 2000.0
    assert states(session)[TrialState.RUNNING] == 0


def test_only_whole_runs_tell_how_long_runs_take(tmp_path, clock, monkeypatch):
    """An early failure is quick; were it counted, too little time would be kept for the finalists."""

    def outcome_of(configuration):
        if configuration.key == session.facts.baseline.key or not session.failed:
            clock.now_s += 30.0
        if configuration.key == session.facts.baseline.key:
            return session.landscape.measure(configuration)
        session.failed = True
        return OutOfMemory("out of memory")

    session = Session(tmp_path, outcome_of=outcome_of, changes={"time_budget_s": 1000.0})
    session.failed = False
    noted, budgets = [], []
    monkeypatch.setattr(Budget, "note_run", lambda self, seconds, *, alone: noted.append(seconds))
    note_discovery = Budget.note_discovery
    monkeypatch.setattr(
        Budget, "note_discovery", lambda self, seconds: (budgets.append(self), note_discovery(self, seconds))
    )
    session.tune()
    assert noted == []
    assert budgets[0].needed_s(1) == 60.0, "discovery's is what runs are expected to take"


def test_a_final_is_expected_to_take_no_less_than_the_script_itself(clock):
    budget = Budget(1000.0, Interruption())
    budget.note_discovery(20.0)
    budget.note_run(3.0, alone=True)
    assert budget.needed_s(1) == 40.0
    budget.note_run(50.0, alone=True)
    budget.note_run(50.0, alone=True)
    assert budget.needed_s(1) == 100.0


def test_with_no_time_for_all_rounds_none_is_begun(tmp_path, clock):
    def before(run):
        clock.now_s += 40.0

    record = Session(tmp_path, before=before, changes={"time_budget_s": 100.0}).tune()
    assert record.repeats == ()
    assert record.verdict.kind_of_answer == "undecided"


def test_where_no_time_is_left_for_the_rounds_it_is_said_how_much_they_need(tmp_path, clock):
    def before(run):
        clock.now_s += 40.0

    session = Session(tmp_path, before=before, changes={"time_budget_s": 100.0})
    session.tune()
    assert "no time" in session.watcher.said
    needed_s = session.watcher.needed_s

    again = session.again()
    again.study.set_spec(dataclasses.replace(again.spec, time_budget_s=needed_s))
    assert again.tune().verdict.kind_of_answer == "winner"
