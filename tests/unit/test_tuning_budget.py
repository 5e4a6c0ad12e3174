"""The time budget: when a study ends, and what it keeps for its finalists."""

from __future__ import annotations

import dataclasses
import math
import threading

import pytest
from optuna.trial import TrialState

from autotune.records.configuration import Configuration
from autotune.records.measuring import Measuring
from autotune.records.outcome import Measured, OutOfMemory
from autotune.records.plan import Plan
from autotune.records.study import Trial
from autotune.search.cost.model import CostModel
from autotune.search.search import Search
from autotune.tuning import budget
from autotune.tuning.budget import Budget, Interruption, RunCancel
from autotune.tuning.context import Context
from autotune.tuning.costs import Costs
from autotune.verdict.search_end import out_of_time
from tests.fakes.landscape import MIB, Landscape, measured
from tests.fakes.session import Session, states

BASELINE = Configuration(batch_size=16)
# 1 s of warm-up and three steps of 1 s.
TRIAL = Measured(dataclasses.replace(measured(16.0, 16, MIB).measurement, warmup_s=1.0, step_times_s=(1.0, 1.0, 1.0)))


class Clock:
    def __init__(self, monkeypatch):
        self.now_s = 1000.0
        monkeypatch.setattr(budget.time, "monotonic", lambda: self.now_s)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def seconds(budget):
    """A budget in which a fresh run takes 10 s: 6 s to start, and a trial of 4 s."""
    budget.costs.note_trial(BASELINE, TRIAL, 10.0, is_fresh=True)
    return budget


def test_a_budget_is_over_when_its_time_is_spent(clock):
    budget = Budget(60.0, Interruption())
    assert budget.why_over() is None
    clock.now_s += 60.0
    assert budget.why_over() == out_of_time("The time budget is spent.")


def test_the_search_leaves_its_confirmations_their_time_and_some_to_spare(clock):
    budget = seconds(Budget(200.0, Interruption()))
    clock.now_s += 23.0  # 177 s left, and 167 of them are left for what follows a run of 10 s
    assert budget.why_search_over(150.0) is None
    assert budget.for_search_s(150.0) == pytest.approx(12.0)
    clock.now_s += 3.0
    assert "finalists" in budget.why_search_over(150.0).reason
    assert budget.why_search_over(0.0) is None


def test_the_next_trial_of_a_run_under_way_needs_no_start(clock):
    budget = seconds(Budget(200.0, Interruption()))
    clock.now_s += 30.0
    assert "finalists" in budget.why_search_over(150.0).reason
    assert budget.why_search_over(150.0, in_run=True) is None
    clock.now_s += 2.0
    assert "finalists" in budget.why_search_over(150.0, in_run=True).reason


def test_confirmations_that_do_not_fit_are_kept_no_time(clock):
    budget = seconds(Budget(200.0, Interruption()))
    clock.now_s += 50.0
    assert budget.for_search_s(180.0) == 150.0
    assert not budget.holds(180.0)
    assert budget.holds(159.0), "the budget may be passed by a twentieth"


def test_a_run_of_the_search_is_cut_off_where_the_time_for_confirmations_begins(clock):
    cancel = RunCancel(threading.Event(), clock.now_s + 5.0)
    assert not cancel.is_set()
    clock.now_s += 5.0
    assert cancel.is_set()


def test_a_run_may_be_ended_earlier_than_was_planned_and_not_later(clock):
    cancel = RunCancel(threading.Event(), clock.now_s + 5.0)
    cancel.ends_by(clock.now_s + 9.0)
    cancel.ends_by(clock.now_s + 3.0)
    clock.now_s += 3.0
    assert cancel.is_set()


def test_repetitions_cost_a_start_and_the_trial_as_it_was_measured(clock):
    costs = Costs()
    costs.note_trial(BASELINE, TRIAL, 10.0, is_fresh=True)  # 6 s of it before the first training call
    planned = Configuration("aot", (Plan("gelu+", 1, -1),), 0, 16)
    costs.note_trial(planned, TRIAL, 7.0)  # forked: 3 s
    assert (costs.start_s, costs.trial_s) == (3.0, 4.0)
    assert costs.repetition_s((BASELINE,)) == 10.0
    assert costs.repetition_s((planned,)) == 11.0, "1 s of warm-up more, as it may have been traced before"
    assert costs.confirmation_s((BASELINE, planned), 3) == 63.0
    assert costs.proof_s(planned) == pytest.approx(2 * (6.0 + 3 * 1.0) + 1.0)
    assert costs.proof_s(BASELINE) == 0.0


@pytest.mark.parametrize("can_fork", [False, True])
def test_a_trial_may_take_as_long_as_leaves_time_to_confirm_its_setting(clock, can_fork):
    costs = Costs()
    costs.note_trial(BASELINE, TRIAL, 10.0, is_fresh=True)
    costs.note_trial(Configuration(batch_size=8), TRIAL, 7.0)  # forked: 3 s
    trial_s = costs.confirmable_trial_s(200.0, (BASELINE,), 3, can_fork=can_fork)
    steps_s = (trial_s / 9,) * 9
    other = Configuration(batch_size=64)
    costs.note_trial(other, Measured(dataclasses.replace(TRIAL.measurement, warmup_s=0.0, step_times_s=steps_s)))

    entrants = (BASELINE, other)
    confirmed_s = costs.confirmation_s(entrants, 3, forked=entrants if can_fork else ())
    assert 3.0 + trial_s + confirmed_s == pytest.approx(200.0)
    assert costs.confirmable_trial_s(20.0, (BASELINE,), 3) == 0.0


def test_what_is_compiled_anew_is_compiled_in_its_trial_and_again_in_its_proof(clock):
    """Guards time kept for repetitions with code in the cache, and a proof that begins without the time to compile."""
    costs = Costs()
    costs.note_trial(BASELINE, TRIAL, 10.0, is_fresh=True)
    planned = Configuration("inductor", (Plan("gelu+", 1, -1),), 0, 16)
    costs.note_trial(planned, TRIAL, 7.0)
    assert costs.repetition_s((planned,)) == 10.0, "the trial's warm-up has the compiling in it"
    assert costs.proof_s(planned) == pytest.approx(6 * (6.0 + 3 * 1.0) + 3 * 1.0)


def test_what_compiling_takes_is_known_once_something_was_compiled_and_judged_before(clock):
    costs = Costs()
    costs.note_trial(BASELINE, TRIAL, 10.0, is_fresh=True)  # 6 s of it before the first training call
    assert costs.compiling_s("inductor") == 2 * 10.0, "such a run takes three times as long"
    assert costs.compiled_s(BASELINE, "inductor") == 30.0
    slow = Measured(dataclasses.replace(TRIAL.measurement, warmup_s=12.0))
    costs.note_trial(Configuration("inductor", (), 0, 16), slow, 21.0)
    assert costs.compiling_s("inductor") == 12.0
    assert costs.compiled_s(BASELINE, "inductor") == 22.0


def test_what_one_engine_takes_to_warm_up_says_nothing_of_another(clock):
    """Guards repetitions under aot that are kept the time to compile, and a proof that is not."""
    costs = Costs()
    costs.note_trial(BASELINE, TRIAL, 10.0, is_fresh=True)
    planned = Configuration("aot", (Plan("gelu+", 1, -1),), 0, 16)
    compiled = Configuration("inductor", (), 0, 16)
    costs.note_trial(planned, TRIAL, 7.0)
    costs.note_trial(compiled, Measured(dataclasses.replace(TRIAL.measurement, warmup_s=30.0)), 36.0)
    assert costs.repetition_s((planned,)) == 11.0
    assert costs.proof_s(planned) == pytest.approx(2 * (6.0 + 3 * 1.0) + 1.0)
    assert costs.proof_s(compiled) == pytest.approx(6 * (6.0 + 3 * 1.0) + 3 * 30.0)


def test_what_tracing_takes_is_known_once_something_was_traced_and_told_by_the_description_before(clock):
    costs = Costs()
    assert costs.tracing_s("aot") == 0.0
    costs.note_description(60.0)
    assert costs.tracing_s("aot") == 20.0
    slow = Measured(dataclasses.replace(TRIAL.measurement, warmup_s=12.0))
    costs.note_trial(Configuration("aot", (Plan("gelu+", 1, -1),), 0, 16), slow, 21.0)
    assert costs.tracing_s("aot") == 12.0


def test_repetitions_that_were_measured_say_what_others_take(clock):
    costs = Costs()
    costs.note_trial(BASELINE, TRIAL, 40.0, is_fresh=True)  # the first run of a day: nothing was in the caches
    assert costs.repetition_s((BASELINE,)) == 40.0
    costs.note_repetition(BASELINE, TRIAL, 9.0)
    assert costs.repetition_s((BASELINE,)) == 9.0
    assert costs.repetition_s((Configuration(batch_size=32),)) == 9.0


def test_proofs_start_afresh_however_many_repetitions_were_forked(clock):
    """Guards a proof that is begun with the time of forked starts, and cut off at the end of the study's time."""
    costs = Costs()
    costs.note_trial(BASELINE, TRIAL, 40.0, is_fresh=True)
    planned = Configuration("aot", (Plan("gelu+", 1, -1),), 0, 16)
    costs.note_repetition(planned, TRIAL, 10.0)
    for _ in range(3):
        costs.note_repetition(planned, TRIAL, 5.0, may_fork=True, is_fresh=False)
    assert costs.repetition_s((planned,), forked=(planned,)) == 5.0
    assert costs.repetition_s((planned,)) == 10.0, "the first of another confirmation"
    assert costs.proof_s(planned) == 2 * 6.0


def test_repetitions_after_the_first_cost_a_start_of_the_search_and_one_server(clock):
    """Guards a confirmation that does not begin for lack of time: each repetition counted as fresh processes."""
    costs = Costs()
    costs.note_trial(BASELINE, TRIAL, 10.0, is_fresh=True)  # 6 s of it before the first training call
    planned = Configuration("aot", (Plan("gelu+", 1, -1),), 0, 16)
    costs.note_trial(planned, TRIAL, 7.0)  # forked: 3 s
    both = (BASELINE, planned)
    assert costs.repetition_s(both) == 10.0 + 11.0
    assert costs.repetition_s(both, forked=both) == 3.0 + 7.0 + 8.0, (
        "3 s until the repetition's server has imported torch"
    )
    assert costs.repetition_s(both, forked=(planned,)) == 10.0 + 3.0 + 8.0
    assert costs.confirmation_s(both, 4, forked=both) == 21.0 + 3 * 18.0
    other_heap = dataclasses.replace(planned, choices=("tcmalloc=1",))
    costs.note_trial(other_heap, TRIAL, 7.0)
    assert costs.repetition_s((BASELINE, other_heap), forked=(BASELINE, other_heap)) == 2 * 3.0 + 7.0 + 8.0, (
        "each heap has a server"
    )


def test_repetitions_not_yet_measured_go_by_those_that_were(clock):
    costs = Costs()
    costs.note_trial(BASELINE, TRIAL, 10.0, is_fresh=True)
    planned = Configuration("aot", (Plan("gelu+", 1, -1),), 0, 16)
    both = (BASELINE, planned)
    costs.note_trial(planned, TRIAL, 7.0)
    costs.note_repetition(BASELINE, TRIAL, 12.0)  # its start took 8 s, and that of the search 3
    assert costs.repetition_s((BASELINE,), forked=both) == (12.0 - 5.0) + 5.0
    costs.note_repetition(planned, TRIAL, 14.0)
    costs.note_repetition(BASELINE, TRIAL, 11.0, may_fork=True, is_fresh=False)  # waited for the server
    costs.note_repetition(planned, TRIAL, 6.0, may_fork=True, is_fresh=False)
    assert costs.repetition_s(both, forked=both) == 11.0 + 6.0
    third = Configuration("aot", (Plan("tanh+", 1, -1),), 0, 16)
    assert costs.repetition_s((third,), forked=(third,)) == (7.0 + 2.0) / 2 + 4.0 + 1.0


def test_repetitions_that_could_not_be_forked_are_expected_to_take_what_they_took(clock):
    """Guards a confirmation that is begun with the time of forked repetitions where the fork server has failed."""
    costs = Costs()
    costs.note_trial(BASELINE, TRIAL, 10.0, is_fresh=True)
    costs.note_trial(BASELINE, TRIAL, 5.0)
    costs.note_repetition(BASELINE, TRIAL, 10.0)
    costs.note_repetition(BASELINE, TRIAL, 11.0, may_fork=True)
    assert costs.repetition_s((BASELINE,), forked=(BASELINE,)) == 11.0


def test_failures_are_early_and_tell_nothing(clock):
    costs = Costs()
    costs.note_trial(BASELINE, OutOfMemory("out of memory"), 1.0, is_fresh=True)
    costs.note_repetition(BASELINE, OutOfMemory("out of memory"), 1.0)
    assert (costs.start_s, costs.repetition_s((BASELINE,))) == (0.0, 0.0)


def test_a_short_study_measures_for_a_shorter_time():
    assert Measuring().paced(600.0) == Measuring()
    assert Measuring().paced(60.0).max_measure_s == 2.0


def test_a_baseline_over_the_limit_is_kept_no_time_for(tmp_path, clock):
    def before(run):
        clock.now_s += 10.0

    # With repetitions of the baseline to keep time for, there would be none for a trial.
    changes = {"time_budget_s": 100.0, "memory_limit_bytes": 1000 * MIB}
    session = Session(tmp_path, before=before, changes=changes)
    session.tune()
    assert len(session.searched) >= 2


def test_no_time_is_kept_for_finalists_as_long_as_there_are_none(tmp_path, clock):
    def before(run):
        clock.now_s += 20.0

    # Six repetitions and a proof would take all that is left after discovery.
    session = Session(tmp_path, before=before, changes={"time_budget_s": 180.0})
    session.tune()
    assert session.searched


def test_what_discovery_does_after_measuring_is_no_part_of_a_run(tmp_path, clock):
    def outcome_of(configuration):
        clock.now_s += 5.0
        return session.landscape.measure(configuration)

    def event(device, event):
        if event.kind == "ended" and len(session.launcher.runs) == 1:
            clock.now_s += 60.0

    session = Session(tmp_path, outcome_of=outcome_of, changes={"max_trials": 1})
    session.watcher.event = event
    own = session.tune().baseline
    assert own.finished_at - own.started_at == pytest.approx(5.0, abs=0.5)


def test_a_resumed_study_expects_runs_to_take_what_they_took(tmp_path, clock):
    trials = Session(tmp_path).tune().trials
    slow = [dataclasses.replace(one, started_at=0.0, finished_at=40.0, run_directory=str(one.number)) for one in trials]
    costs = Budget(100.0, Interruption(), slow).costs
    assert costs.repetition_s((trials[0].configuration,)) == pytest.approx(40.0, abs=1.0)
    assert costs.start_s == pytest.approx(40.0, abs=1.0)


@pytest.mark.parametrize("first", [TRIAL, OutOfMemory("out of memory")])
def test_a_start_is_what_passed_before_the_first_of_a_run_that_ended(first):
    trials = (
        Trial(0, BASELINE, "finished", TRIAL, run_directory="discovery", started_at=0.0, finished_at=10.0),
        Trial(1, Configuration(batch_size=64), "finished", TRIAL, run_directory="a", started_at=10.0, finished_at=50.0),
        Trial(2, Configuration(batch_size=32), "finished", first, run_directory="a", started_at=10.0, finished_at=21.0),
    )
    assert Costs(trials).start_s == (7.0 if first is TRIAL else 6.0), "no start of 36 s, nor one of a failure"


def test_an_interrupted_budget_is_over_at_once(clock):
    interruption = Interruption()
    budget = Budget(60.0, interruption)
    interruption.finish.set()
    assert budget.why_over().reason == "It was interrupted."
    assert not budget.holds(1)


def test_the_search_stops_in_time_for_its_finalists(tmp_path, clock):
    def before(run):
        clock.now_s += 10.0

    session = Session(tmp_path, before=before, changes={"time_budget_s": 120.0})
    record = session.tune()
    reason = record.verdict.stop_reason
    assert "kept for measuring the finalists" in reason or "the time that is left for it" in reason
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


def test_what_a_run_finds_is_kept_its_time_in_the_same_run(tmp_path, clock, monkeypatch):
    class Watched(RunCancel):
        def __init__(self, all_runs, ends_at):
            super().__init__(all_runs, ends_at)
            self.began_with = ends_at
            cancels.append(self)

    cancels = []
    monkeypatch.setattr("autotune.tuning.trials.RunCancel", Watched)
    session = Session(tmp_path, before=lambda run: setattr(clock, "now_s", clock.now_s + 10.0))
    session.tune()
    assert cancels[0]._ends_at < cancels[0].began_with


def test_with_no_time_for_all_repetitions_none_is_begun(tmp_path, clock):
    def before(run):
        clock.now_s += 40.0

    record = Session(tmp_path, before=before, changes={"time_budget_s": 100.0}).tune()
    assert record.repeats == ()
    assert record.verdict.kind_of_answer == "undecided"


def test_where_no_time_is_left_for_the_repetitions_it_is_said_how_much_they_need(tmp_path, clock):
    def before(run):
        clock.now_s += 40.0

    session = Session(tmp_path, before=before, changes={"time_budget_s": 100.0})
    session.tune()
    assert "no time" in session.watcher.said
    needed_s = session.watcher.needed_s

    again = session.again()
    again.study.set_spec(dataclasses.replace(again.spec, time_budget_s=needed_s))
    assert again.tune().verdict.kind_of_answer == "winner"


def test_repetitions_go_on_only_while_there_is_time_for_one_and_for_the_proof(tmp_path, clock, monkeypatch):
    # What trials took is in the database by this clock, and the second session expects as much.
    monkeypatch.setattr(budget.time, "time", lambda: clock.now_s)

    def outcome_of(configuration):
        clock.now_s += 10.0
        outcome = session.landscape.measure(configuration)
        request = session.launcher.runs[-1].request
        in_search = request.may_fork and not request.server
        if request.mode != "measure" or in_search or configuration.key == session.facts.baseline.key:
            return outcome
        ratio = 1.3 if session.watcher.repetitions[-1:] and session.watcher.repetitions[-1][0] % 2 else 0.97
        own_per_s = session.landscape.samples_per_s(session.landscape.baseline)
        return measured(ratio * own_per_s, configuration.batch_size, outcome.measurement.peaks.reserved)

    session = Session(tmp_path, outcome_of=outcome_of, changes={"time_budget_s": 240.0, "max_trials": 1})
    record = session.tune()
    assert 3 <= len({one.repetition for one in record.repeats}) < 12
    assert clock.now_s <= 1000.0 + 1.05 * 240.0
    assert record.verdict.kind_of_answer == "undecided"
    assert record.verdict.reason.code == "unconfirmed"

    again = session.again()
    session = again
    again.study.set_spec(dataclasses.replace(again.spec, time_budget_s=record.verdict.needed_s, max_trials=60))
    resumed = again.tune()
    assert repetitions_of_latest(resumed) > repetitions_of_latest(record), "the search left what the repetitions need"


def repetitions_of_latest(record):
    latest = max(one.confirmation for one in record.repeats)
    return len({one.repetition for one in record.repeats if one.confirmation == latest})


def test_a_doubtful_setting_and_a_missing_proof_need_time_to_confirm(tmp_path, clock):
    def outcome_of(configuration):
        clock.now_s += 10.0
        outcome = session.landscape.measure(configuration)
        if configuration.key == session.facts.baseline.key or not isinstance(outcome, Measured):
            return outcome
        own_per_s = session.landscape.samples_per_s(session.landscape.baseline)
        slow = measured(0.8 * own_per_s, configuration.batch_size, outcome.measurement.peaks.reserved)
        return Measured(dataclasses.replace(slow.measurement, contended=True))

    session = Session(tmp_path, outcome_of=outcome_of, changes={"time_budget_s": 50.0, "max_trials": 1})
    verdict = session.tune().verdict
    assert (verdict.kind_of_answer, verdict.winner) == ("undecided", session.facts.baseline)
    assert verdict.comparisons == ()
    assert verdict.needed_s >= 60.0


def test_before_each_run_of_the_search_it_is_told_how_long_the_search_may_last(tmp_path, monkeypatch):
    monkeypatch.setattr(Costs, "start_s", 6.0)
    monkeypatch.setattr(Costs, "trial_s", 4.0)
    session = Session(tmp_path)
    session.tune()
    assert session.watcher.forecasts[0] == 60.0, "max_trials, each a run of its own"
    assert session.watcher.forecasts == sorted(session.watcher.forecasts, reverse=True)
    two = Session(tmp_path / "two", changes={"devices": (0, 1)})
    two.tune()
    assert two.watcher.forecasts[0] == 30.0


def test_a_gain_is_confirmed_though_there_is_no_time_to_confirm_a_better_one(tmp_path, clock):
    """Guards an answer that nothing confirms: a later, faster trial whose repetitions took too long for the budget."""

    def outcome_of(configuration):
        size = configuration.batch_size
        is_slow = size > 2 * session.facts.baseline.batch_size
        clock.now_s += 30.0 if is_slow else 5.0
        taken = session.landscape.measure(configuration)
        # It warms up for long, and is fast then.
        warmup_s = 25.0 if is_slow else 1.0
        return Measured(dataclasses.replace(taken.measurement, warmup_s=warmup_s))

    changes = {"time_budget_s": 110.0, "batch_sizes": (16, 128), "engine": "eager"}
    session = Session(tmp_path, outcome_of=outcome_of, changes=changes)
    verdict = session.tune().verdict
    slow = [trial.configuration for trial in session.study.record().trials if trial.configuration.batch_size > 32]
    assert slow, "nothing slow was tried: the test shows nothing"
    assert verdict.kind_of_answer == "winner"
    assert verdict.winner.batch_size <= 32
    assert verdict.needed_s is None
    assert "better_unconfirmed" in [one.code for one in verdict.remarks]


def test_beside_a_gain_nothing_is_tried_that_there_is_no_time_to_confirm(tmp_path, monkeypatch):
    monkeypatch.setattr(Context, "confirmable_trial_s", lambda _: 1e-6)
    session = Session(tmp_path, changes={"batch_sizes": (16, 128), "engine": "eager"})
    record = session.tune()
    baseline, *tried = record.trials
    gains = [trial for trial in tried if trial.samples_per_s > baseline.samples_per_s]
    assert record.verdict.kind_of_answer == "winner"
    assert "longer than the time that is left" in record.verdict.stop_reason
    assert tried[-1].run_directory == gains[0].run_directory


@pytest.mark.parametrize("fits", [True, False])
def test_repetitions_of_a_baseline_that_does_not_fit_may_be_left_out(tmp_path, monkeypatch, fits):
    beside = set()

    def confirmable_s(self, left_s, entrants, repetitions, **_):
        beside.add(entrants)
        return math.inf

    monkeypatch.setattr(Costs, "confirmable_trial_s", confirmable_s)
    landscape = Landscape()
    limit = landscape.peak_bytes(landscape.baseline) + (MIB if fits else -MIB)
    session = Session(tmp_path, changes={"memory_limit_bytes": limit})
    session.tune()
    assert beside == {(session.facts.baseline,) if fits else ()}


def test_the_search_is_told_what_tracing_takes_and_fits_its_model_once_for_each_state(tmp_path, monkeypatch):
    told, fitted = [], []

    class Asking(Search):
        def ask(self, **given):
            told.append(given["tracing_s"])
            return super().ask(**given)

    def fit(context, observations):
        fitted.append(observations)
        return CostModel(context, observations)

    monkeypatch.setattr("autotune.tuning.trials.Search", Asking)
    monkeypatch.setattr("autotune.search.search.CostModel", fit)
    monkeypatch.setattr(Costs, "tracing_s", lambda *_: 7.0)
    Session(tmp_path).tune()
    assert set(told) == {7.0}
    assert fitted
    assert len(fitted) == len(set(fitted))
