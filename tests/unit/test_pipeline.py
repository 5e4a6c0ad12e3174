"""The data flow with fakes in place of processes and databases: order, crashes, budgets, devices, interruption."""

from __future__ import annotations

import dataclasses
import random
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from optuna.trial import TrialState

from autotune import budget, pipeline
from autotune.budget import Budget, Interruption
from autotune.discovery import script_sha256
from autotune.errors import DiscoveryError, InterruptionError, RunError, UsageError
from autotune.records import Configuration, Died, Measured, OutOfMemory, ScriptError, StudySpec
from autotune.store import Owner
from tests.fakes.landscape import ENVIRONMENT, MIB, Cluster, Landscape
from tests.fakes.launcher import FakeLauncher
from tests.fakes.store import InMemoryDatabase, InMemoryStore
from tests.fakes.watcher import FakeWatcher

# One cheap plan and one dear one; batch sizes are bound by memory.
CLUSTERS = (Cluster("Block+", 4, 0.8, 0.3, is_layer=True), Cluster("gelu+", 4, 0.2, 0.01))
SOMEBODY_DEAD = dataclasses.replace(Owner.current(), process_start=1)


def new_landscape(**changes):
    return Landscape(clusters=CLUSTERS, noise_cv=0.001, chance=random.Random(0), **changes)


@dataclass
class Session:
    """One `autotune run` of a study; several on one ``database`` are one after the other."""

    folder: Path
    landscape: Landscape = field(default_factory=new_landscape)
    database: InMemoryDatabase = field(default_factory=InMemoryDatabase)
    owner: Owner = field(default_factory=Owner.current)
    changes: dict = field(default_factory=dict)
    before: object = lambda run: None
    outcome_of: object = None
    is_exact: object = lambda configuration: True

    def __post_init__(self):
        self.folder.mkdir(exist_ok=True)
        self.script = self.folder / "train.py"
        if not self.script.exists():
            self.script.write_text("import torch\n")
        self.spec = StudySpec(script=str(self.script), **{"max_trials": 6, **self.changes})
        self.facts = dataclasses.replace(self.landscape.facts, script_sha256=script_sha256(self.script))
        self.interruption = Interruption()
        self.watcher = FakeWatcher()
        self.store = InMemoryStore(self.database, owner=self.owner)
        self.study = self.store.open("a study") if "a study" in self.store else self.store.create("a study", self.spec)
        self.launcher = FakeLauncher(
            self.outcome_of or self.landscape.measure,
            environment=ENVIRONMENT,
            facts=self.facts,
            root=self.folder / "runs",
            before=self.before,
            is_exact=self.is_exact,
        )

    def tune(self, study=None):
        return pipeline.tune(
            study or self.study,
            store=self.store,
            launcher=self.launcher,
            watcher=self.watcher,
            interruption=self.interruption,
            runs=self.folder / "runs",
        )

    def again(self, **changes):
        """The next session on the same database."""
        return dataclasses.replace(self, **changes)

    @property
    def searched(self):
        """The configurations of the search's runs, without discovery and finalists."""
        rounds = len(self.watcher.rounds)
        measured = [run for run in self.launcher.runs if run.request.mode == "measure"]
        runs = measured[:-rounds] if rounds else measured
        return [configuration.key for run in runs for configuration in run.request.configurations]


def states(session):
    return Counter(trial.state for trial in session.study.optuna.get_trials(deepcopy=False))


def test_a_study_goes_from_discovery_to_a_winner(tmp_path):
    session = Session(tmp_path)
    record = session.tune()
    assert record.verdict.kind_of_answer == "winner"
    assert session.landscape.samples_per_s(record.verdict.winner) > session.landscape.samples_per_s(Configuration())
    assert [name for name in session.watcher.said if name != "run"] == [
        "discovering",
        "discovered",
        "searching",
        "search ended",
        "finalists",
    ]
    assert record.facts == session.facts
    assert record.baseline.measured is not None


def test_no_configuration_is_searched_twice(tmp_path):
    session = Session(tmp_path)
    session.tune()
    assert len(session.searched) == len(set(session.searched)) == 6


def test_a_resumed_study_does_not_discover_again_and_repeats_nothing(tmp_path):
    first = Session(tmp_path)
    first.tune()
    second = first.again()
    second.study.set_spec(dataclasses.replace(second.spec, max_trials=10))
    record = second.tune()
    assert "discovering" not in second.watcher.said
    tried = [trial.configuration.key for trial in record.trials]
    assert len(tried) == len(set(tried)) > 7


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
        def noting(*arguments):
            if len(self._log) == self._crash_at:
                raise Crash(name)
            self._log.append((name, arguments[0] if arguments else None))
            return call(*arguments)

        return noting


class Crash(BaseException):
    """The process is gone at this point; nothing may handle it."""


def recorded_session(session, monkeypatch, crash_at=None):
    """The session's study and search, noted in one log."""
    log = []
    study = Recorded(session.study, log, crash_at)

    class RecordedSearch(pipeline.Search):
        def __init__(self, *arguments, **keywords):
            super().__init__(*arguments, **keywords)
            for name in ("add_baseline", "tell"):
                setattr(self, name, study.noted(name, getattr(self, name)))

    monkeypatch.setattr(pipeline, "Search", RecordedSearch)
    return study, log


def test_each_outcome_is_stored_before_the_search_is_told_and_marked_last(tmp_path, monkeypatch):
    session = Session(tmp_path)
    study, log = recorded_session(session, monkeypatch)
    session.tune(study)
    for number in range(1, 7):
        assert [name for name, about in log if about == number] == ["begin", "finish", "tell", "mark_told"]
    assert log[-1][0] == "set_verdict"


def test_each_outcome_is_stored_while_the_rest_of_its_run_goes_on(tmp_path):
    stored = []

    def outcome_of(configuration):
        stored.append(sum(trial.state == "finished" for trial in session.study.record().trials))
        return session.landscape.measure(configuration)

    session = Session(tmp_path, outcome_of=outcome_of)
    session.tune()
    shared = [len(run.request.configurations) for run in session.launcher.runs[1:]]
    assert max(shared) > 1, "no run of several configurations: the test shows nothing"
    # As the n-th search trial is measured, the baseline and the n-1 before it are stored already.
    assert stored[1:7] == [1, 2, 3, 4, 5, 6]


def test_facts_are_stored_after_the_baseline_so_that_they_are_never_there_without_it(tmp_path, monkeypatch):
    session = Session(tmp_path)
    study, log = recorded_session(session, monkeypatch)
    session.tune(study)
    names = [name for name, _ in log]
    assert names.index("add_baseline") < names.index("add_trial") < names.index("set_facts") < names.index("tell")


def num_calls(folder, monkeypatch):
    session = Session(folder)
    study, log = recorded_session(session, monkeypatch)
    session.tune(study)
    return len(log)


def test_a_crash_between_any_two_writes_loses_no_stored_outcome_and_leaves_nothing_running(tmp_path, monkeypatch):
    (tmp_path / "whole").mkdir()
    total = num_calls(tmp_path / "whole", monkeypatch)
    assert total > 30
    for crash_at in range(total):
        folder = tmp_path / str(crash_at)
        folder.mkdir()
        crashing = Session(folder, owner=SOMEBODY_DEAD)
        study, _ = recorded_session(crashing, monkeypatch, crash_at)
        with pytest.raises(Crash) as crash:
            crashing.tune(study)
        before = {trial.number: trial.outcome for trial in crashing.study.record().trials if trial.outcome is not None}
        where = f"crash number {crash_at}, before {crash.value}"

        monkeypatch.setattr(pipeline, "Search", pipeline.Search.__mro__[1])
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


# -- the time budget


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


def test_only_whole_runs_tell_how_long_runs_take(tmp_path, clock):
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
    noted = []
    note_run = Budget.note_run
    Budget.note_run = lambda self, seconds, *, alone: noted.append(seconds) or note_run(self, seconds, alone=alone)
    try:
        session.tune()
    finally:
        Budget.note_run = note_run
    assert noted == [30.0]


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


# -- finalists


def test_finalists_and_baseline_are_measured_in_turns_each_in_a_run_of_its_own(tmp_path):
    session = Session(tmp_path)
    record = session.tune()
    rounds = session.launcher.runs[-len(record.repeats) :]
    assert all(len(run.request.configurations) == 1 for run in rounds)
    order = [run.request.configurations[0].key for run in rounds]
    entrants = len(order) // 3
    first, second, third = (order[n * entrants : (n + 1) * entrants] for n in range(3))
    assert first[0] == session.facts.baseline.key
    assert first == second[::-1] == third
    assert [repeat.round for repeat in record.repeats] == sorted(repeat.round for repeat in record.repeats)


def test_a_final_that_was_cut_short_is_begun_anew_and_a_whole_one_is_not(tmp_path):
    def before(run):
        if len(first.watcher.rounds) == 2:
            first.interruption.finish.set()

    first = Session(tmp_path, before=before)
    assert len(first.tune().repeats) == 3

    second = first.again(before=lambda run: None)
    record = second.tune()
    assert [repeat.final for repeat in record.repeats] == [1] * 3 + [2] * 6
    assert record.verdict.kind_of_answer == "winner"

    assert second.again().tune().repeats == record.repeats


def test_new_finalists_are_measured_beside_the_baseline_once_more(tmp_path):
    first = Session(tmp_path, changes={"max_trials": 2})
    first.tune()
    second = first.again()
    second.study.set_spec(dataclasses.replace(second.spec, max_trials=30))
    record = second.tune()
    finals = {repeat.final for repeat in record.repeats}
    assert len(finals) > 1, "the second session found no other finalist: the test shows nothing"
    for final in finals:
        keys = [repeat.configuration.key for repeat in record.repeats if repeat.final == final]
        assert keys.count(first.facts.baseline.key) == 3


def test_a_round_in_which_the_baseline_failed_is_measured_once_more(tmp_path):
    seen = Counter()

    def outcome_of(configuration):
        seen[configuration.key] += 1
        if configuration.key == session.facts.baseline.key and seen[configuration.key] == 2:  # its first round
            return Died("killed")
        return session.landscape.measure(configuration)

    session = Session(tmp_path, outcome_of=outcome_of)
    record = session.tune()
    own = [repeat for repeat in record.repeats if repeat.configuration.key == session.facts.baseline.key]
    assert [repeat.outcome.kind for repeat in own] == ["died", "measured", "measured", "measured"]
    assert record.verdict.kind_of_answer == "winner"


def test_a_finalist_that_passes_the_limit_in_a_round_is_out_and_the_next_one_takes_its_place(tmp_path):
    seen = Counter()

    def outcome_of(configuration):
        seen[configuration.key] += 1
        if configuration.key != session.facts.baseline.key and seen[configuration.key] == 2 and not refused:
            refused.append(configuration.key)
            return OutOfMemory("out of memory")
        return session.landscape.measure(configuration)

    refused = []
    session = Session(tmp_path, outcome_of=outcome_of, changes={"max_trials": 30})
    record = session.tune()
    rounds = Counter(repeat.configuration.key for repeat in record.repeats)
    assert rounds[refused[0]] == 1
    assert record.verdict.kind_of_answer == "winner"
    assert record.verdict.winner.key not in refused


def test_a_final_of_another_live_process_is_left_to_it(tmp_path):
    other = dataclasses.replace(Owner.current(), hostname="elsewhere", machine="another")
    session = Session(tmp_path)
    InMemoryStore(session.database, owner=other).open("a study").begin_final()
    record = session.tune()
    assert record.repeats == ()
    assert record.verdict is None, "the answer is the other's to give"


def test_a_baseline_over_the_limit_is_no_finalist(tmp_path):
    landscape = new_landscape()
    limit = landscape.peak_bytes(landscape.baseline) - MIB
    session = Session(tmp_path, landscape=landscape, changes={"memory_limit_bytes": limit})
    record = session.tune()
    assert record.verdict.kind_of_answer == "baseline_does_not_fit"
    assert session.facts.baseline.key not in {repeat.configuration.key for repeat in record.repeats}


# -- the proof


def modes(session):
    return [run.request.mode for run in session.launcher.runs]


def test_a_winner_with_plans_is_proven_before_it_is_one(tmp_path):
    session = Session(tmp_path, changes={"max_trials": 20})
    verdict = session.tune().verdict
    (proof,) = verdict.proofs
    assert verdict.kind_of_answer == "winner"
    assert verdict.winner.engine == "aot"
    assert (proof.configuration, proof.answer) == (verdict.winner, "exact")
    assert session.watcher.proofs == [proof]
    assert modes(session)[-4:] == ["verify"] * 4
    assert session.study.record().verdict == verdict


def test_what_computes_something_else_must_not_win(tmp_path):
    first = Session(tmp_path, changes={"max_trials": 20}).tune().verdict.winner
    session = Session(
        tmp_path / "other",
        changes={"max_trials": 20},
        is_exact=lambda configuration: configuration.plans != first.plans,
    )
    verdict = session.tune().verdict
    assert verdict.winner.key != first.key
    refuted = next(proof for proof in verdict.proofs if proof.configuration.key == first.key)
    assert refuted.answer == "inexact"
    assert f"{first} may not win. {refuted.statement}" in verdict.reason
    assert first.key in {one.configuration.key for one in verdict.comparisons}, "its rounds stay in the table"


def test_where_no_plan_is_exact_the_answer_has_none(tmp_path):
    session = Session(tmp_path, changes={"max_trials": 20}, is_exact=lambda configuration: not configuration.plans)
    verdict = session.tune().verdict
    assert verdict.winner.plans == ()
    assert verdict.proofs
    assert {proof.answer for proof in verdict.proofs} == {"inexact"}


def test_what_was_refuted_stays_refuted_in_the_next_session_and_costs_no_run(tmp_path):
    first = Session(tmp_path, changes={"max_trials": 20}, is_exact=lambda configuration: not configuration.plans)
    before = first.tune().verdict
    second = first.again()
    after = second.tune().verdict
    assert "verify" not in modes(second)
    assert (after.winner, after.proofs) == (before.winner, before.proofs)


def test_a_batch_that_only_plans_make_fit_is_proven_at_the_scripts_own_size(tmp_path):
    def outcome_of(configuration):
        if session.launcher.runs[-1].request.mode == "verify" and not configuration.plans and configuration.batch_size:
            return OutOfMemory(cause="out of memory")
        return session.landscape.measure(configuration)

    session = Session(tmp_path, outcome_of=outcome_of, changes={"max_trials": 20})
    verdict = session.tune().verdict
    (proof,) = verdict.proofs
    assert proof.answer == "exact"
    assert f"for batch {verdict.winner.batch_size} there is not enough memory without plans" in proof.statement
    assert {run.request.configurations[0].batch_size for run in session.launcher.runs[-4:]} == {None}


def test_a_proof_that_could_not_be_made_is_said_and_costs_nobody_the_win(tmp_path):
    def outcome_of(configuration):
        if session.launcher.runs[-1].request.mode == "verify":
            return ScriptError(cause="it runs only so often")
        return session.landscape.measure(configuration)

    session = Session(tmp_path, outcome_of=outcome_of, changes={"max_trials": 20})
    verdict = session.tune().verdict
    (proof,) = verdict.proofs
    assert (verdict.kind_of_answer, proof.answer) == ("winner", "unknown")
    assert proof.statement == "Not proven: the script failed in the runs for it: it runs only so often"


def test_a_proof_that_was_interrupted_is_made_by_the_next_session(tmp_path):
    def before(run):
        if session.launcher.runs[-1].request.mode == "verify":
            session.interruption.finish.set()

    session = Session(tmp_path, before=before, changes={"max_trials": 20})
    assert session.tune().verdict.proofs == ()
    assert modes(session).count("verify") == 1, "nothing new is started"
    second = session.again(before=lambda run: None)
    (proof,) = second.tune().verdict.proofs
    assert proof.answer == "exact"


# -- several devices


def test_two_devices_work_at_the_same_time_and_never_on_the_same_configuration(tmp_path):
    both = threading.Barrier(2, timeout=20)

    def before(run):
        if run in (1, 2):
            both.wait()  # passes only if two runs of the search are under way at once

    session = Session(tmp_path, before=before, changes={"devices": (0, 1)})
    record = session.tune()
    searched = session.searched
    assert len(searched) == len(set(searched))
    assert {run.device for run in session.launcher.runs} == {0, 1}
    finalists = session.launcher.runs[-len(record.repeats) :]
    assert {run.device for run in finalists} == {0}, "rounds on several devices compare devices"


def test_a_device_that_fails_ends_the_others_too_and_what_they_measured_is_kept(tmp_path):
    both = threading.Barrier(2, timeout=20)

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

    session = Session(tmp_path, outcome_of=outcome_of)
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


# -- what stops a study


def test_a_script_that_fails_as_it_stands_is_a_discovery_error_with_its_traceback(tmp_path):
    failure = ScriptError("KeyError: 'x'", advice="mend it", traceback="Traceback: the script's own\n")
    with pytest.raises(DiscoveryError, match="KeyError") as caught:
        Session(tmp_path, outcome_of=lambda configuration: failure).tune()
    assert caught.value.detail == "Traceback: the script's own"


def test_a_limit_below_what_the_parameters_need_is_said_with_the_difference(tmp_path):
    session = Session(tmp_path, changes={"memory_limit_bytes": 300 * MIB})
    with pytest.raises(RunError, match=r"need 800 MiB, 500 MiB more than the limit of 300 MiB"):
        session.tune()
    assert len(session.launcher.runs) == 1


def test_a_limit_above_what_there_is_becomes_what_there_is():
    facts = new_landscape().facts
    assert pipeline.memory_limit(1 << 50, facts) == ENVIRONMENT.device_memory_bytes
    assert pipeline.memory_limit(MIB, facts) == MIB
    assert pipeline.memory_limit(None, facts) == ENVIRONMENT.device_memory_bytes


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
    for name in ("discovery", "trial-0001", "round-1"):
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
    assert "the other 5 trials all failed" in record.verdict.reason


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

    session = Session(tmp_path, outcome_of=outcome_of, changes={"time_budget_s": 600.0})
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
