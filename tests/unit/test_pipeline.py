"""The data flow with fakes in place of processes and databases: order, crashes, devices, interruption."""

from __future__ import annotations

import dataclasses
import threading
import time

import pytest
from optuna.trial import TrialState

from autotune import pipeline
from autotune.errors import DiscoveryError, InterruptionError, RunError, UsageError
from autotune.records.configuration import Configuration
from autotune.records.outcome import Died, Fallback, Measured, NoEffect, OutOfMemory, ScriptError, TimedOut
from autotune.records.study import Objective, Trial
from autotune.search import optuna_trials
from autotune.store.claims import Owner
from autotune.tuning import trials
from autotune.tuning.budget import Budget
from autotune.tuning.context import memory_of
from autotune.verdict.memory_limit import memory_limit
from tests.fakes.landscape import ENVIRONMENT, MIB
from tests.fakes.session import SOMEBODY_DEAD, TOGETHER, Session, new_landscape, states


def test_a_study_goes_from_discovery_to_a_winner(tmp_path):
    session = Session(tmp_path)
    record = session.tune()
    assert record.verdict.kind_of_answer == "winner"
    landscape = session.landscape
    assert landscape.samples_per_s(record.verdict.winner) > landscape.samples_per_s(landscape.baseline)
    assert [name for name in session.watcher.said if name != "run"] == [
        "discovering",
        "discovered",
        "searching",
        "search ended",
        "finalists",
        "proof",
    ]
    assert record.facts == session.facts
    assert record.baseline.measured is not None


def test_no_configuration_is_searched_twice(tmp_path):
    session = Session(tmp_path)
    session.tune()
    assert len(session.searched) == len(set(session.searched)) > 2


def test_a_resumed_study_does_not_discover_again_and_repeats_nothing(tmp_path):
    first = Session(tmp_path, changes={"max_trials": 2})
    before = first.tune()
    second = first.again()
    second.study.set_spec(dataclasses.replace(second.spec, max_trials=10))
    record = second.tune()
    assert "discovering" not in second.watcher.said
    # What a run did not come to, as one before it ran out of memory, was not tried.
    tried = [trial.configuration.key for trial in record.trials if not trial.recovered]
    assert len(tried) == len(set(tried)) > len(before.trials)


# -- the order of committing


class Recorded:
    """A study that notes each writing call in ``log``, and crashes before the call number ``crash_at``."""

    WRITING = (
        *("recover", "add_trial", "set_facts", "untold", "begin", "finish", "mark_told", "release"),
        *("add_repeat", "set_verdict"),
    )

    def __init__(self, study, log, crash_at=None):
        self._study, self._log, self._crash_at = study, log, crash_at

    def __getattr__(self, name):
        value = getattr(self._study, name)
        return self.noted(name, value) if name in self.WRITING else value

    def noted(self, name, call):
        def noting(*arguments, **keywords):
            if len(self._log) == self._crash_at:
                raise Crash(name)
            self._log.append((name, arguments[0] if arguments else None))
            return call(*arguments, **keywords)

        return noting


class Crash(BaseException):
    """The process is gone at this point; nothing may handle it."""


def recorded_session(session, monkeypatch, crash_at=None):
    """The session's study and search, noted in one log."""
    log = []
    study = Recorded(session.study, log, crash_at)

    class RecordedSearch(trials.Search):
        def __init__(self, *arguments, **keywords):
            super().__init__(*arguments, **keywords)
            for name in ("add_baseline", "tell"):
                setattr(self, name, study.noted(name, getattr(self, name)))

    monkeypatch.setattr(trials, "Search", RecordedSearch)
    return study, log


def test_each_outcome_is_stored_before_the_search_is_told_and_marked_last(tmp_path, monkeypatch):
    session = Session(tmp_path)
    study, log = recorded_session(session, monkeypatch)
    record = session.tune(study)
    searched = [trial.number for trial in record.trials if trial.number > 0 and trial.outcome is not None]
    assert searched
    for number in searched:
        assert [name for name, about in log if about == number] == ["begin", "finish", "tell", "mark_told"]
    assert log[-1][0] == "set_verdict"


def test_each_outcome_is_stored_while_the_rest_of_its_run_goes_on(tmp_path):
    stored = []

    def outcome_of(configuration):
        stored.append(sum(trial.state == "finished" for trial in session.study.record().trials))
        return session.landscape.measure(configuration)

    session = Session(tmp_path, outcome_of=outcome_of, changes={"plans_first": TOGETHER})
    session.tune()
    shared = [len(run.request.configurations) for run in session.launcher.runs[1:]]
    assert max(shared) > 1, "no run of several configurations: the test shows nothing"
    # As the n-th search trial is measured, the baseline and the n-1 before it are stored already.
    assert stored[1:7] == [1, 2, 3, 4, 5, 6]


class Unstorable(Recorded):
    """A study whose database is full from the call number ``full_at`` of ``finish`` on."""

    def __init__(self, study, full_at):
        super().__init__(study, [])
        self._full_at = full_at

    def noted(self, name, call):
        def refusing(*arguments, **keywords):
            self._log.append(name)
            if name == "finish" and self._log.count("finish") >= self._full_at:
                raise RunError("no room left", hint="make room")
            return call(*arguments, **keywords)

        return refusing


def test_what_cannot_be_stored_is_kept_and_stored_when_the_study_goes_on(tmp_path, monkeypatch):
    first = Session(tmp_path, owner=SOMEBODY_DEAD, changes={"plans_first": TOGETHER})
    run = first.launcher.run
    # What a real run has measured by the time that it is cancelled comes in too.
    monkeypatch.setattr(first.launcher, "run", lambda *a, **k: run(*a, **k | {"cancel": threading.Event()}))
    with pytest.raises(RunError, match="no room left"):
        first.tune(Unstorable(first.study, full_at=2))
    measured = first.searched
    assert len(measured) > 2, "nothing was measured after what could not be stored: the test shows nothing"
    stored = [trial for trial in first.study.record().trials if trial.outcome is not None]
    assert len(stored) == 2, "the baseline and the first trial"

    second = first.again(owner=Owner.current(), outcome_of=None)
    record = second.tune()

    outcomes = {trial.configuration.key: trial.outcome for trial in record.trials}
    assert all(isinstance(outcomes[key], Measured) for key in measured)
    assert not set(measured) & set(second.searched)
    assert states(second) == {TrialState.COMPLETE: len(record.trials)}


def test_what_was_kept_of_another_configuration_is_not_taken_for_a_trial_s(tmp_path):
    trials.keep_unstored(tmp_path, 3, Configuration("aot"), ScriptError("it failed"), ENVIRONMENT)
    trial = Trial(3, Configuration("aot"), "running", run_directory=str(tmp_path))
    assert trials.kept_unstored(trial) == (ScriptError("it failed"), ENVIRONMENT)
    assert trials.kept_unstored(dataclasses.replace(trial, number=4)) is None
    assert trials.kept_unstored(dataclasses.replace(trial, configuration=Configuration("inductor"))) is None
    (tmp_path / "unstored-3.json").write_text('{"half":')
    assert trials.kept_unstored(trial) is None
    trials.keep_unstored(tmp_path / "gone", 3, Configuration("aot"), ScriptError("it failed"), None)


def test_a_run_is_told_the_rate_below_which_nothing_can_win_and_confirmations_are_measured_in_full(tmp_path):
    session = Session(tmp_path, changes={"plans_first": TOGETHER})
    record = session.tune()
    speeds = {trial.configuration: trial.measured.samples_per_s for trial in record.trials if trial.measured}
    fastest = record.baseline.measured.samples_per_s
    measuring = [run.request for run in session.launcher.runs if run.request.mode == "measure"]
    searching = [request for request in measuring if request.measuring.rate_to_beat is not None]
    assert searching[0].measuring.rate_to_beat == pytest.approx(0.9 * fastest)
    best = max(speeds.values())
    assert all(request.measuring.rate_to_beat <= best for request in searching)
    confirmations = measuring[len(searching) :]
    assert confirmations
    assert all(request.measuring == session.spec.measuring for request in confirmations)


def test_facts_are_stored_after_the_baseline_so_that_they_are_never_there_without_it(tmp_path, monkeypatch):
    session = Session(tmp_path)
    study, log = recorded_session(session, monkeypatch)
    session.tune(study)
    names = [name for name, _ in log]
    assert names.index("add_baseline") < names.index("add_trial") < names.index("set_facts") < names.index("tell")


@pytest.mark.parametrize("max_trials", [2, pytest.param(6, marks=pytest.mark.slow)])
def test_a_crash_between_any_two_writes_loses_no_stored_outcome_and_leaves_nothing_running(
    max_trials, tmp_path, monkeypatch
):
    changes = {"max_trials": max_trials}
    whole = Session(tmp_path / "whole", changes=changes)
    study, log = recorded_session(whole, monkeypatch)
    whole.tune(study)
    total = len(log)
    assert total > 4 * max_trials
    for crash_at in range(total):
        crashing = Session(tmp_path / str(crash_at), owner=SOMEBODY_DEAD, changes=changes)
        study, _ = recorded_session(crashing, monkeypatch, crash_at)
        with pytest.raises(Crash) as crash:
            crashing.tune(study)
        before = {trial.number: trial.outcome for trial in crashing.study.record().trials if trial.outcome is not None}
        where = f"crash number {crash_at}, before {crash.value}"

        monkeypatch.setattr(trials, "Search", trials.Search.__mro__[1])
        resumed = crashing.again(owner=Owner.current())
        record = resumed.tune()

        after = {trial.number: trial.outcome for trial in record.trials if trial.outcome is not None}
        assert before.items() <= after.items(), where
        assert [trial.number for trial in record.trials if trial.state == "running"] == [], where
        left = states(resumed)
        assert left[TrialState.RUNNING] == left[TrialState.WAITING] == 0, where
        measured = [trial.configuration.key for trial in record.trials if trial.measured]
        assert len(measured) == len(set(measured)), where
        assert record.verdict.kind_of_answer == "winner", where
        assert record.baseline is not None, where


# -- several devices


def test_two_devices_work_at_the_same_time_and_never_on_the_same_configuration(tmp_path):
    both = threading.Barrier(2, timeout=240)

    def before(run):
        if run in (1, 2):
            both.wait()  # passes only if two runs of the search are under way at once

    session = Session(tmp_path, before=before, changes={"devices": (0, 1)})
    record = session.tune()
    searched = session.searched
    assert len(searched) == len(set(searched))
    assert {run.devices for run in session.launcher.runs} == {(0,), (1,)}
    finalists = session.launcher.runs[-len(record.repeats) :]
    assert {run.devices for run in finalists} == {(0,)}, "repetitions on several devices compare devices"


def test_trials_of_two_devices_each_work_side_by_side(tmp_path):
    both = threading.Barrier(2, timeout=240)

    def before(run):
        if run in (1, 2):
            both.wait()

    session = Session(tmp_path, before=before, changes={"devices": (0, 1, 2, 3), "gpus_per_run": 2})
    session.tune()
    assert {run.devices for run in session.launcher.runs} == {(0, 1), (2, 3)}


def test_a_device_that_fails_ends_the_others_too_and_what_they_measured_is_kept(tmp_path):
    both = threading.Barrier(2, timeout=240)

    def before(run):
        if run in (1, 2):
            both.wait()
        if run == 2:
            raise RunError("the driver is gone")

    session = Session(tmp_path, before=before, changes={"devices": (0, 1), "max_trials": 60})
    with pytest.raises(RunError, match="driver"):
        session.tune()
    assert len(session.launcher.runs) < 10
    finished = [trial for trial in session.study.record().trials if trial.outcome is not None]
    assert len(finished) >= 2


# -- interruption


def test_the_first_interruption_starts_nothing_new_and_gives_an_answer(tmp_path):
    session = Session(tmp_path, before=lambda run: session.interruption.finish.set() if run == 3 else None)
    record = session.tune()
    assert len(session.launcher.runs) == 4
    assert record.verdict.stop_reason == "It was interrupted."
    assert record.repeats == ()
    assert states(session)[TrialState.RUNNING] == 0


def test_the_first_interruption_ends_a_run_after_the_trial_under_way(tmp_path):
    def outcome_of(configuration):
        if configuration.plans:
            session.interruption.finish.set()
        return session.landscape.measure(configuration)

    session = Session(tmp_path, outcome_of=outcome_of, changes={"plans_first": TOGETHER})
    record = session.tune()
    last = session.launcher.runs[-1].request.configurations
    assert len(last) > 1
    assert sum(bool(trial.configuration.plans and trial.measured) for trial in record.trials) == 1
    # What was not reached is asked for again.
    resumed = session.again(outcome_of=None)
    resumed.tune()
    assert {configuration.key for configuration in last[1:]} <= set(resumed.searched + resumed_first(resumed))


def resumed_first(session):
    """A resumed session has no discovery run: its first run is the search's."""
    return [configuration.key for configuration in session.launcher.runs[0].request.configurations]


def test_a_second_interruption_gives_back_what_was_running(tmp_path):
    def before(run):
        if run == 2:
            session.interruption.finish.set()
            session.interruption.cancel.set()

    session = Session(tmp_path, before=before)
    record = session.tune()
    assert len(session.launcher.runs) == 3
    given_back = [configuration.key for configuration in session.launcher.runs[-1].request.configurations]
    assert not {trial.configuration.key for trial in record.trials if trial.outcome} & set(given_back)
    resumed = session.again(before=lambda run: None)
    resumed.tune()
    assert resumed_first(resumed) == given_back


@pytest.mark.parametrize("signal", ["SIGINT", "SIGTERM"])
def test_a_run_that_died_of_the_interruption_itself_is_given_back_and_is_no_failure(tmp_path, signal):
    def outcome_of(configuration):
        if len(session.launcher.runs) == 3:
            session.interruption.finish.set()
            return Died(f"killed by {signal}", signal=signal)
        return session.landscape.measure(configuration)

    session = Session(tmp_path, outcome_of=outcome_of)
    record = session.tune()
    given_back = session.launcher.runs[-1].request.configurations[0]
    assert given_back.key not in {trial.configuration.key for trial in record.trials if trial.outcome is not None}
    resumed = session.again(outcome_of=None)
    resumed.tune()
    assert resumed_first(resumed)[0] == given_back.key


def test_a_discovery_that_died_of_the_interruption_itself_is_no_failure_of_the_script(tmp_path):
    def outcome_of(configuration):
        session.interruption.finish.set()
        return Died("killed by SIGTERM", signal="SIGTERM")

    session = Session(tmp_path, outcome_of=outcome_of)
    with pytest.raises(InterruptionError, match="stopped"):
        session.tune()


def test_a_run_that_dies_of_a_signal_by_itself_is_a_failure(tmp_path):
    def outcome_of(configuration):
        return Died("killed by SIGTERM", signal="SIGTERM") if configuration.plans else landscape.measure(configuration)

    landscape = new_landscape()
    record = Session(tmp_path, outcome_of=outcome_of).tune()
    assert any(isinstance(trial.outcome, Died) for trial in record.trials)


def test_an_interrupted_discovery_is_no_failure_of_the_script(tmp_path):
    session = Session(tmp_path)
    session.interruption.cancel.set()
    with pytest.raises(InterruptionError, match="stopped"):
        session.tune()


def test_an_interruption_during_discovery_keeps_the_discovery(tmp_path):
    session = Session(tmp_path, before=lambda run: session.interruption.finish.set())
    record = session.tune()
    assert record.facts is not None
    assert record.verdict.kind_of_answer == "undecided"
    assert record.verdict.winner is None


# -- a baseline that passes the limit


@pytest.mark.parametrize(("tensors_fit", "fits_below"), [(True, True), (True, False), (False, True)])
def test_a_script_that_passes_the_limit_by_what_the_allocator_keeps_is_measured_below_it(
    tmp_path, tensors_fit, fits_below
):
    session = Session(tmp_path)
    limit, own = session.landscape.limit_bytes, session.facts.baseline
    usual = session.landscape.measure(own)
    asked = []

    def outcome_of(configuration):
        asked.append(configuration)
        if configuration.key != own.key or (len(asked) > 1 and fits_below):
            return session.landscape.measure(configuration)
        if len(asked) > 1:
            return OutOfMemory("no memory left")
        allocated = limit - 1 if tensors_fit else limit + 1
        peaks = dataclasses.replace(usual.measurement.peaks, allocated=allocated, reserved=limit + 1)
        return Measured(dataclasses.replace(usual.measurement, peaks=peaks))

    session = session.again(outcome_of=outcome_of)
    record = session.tune()

    first, second = (run.request for run in session.launcher.runs[:2])
    assert first.memory_limit_bytes is None
    is_again = second.configurations == (own,) and second.memory_limit_bytes == limit
    assert is_again == tensors_fit
    baseline = next(trial for trial in record.trials if trial.configuration.key == own.key)
    fits = baseline.outcome.measurement.peaks.reserved <= limit
    assert fits == (tensors_fit and fits_below)


# -- a description that fails


def undescribed(session, failure):
    """Discovery measures the script, and describes nothing."""
    facts = dataclasses.replace(session.facts, clusters=(), graphs=(), undescribed=failure)
    session.launcher._facts = facts
    return facts


def test_what_could_not_be_described_for_its_size_is_described_once_more_at_half_the_batch(tmp_path):
    session = Session(tmp_path)
    facts = undescribed(session, OutOfMemory("the card is full"))
    record = session.tune()
    first, second, third = (run.request for run in session.launcher.runs[:3])
    assert [request.mode for request in (first, second, third)] == ["discover", "discover", "measure"]
    assert second.configurations == (Configuration(batch_size=facts.batch_size // 2),)
    assert first.ends_at == second.ends_at <= time.monotonic() + session.spec.time_budget_s
    assert record.facts.undescribed.cause.startswith("the card is full; at batch size")


def test_what_took_too_long_is_described_once_and_says_what_is_searched_afterwards(tmp_path):
    session = Session(tmp_path)
    undescribed(session, TimedOut("too long"))
    session.tune()
    assert [run.request.mode for run in session.launcher.runs[:2]] == ["discover", "measure"]
    assert session.launcher.runs[0].request.searches == ("plans", "batch_sizes")


def test_no_second_description_is_begun_that_the_budget_has_no_time_for(tmp_path):
    session = Session(tmp_path, changes={"time_budget_s": 0.5}, before=lambda run: time.sleep(0.4))
    undescribed(session, OutOfMemory("the card is full"))
    record = session.tune()
    assert [run.request.mode for run in session.launcher.runs[:2]] == ["discover"]
    assert isinstance(record.facts.undescribed, OutOfMemory)


def test_what_there_was_no_time_to_describe_is_described_by_a_later_session(tmp_path):
    first = Session(tmp_path, changes={"batch_sizes": (16, 16), "objective": Objective("memory", 0.5)})
    undescribed(first, TimedOut("too long"))
    record = first.tune()
    assert record.verdict.kind_of_answer == "undecided"
    assert "time was too short to find out what could be recomputed" in record.verdict.reason.text
    assert isinstance(record.facts.undescribed, TimedOut)

    second = first.again()
    record = second.tune()
    assert second.launcher.runs[0].request.mode == "discover"
    assert record.facts.undescribed is None
    assert record.facts.clusters == second.facts.clusters
    assert any(trial.configuration.plans for trial in record.trials)
    assert sum(trial.configuration.key == record.facts.baseline.key for trial in record.trials) == 1

    third = first.again()
    third.tune()
    assert all(run.request.mode != "discover" for run in third.launcher.runs)


LESS_MEMORY = {"objective": Objective("memory", 0.5)}
GIVEN = {"plans_first": TOGETHER[:1]}
COMPILED = {"engine": "inductor"}
LITTLE = {"memory_limit_bytes": new_landscape().peak_bytes(new_landscape().baseline) - MIB}
OTHER_SIZE = {"batch_sizes": (16, 32)}


@pytest.mark.parametrize("changes", [LESS_MEMORY, GIVEN, COMPILED, LITTLE, OTHER_SIZE])
def test_plans_are_tried_at_one_batch_size_where_they_may_bring_something(tmp_path, changes):
    record = Session(tmp_path, changes={"batch_sizes": (16, 16)} | changes).tune()
    assert any(trial.configuration.plans for trial in record.trials)
    assert "plans_not_searched" not in [one.code for one in record.verdict.remarks]


@pytest.mark.parametrize("reason", [None, TimedOut("too long")])
def test_plans_are_not_tried_for_speed_at_one_batch_size_that_fits(tmp_path, reason):
    session = Session(tmp_path, changes={"batch_sizes": (16, 16)})
    if reason is not None:
        undescribed(session, reason)
    record = session.tune()
    assert [trial.configuration for trial in record.trials] == [record.facts.baseline]
    assert record.verdict.kind_of_answer == "baseline_best"
    said = [one.code for one in record.verdict.remarks]
    assert said == (["plans_not_searched"] if reason is None else [])
    assert "at its batch size nothing else is worth trying" in record.verdict.reason.text


def test_a_study_that_has_tried_plans_goes_on_with_them(tmp_path):
    """Guards trials with plans that a space without any would take for the script itself."""
    first = Session(tmp_path, changes={"batch_sizes": (16, 32)})
    first.tune()
    second = first.again()
    second.study.set_spec(dataclasses.replace(second.spec, batch_sizes=(16, 16), max_trials=8))
    record = second.tune()
    assert any(trial.configuration.plans for trial in record.trials)
    assert "plans_not_searched" not in [one.code for one in record.verdict.remarks]
    observed = optuna_trials.observe(second.study.optuna, second.watcher.space)
    seen = {one.number: one.configuration for one in observed}
    planned = [trial for trial in record.trials if trial.configuration.plans and trial.number in seen]
    assert planned
    assert all(seen[trial.number] == trial.configuration for trial in planned)


def test_plans_that_a_cut_off_description_has_found_are_not_looked_for_again(tmp_path):
    first = Session(tmp_path)
    first.launcher._facts = dataclasses.replace(first.facts, graphs=(), undescribed=TimedOut("too long"))
    record = first.tune()
    assert any(trial.configuration.plans for trial in record.trials)

    second = first.again()
    second.tune()
    assert all(run.request.mode != "discover" for run in second.launcher.runs)


def test_a_search_with_nothing_to_try_is_not_stopped_for_time(tmp_path):
    session = Session(
        tmp_path,
        changes={"time_budget_s": 0.1, "engine": "eager", "batch_sizes": (16, 16)},
        before=lambda run: time.sleep(0.1),
    )
    assert session.facts.batch_size == 16
    record = session.tune()
    assert len(record.trials) == 1
    assert "time was up" not in record.verdict.reason.text
    assert record.verdict.kind_of_answer == "baseline_best"


def test_a_script_that_could_not_be_described_is_searched_by_its_batch_sizes(tmp_path):
    session = Session(tmp_path)
    undescribed(session, Fallback("gradients of gradients"))
    record = session.tune()
    assert [run.request.mode for run in session.launcher.runs[:2]] == ["discover", "measure"]
    assert len({trial.configuration.batch_size for trial in record.trials}) > 1
    assert not any(trial.configuration.plans for trial in record.trials)
    assert record.verdict is not None


# -- what stops a study


def test_a_script_that_fails_as_it_stands_is_a_discovery_error_with_its_traceback(tmp_path):
    failure = ScriptError("KeyError: 'x'", advice="mend it", traceback="Traceback: the script's own\n")
    with pytest.raises(DiscoveryError, match="KeyError") as caught:
        Session(tmp_path, outcome_of=lambda configuration: failure).tune()
    assert caught.value.detail == "Traceback: the script's own"


def fit(session):
    return pipeline.fit(
        session.spec,
        launcher=session.launcher,
        watcher=session.watcher,
        interruption=session.interruption,
        budget=Budget(session.spec.time_budget_s, session.interruption),
        runs=session.folder / "runs",
    )


def test_what_should_fit_is_told_from_one_run(tmp_path):
    session = Session(tmp_path)
    facts, limit_bytes, fits = fit(session)
    assert (facts, limit_bytes) == (session.facts, session.landscape.limit_bytes)
    assert len(session.launcher.runs) == 1
    assert session.watcher.said == ["discovering", "discovered"]
    assert max(one.configuration.batch_size for one in fits) > session.facts.batch_size
    assert fits[-1].configuration.plans


def test_nothing_is_told_of_what_should_fit_below_what_the_parameters_need(tmp_path):
    with pytest.raises(RunError, match="need 800 MiB"):
        fit(Session(tmp_path, changes={"memory_limit_bytes": 300 * MIB}))


def test_a_limit_below_what_the_parameters_need_is_said_with_the_difference(tmp_path):
    session = Session(tmp_path, changes={"memory_limit_bytes": 300 * MIB})
    with pytest.raises(RunError, match=r"need 800 MiB, 500 MiB more than the limit of 300 MiB"):
        session.tune()
    assert len(session.launcher.runs) == 1


def test_a_limit_above_what_there_is_becomes_what_there_is():
    has_bytes = memory_of(new_landscape().facts.environment)
    assert has_bytes == ENVIRONMENT.device_memory_bytes
    assert memory_limit(1 << 50, has_bytes) == has_bytes
    assert memory_limit(MIB, has_bytes) == MIB
    assert memory_limit(None, has_bytes) == has_bytes


def test_a_changed_script_is_refused_because_its_measurements_no_longer_hold(tmp_path):
    first = Session(tmp_path)
    first.tune()
    first.script.write_text("import torch  # changed\n")
    with pytest.raises(UsageError, match="has changed") as caught:
        first.again().tune()
    assert "--study" in caught.value.hint


def test_a_script_that_is_gone_is_refused(tmp_path):
    first = Session(tmp_path)
    first.tune()
    second = first.again()
    second.script.unlink()
    with pytest.raises(UsageError, match="is gone"):
        second.tune()


def test_logs_of_a_deleted_study_of_the_same_name_are_left_alone(tmp_path):
    for name in ("discovery", "trial-0001", "repetition-1"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "stderr.log").touch()
    record = Session(tmp_path).tune()
    directories = [trial.run_directory for trial in record.trials]
    assert directories[0].endswith("discovery-2")
    assert directories[1].endswith("trial-0001-2")


def test_a_script_that_cannot_be_run_twice_ends_the_search_early_and_without_a_winner(tmp_path):
    def outcome_of(configuration):
        return ScriptError("FileExistsError: 'out'") if session.launcher.runs[1:] else landscape.measure(configuration)

    landscape = new_landscape()
    session = Session(tmp_path, outcome_of=outcome_of, changes={"max_trials": 60})
    record = session.tune()
    assert record.verdict.stop_reason == "The first 5 trials all failed, and not for memory."
    assert record.verdict.kind_of_answer == "undecided"
    assert record.verdict.winner is None
    assert "5 other trials failed" in record.verdict.reason.text


def test_where_no_batch_size_has_an_effect_plans_at_the_own_one_are_tried(tmp_path):
    """Guards scripts whose data sets make whole batches: they have plans, and looked as if nothing worked."""

    def outcome_of(configuration):
        has_effect = configuration.batch_size == landscape.own_batch_size
        return landscape.measure(configuration) if has_effect else NoEffect("a batch brings as much data as before")

    landscape = new_landscape()
    session = Session(
        tmp_path, outcome_of=outcome_of, changes={"objective": Objective("memory", max_slowdown=0.9), "max_trials": 60}
    )
    record = session.tune()
    assert sum(isinstance(one.outcome, NoEffect) for one in record.trials) >= 3
    assert record.verdict.winner is not None
    assert record.verdict.winner.plans


def test_at_the_own_batch_size_no_effect_is_a_failure_like_any_other(tmp_path):
    landscape = new_landscape()
    changes = {"objective": Objective("memory", max_slowdown=0.9), "max_trials": 60, "batch_sizes": (16, 16)}
    first = landscape.baseline.key
    session = Session(
        tmp_path,
        outcome_of=lambda one: landscape.measure(one) if one.key == first else NoEffect("as before"),
        changes=changes,
    )
    record = session.tune()
    assert len(record.trials) == 4
    assert record.verdict.stop_reason.startswith("Every trial under engine aot failed")


def test_running_out_of_memory_again_and_again_is_no_reason_to_give_up(tmp_path):
    def outcome_of(configuration):
        out_of_memory = session.launcher.runs[1:] and not configuration.plans
        return OutOfMemory("out of memory", phase="forward") if out_of_memory else landscape.measure(configuration)

    landscape = new_landscape()
    session = Session(tmp_path, outcome_of=outcome_of, changes={"max_trials": 12})
    record = session.tune()
    assert "all failed" not in record.verdict.stop_reason
    assert record.verdict.winner is not None


def test_what_a_run_did_not_reach_is_tried_again(tmp_path):
    failed = []

    def outcome_of(configuration):
        if configuration.plans and not failed:
            failed.append(configuration)
            return ScriptError("RuntimeError: once")
        return session.landscape.measure(configuration)

    session = Session(tmp_path, outcome_of=outcome_of, changes={"time_budget_s": 600.0, "plans_first": TOGETHER})
    record = session.tune()
    run = next(run for run in session.launcher.runs if failed[0] in run.request.configurations)
    not_reached = run.request.configurations[run.request.configurations.index(failed[0]) + 1 :]
    assert not_reached, "the failing run held nothing else: the test shows nothing"
    measured = {trial.configuration.key for trial in record.trials if isinstance(trial.outcome, Measured)}
    assert {configuration.key for configuration in not_reached} <= measured
    assert states(session)[TrialState.RUNNING] == 0


# -- the bundle


def test_export_writes_the_bundle_with_its_report_and_notes_where(tmp_path):
    session = Session(tmp_path)
    session.tune()
    written = pipeline.export(session.study, tmp_path / "bundle")
    assert {"mem_opt.json", "stack.json", "report.html"} <= {path.name for path in written.iterdir()}
    assert session.study.record().bundles == (str(written),)
