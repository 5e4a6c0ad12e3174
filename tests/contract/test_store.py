"""What every store does, run by each: in memory, in an SQLite file, in PostgreSQL where there is a server.

Set AUTOTUNE_TEST_POSTGRESQL_URL (a database in which the user may create schemas and roles) to include PostgreSQL.
"""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from dataclasses import replace

import pytest
from optuna.study import StudyDirection
from optuna.trial import TrialState, create_trial

from autotune.errors import StorageError
from autotune.records.configuration import Configuration
from autotune.records.gate import Gate, Gauge, PastGate, Reading
from autotune.records.study import Remark, Repeat, StudyRecord
from autotune.store.claims import Owner, _start_of
from autotune.store.database import open_store
from tests.fakes.hostile_names import HOSTILE_NAMES
from tests.fakes.postgresql import postgresql_schema
from tests.fakes.store import InMemoryDatabase, InMemoryStore
from tests.fakes.store_samples import BASELINE, ENVIRONMENT, FACTS, FAILED, MEASURED, PLANNED, SPEC, VERDICT

DEAD = replace(Owner.current(), process_start=1)
LIVING = replace(Owner.current(), process=os.getppid(), process_start=_start_of(os.getppid()))
FAR = replace(Owner.current(), machine="another machine", hostname="far")


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def connect(request, tmp_path):
    """Open the same database again and again, each time as another process if need be."""
    with ExitStack() as stack:
        if request.param == "memory":
            database = InMemoryDatabase()
            yield lambda **options: InMemoryStore(database, **options)
        else:
            url = str(tmp_path / "study.db")
            if request.param == "postgresql":
                url = stack.enter_context(postgresql_schema()).url
            yield lambda **options: stack.enter_context(open_store(url, **options))


@pytest.fixture
def study(connect):
    return connect().create("first", SPEC)


def ask(study, batch_size=16):
    """Have Optuna give out a trial; its number."""
    trial = study.optuna.ask()
    trial.suggest_categorical("batch_size", [8, 16, 32])
    return trial.number


def begin(study):
    """Have a trial given out and begin it; its number."""
    number = ask(study)
    assert study.begin(number, PLANNED, f"runs/{number}")
    return number


def waiting(study):
    return [trial.params for trial in study.optuna.get_trials(states=(TrialState.WAITING,))]


def states(study):
    return [trial.state for trial in study.optuna.get_trials()]


def test_a_new_database_has_no_studies(connect):
    assert connect().names() == ()
    assert "first" not in connect()


def test_a_created_study_is_found_by_its_name(connect):
    connect().create("first", SPEC)
    connect().create("second", SPEC)
    store = connect()
    assert store.names() == ("first", "second")
    assert "second" in store
    assert store.open("second").name == "second"
    assert store.open("second").spec == SPEC


def test_a_name_is_taken_once(connect, study):
    with pytest.raises(StorageError, match="'first' exists already"):
        connect().create("first", SPEC)


def test_names_of_any_kind_are_kept_as_they_are(connect):
    named = {
        what: name for what, name in HOSTILE_NAMES.items() if name.isprintable() and name.strip(" ").strip("-") == name
    }
    for name in named.values():
        connect().create(name, replace(SPEC, arguments=(*HOSTILE_NAMES.values(),)))

    store = connect()
    assert store.names() == tuple(named.values())
    for name in named.values():
        record = store.open(name).record()
        assert (record.name, record.spec.arguments) == (name, tuple(HOSTILE_NAMES.values()))


@pytest.mark.parametrize("name", ["", "   "])
def test_a_name_must_be_readable(connect, name):
    with pytest.raises(StorageError, match="bad study name"):
        connect().create(name, SPEC)


def test_opening_an_unknown_study_names_those_there_are(connect, study):
    with pytest.raises(StorageError, match="no study 'frist'") as caught:
        connect().open("frist")
    assert "first" in caught.value.hint


def test_optuna_maximizes_speed_and_minimizes_memory(study):
    assert study.optuna.directions == [StudyDirection.MAXIMIZE, StudyDirection.MINIMIZE]
    assert study.optuna.metric_names == ["samples_per_s", "peak_bytes"]
    assert study.optuna.study_name == "first"


def test_everything_stored_is_read_back_equal(connect, study):
    repeat = Repeat(
        PLANNED, repetition=1, outcome=MEASURED, environment=ENVIRONMENT, run_directory="runs/9", confirmation=2
    )
    study.set_spec(replace(SPEC, max_trials=7))
    study.set_facts(FACTS)
    study.add_repeat(repeat)
    study.set_verdict(VERDICT)
    study.add_bundle("/out/one")
    study.add_bundle("/out/two")
    first, second, third = ask(study), ask(study), ask(study)
    study.begin(first, BASELINE, "runs/0")
    study.begin(second, PLANNED, "runs/1")
    study.begin(third, PLANNED, "runs/1")
    study.finish(first, MEASURED, ENVIRONMENT)
    study.finish(second, FAILED, None)

    record: StudyRecord = connect().open("first").record()

    assert (record.name, record.spec, record.facts) == ("first", replace(SPEC, max_trials=7), FACTS)
    assert (record.repeats, record.verdict, record.bundles) == ((repeat,), VERDICT, ("/out/one", "/out/two"))
    done, failed, running = record.trials
    assert (done.number, done.configuration, done.outcome) == (first, BASELINE, MEASURED)
    assert (done.environment, done.run_directory, done.state) == (ENVIRONMENT, "runs/0", "finished")
    assert (failed.outcome, failed.environment, failed.state) == (FAILED, None, "finished")
    assert (running.outcome, running.finished_at, running.state) == (None, None, "running")
    assert record.created_at <= done.started_at <= done.finished_at
    assert record.baseline == done


def test_what_gates_said_is_kept_for_the_setting_and_the_script_that_they_held(connect):
    speed = Gauge("speed", 100.0, 90.0, 0.9, 0.88, 0.92, 0.05, "worse")
    gate = Gate(
        "regression", ("Regression: 10 % slower.",), "stored", 4, (speed,), (), ENVIRONMENT, Reading((90.0,), (7,))
    )
    first = PastGate(1.5, "train.py", "ab" * 32, PLANNED.key, gate)
    later = replace(first, held_at=2.5, gate=replace(gate, answer="failed", gauges=(), reading=None, environment=None))
    store = connect()
    before = store.version()
    for one in (first, replace(first, script_name="other.py"), replace(first, configuration=BASELINE.key), later):
        store.add_gate(one)
    assert store.version() != before

    assert connect().gates("train.py", PLANNED.key) == (first, later)
    assert connect().gates("none.py", PLANNED.key) == ()
    assert [one.held_at for one in connect().gates()] == [1.5, 1.5, 1.5, 2.5]


def test_the_version_changes_with_whatever_is_stored_of_a_study_and_with_nothing_else(connect, study):
    watching = connect(owner=LIVING).open("first")
    seen, of_all = [watching.version()], [connect().version()]

    def changed():
        seen.append(watching.version())
        of_all.append(connect().version())
        assert (of_all[-1] in of_all[:-1]) == (seen[-1] in seen[:-1])
        return seen[-1] not in seen[:-1]

    study.set_facts(FACTS)
    assert changed()
    number = begin(study)
    assert changed()
    study.heartbeat()
    assert not changed()
    study.finish(number, MEASURED, ENVIRONMENT)
    assert changed()
    study.add_repeat(Repeat(PLANNED, repetition=0, outcome=MEASURED))
    assert changed()
    study.set_verdict(VERDICT)
    assert changed()
    study.set_verdict(replace(VERDICT, reason=Remark("no_better", "Another sentence.")))
    assert changed()
    study.add_bundle("/out/one")
    assert changed()
    connect().create("second", SPEC)
    assert watching.version() == seen[-1]
    assert connect().version() not in of_all


def test_a_study_runs_while_a_process_that_began_a_trial_of_it_lives(connect, study):
    watching = connect(owner=LIVING).open("first")
    assert not watching.is_running()
    before = watching.version()
    begin(study)
    assert watching.is_running()
    assert watching.version() != before


def test_a_study_of_a_dead_process_does_not_run(connect, study):
    begin(connect(owner=DEAD).open("first"))
    assert not study.is_running()


def test_a_trial_is_begun_once(connect, study):
    number = begin(study)
    assert not study.begin(number, PLANNED, f"runs/{number}")
    assert not connect(owner=LIVING).open("first").begin(number, BASELINE, "elsewhere")
    assert [trial.run_directory for trial in study.record().trials] == [f"runs/{number}"]


def test_a_trial_is_finished_once(study):
    number = begin(study)
    assert study.finish(number, MEASURED, ENVIRONMENT)
    assert not study.finish(number, FAILED, ENVIRONMENT)
    assert not study.begin(number, PLANNED, f"runs/{number}")
    assert study.record().trials[0].outcome == MEASURED


def test_a_trial_that_was_measured_before_it_was_asked_for_is_stored_once_finished_and_told(connect, study):
    study.optuna.add_trial(create_trial(state=TrialState.COMPLETE, values=[1.0, 2.0]))
    assert study.add_trial(0, BASELINE, MEASURED, ENVIRONMENT, "runs/discovery") is True
    assert study.add_trial(0, BASELINE, FAILED, None, "") is False
    (trial,) = connect().open(study.name).record().trials
    assert (trial.state, trial.outcome, trial.environment) == ("finished", MEASURED, ENVIRONMENT)
    assert trial.run_directory == "runs/discovery"
    assert study.untold() == study.recover() == ()


def test_a_trial_of_another_process_is_not_ours_to_finish(connect, study):
    number = begin(study)
    assert not connect(owner=LIVING).open("first").finish(number, MEASURED, ENVIRONMENT)
    assert study.record().trials[0].outcome is None


def test_an_outcome_that_optuna_was_not_told_is_given_out_to_be_told(connect, study):
    number = begin(study)
    study.finish(number, MEASURED, ENVIRONMENT)
    again = connect().open("first")
    assert [trial.outcome for trial in again.untold()] == [MEASURED]
    again.optuna.tell(number, (32.0, 100.0))
    again.mark_told(number)
    assert again.untold() == ()


def test_an_outcome_that_optuna_was_told_is_not_given_out_even_if_that_was_not_noted(study):
    number = begin(study)
    study.finish(number, MEASURED, ENVIRONMENT)
    study.optuna.tell(number, (32.0, 100.0))
    assert study.untold() == ()


def test_an_outcome_that_a_living_process_is_about_to_tell_is_left_to_it(connect, study):
    study.finish(begin(study), MEASURED, ENVIRONMENT)
    assert connect(owner=LIVING).open("first").untold() == ()


def test_an_outcome_that_a_dead_process_did_not_tell_is_given_to_one_taker(connect):
    dead = connect(owner=DEAD).create("first", SPEC)
    dead.finish(begin(dead), MEASURED, ENVIRONMENT)
    assert len(connect().open("first").untold()) == 1
    assert connect(owner=LIVING).open("first").untold() == ()


def test_a_dead_process_s_trial_is_failed_and_enqueued_again_once(connect):
    dead = connect(owner=DEAD).create("first", SPEC)
    number = begin(dead)
    parameters = dead.optuna.get_trials()[number].params

    study = connect().open("first")
    (recovered,) = study.recover()

    assert (recovered.number, recovered.configuration, recovered.recovered) == (number, PLANNED, True)
    assert states(study) == [TrialState.FAIL, TrialState.WAITING]
    assert waiting(study) == [parameters]
    assert study.recover() == ()
    assert connect(owner=LIVING).open("first").recover() == ()
    assert waiting(study) == [parameters]
    assert study.record().trials == (recovered,)
    assert study.untold() == ()


def test_a_dead_process_s_trial_is_finished_with_what_it_came_to_if_somebody_knows(connect):
    dead = connect(owner=DEAD).create("first", SPEC)
    known, unknown = begin(dead), begin(dead)
    asked = []

    def unstored(trial):
        asked.append((trial.number, trial.configuration, trial.run_directory))
        return (MEASURED, ENVIRONMENT) if trial.number == known else None

    study = connect().open("first")
    assert [trial.number for trial in study.recover(unstored)] == [unknown]

    assert asked == [(known, PLANNED, f"runs/{known}"), (unknown, PLANNED, f"runs/{unknown}")]
    first, second = study.record().trials
    assert (first.outcome, first.environment, first.recovered) == (MEASURED, ENVIRONMENT, False)
    assert (second.outcome, second.recovered) == (None, True)
    assert [trial.number for trial in study.untold()] == [known]
    assert states(study) == [TrialState.RUNNING, TrialState.FAIL, TrialState.WAITING]


def test_an_enqueued_trial_comes_back_with_the_same_parameters(connect):
    dead = connect(owner=DEAD).create("first", SPEC)
    dead.optuna.enqueue_trial({"batch_size": 32})
    begin(dead)
    study = connect().open("first")
    study.recover()
    again = study.optuna.ask()
    assert again.suggest_categorical("batch_size", [8, 16, 32]) == 32


def test_a_trial_that_is_killed_again_and_again_is_enqueued_each_time(connect):
    connect().create("first", SPEC)
    for _ in range(3):
        begin(connect(owner=DEAD).open("first"))
        connect().open("first").recover()
    study = connect().open("first")
    assert states(study) == [TrialState.FAIL] * 3 + [TrialState.WAITING]
    assert [trial.recovered for trial in study.record().trials] == [True] * 3


def test_finished_trials_are_never_recovered(connect):
    dead = connect(owner=DEAD).create("first", SPEC)
    dead.finish(begin(dead), MEASURED, ENVIRONMENT)
    study = connect().open("first")
    assert study.recover() == ()
    assert study.record().trials[0].outcome == MEASURED
    assert waiting(study) == []


@pytest.mark.parametrize("owner", [LIVING, FAR, Owner.current()], ids=["here", "elsewhere", "ourselves"])
def test_a_living_process_keeps_its_trials(connect, owner):
    other = connect(owner=owner).create("first", SPEC)
    begin(other)
    ask(other)
    study = connect().open("first")
    assert study.recover() == ()
    assert states(study) == [TrialState.RUNNING] * 2


def test_a_process_elsewhere_that_is_silent_too_long_loses_its_trials(connect):
    far = connect(owner=FAR).create("first", SPEC)
    number = begin(far)
    study = connect(grace_s=-1.0).open("first")
    assert [trial.number for trial in study.recover()] == [number]
    assert not far.finish(number, MEASURED, ENVIRONMENT)
    assert study.record().trials[0].outcome is None


def test_a_trial_given_out_to_a_process_that_died_before_it_began_is_enqueued_again(connect):
    dead = connect(owner=DEAD).create("first", SPEC)
    dead.optuna.enqueue_trial({"batch_size": 32})
    dead.optuna.ask()
    study = connect().open("first")
    assert study.recover() == ()
    assert states(study) == [TrialState.FAIL, TrialState.WAITING]
    assert study.record().trials == ()
    assert study.optuna.ask().suggest_categorical("batch_size", [8, 16, 32]) == 32


def test_a_process_elsewhere_may_be_about_to_begin_what_it_asked_for(connect):
    far = connect(owner=FAR).create("first", SPEC)
    far.recover()
    number = ask(far)
    connect().open("first").recover()
    assert states(far) == [TrialState.RUNNING]
    connect(grace_s=-1.0).open("first").recover()
    assert states(far) == [TrialState.FAIL, TrialState.WAITING]
    assert not far.begin(number, PLANNED, "too late")


def test_a_trial_that_we_asked_for_and_have_not_begun_yet_is_ours(study):
    study.recover()
    number = ask(study)
    study.recover()
    assert study.begin(number, PLANNED, "runs/0")
    assert states(study) == [TrialState.RUNNING]


def test_a_released_trial_is_enqueued_again_and_no_longer_ours(study):
    number = begin(study)
    study.release(number)
    study.release(number)
    assert states(study) == [TrialState.FAIL, TrialState.WAITING]
    assert study.record().trials[0].recovered
    assert not study.finish(number, MEASURED, ENVIRONMENT)


def test_of_many_that_recover_at_once_each_trial_has_one_taker(connect):
    dead = connect(owner=DEAD).create("first", SPEC)
    for _ in range(4):
        begin(dead)
        ask(dead)
    studies = [connect(owner=owner).open("first") for owner in (LIVING, Owner.current(), Owner.current())]
    recovered = []
    start = threading.Barrier(len(studies))

    def recover(study):
        start.wait()
        recovered.extend(trial.number for trial in study.recover())

    threads = [threading.Thread(target=recover, args=(study,)) for study in studies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(recovered) == [0, 2, 4, 6]
    assert states(studies[0]).count(TrialState.WAITING) == 8
    assert states(studies[0]).count(TrialState.RUNNING) == 0


def test_a_confirmation_is_measured_by_one_process_at_a_time(connect):
    connect().create("a study", SPEC)
    mine, other = connect().open("a study"), connect(owner=LIVING).open("a study")
    assert mine.begin_confirmation() == 1
    assert other.begin_confirmation() is None
    mine.end_confirmation(1)
    assert other.begin_confirmation() == 2
    assert mine.begin_confirmation() is None


def test_a_confirmation_of_a_dead_process_or_of_our_own_hinders_nobody(connect):
    connect().create("a study", SPEC)
    assert connect(owner=DEAD).open("a study").begin_confirmation() == 1
    mine = connect().open("a study")
    assert mine.begin_confirmation() == 2
    assert mine.begin_confirmation() == 3


def test_a_heartbeat_can_be_given_at_any_time(study):
    study.heartbeat()
    begin(study)
    study.heartbeat()


def test_two_studies_keep_their_trials_apart(connect):
    store = connect()
    first, second = store.create("first", SPEC), store.create("second", SPEC)
    begin(first)
    number = ask(second)
    second.begin(number, Configuration("eager"), "runs/x")
    second.finish(number, FAILED, ENVIRONMENT)
    assert [trial.configuration for trial in first.record().trials] == [PLANNED]
    assert [trial.outcome for trial in second.record().trials] == [FAILED]
