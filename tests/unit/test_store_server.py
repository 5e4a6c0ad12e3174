"""A database that is gone for a while: what waits, what is said, and that nothing is lost or stored twice."""

from __future__ import annotations

import os
import threading
from collections import Counter
from dataclasses import replace

import pytest
import sqlalchemy as sa
from optuna.trial import TrialState, create_trial

from autotune.errors import InterruptionError, RunError, StorageError
from autotune.records.study import Repeat
from autotune.store import claims, server
from autotune.store.location import parse_location
from autotune.store.opening import open_store
from autotune.store.owner import Owner, _start_of
from autotune.store.server import Server
from tests.fakes.postgresql import Wire, postgresql_schema
from tests.fakes.store_samples import BASELINE, ENVIRONMENT, FACTS, MEASURED, PLANNED, SPEC, VERDICT

DEAD = replace(Owner.current(), process_start=1)


class OperationalError(Exception):
    """Named as psycopg's, where the connection fails."""

    sqlstate = None


class Gone:
    """Work that fails so many times as a server does that is gone."""

    def __init__(self, times, error=OperationalError):
        self.left, self.error = times, error

    def __call__(self):
        if self.left:
            self.left -= 1
            raise sa.exc.DBAPIError("SELECT 1", {}, self.error("connection refused\nIs it running?"))
        return "done"


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    monkeypatch.setattr(server, "_TRY_AGAIN_S", 0.01)


@pytest.fixture
def at():
    return Server(parse_location("postgresql://me:secret@host/studies"))


@pytest.fixture
def told():
    return []


@pytest.fixture
def waiting(at, told):
    """``with waiting(): ...`` waits for the database, and ``told`` is what it says."""
    return lambda seconds=60.0, cancel=None: at.waiting(seconds, told=told.append, cancel=cancel or threading.Event())


# -- waiting


def test_work_is_done_again_until_the_database_answers_and_that_is_said_once(at, told, waiting):
    with waiting(seconds=600.0):
        assert at.run(Gone(5)) == "done"
        assert at.run(Gone(0)) == "done"
    gone, back = told
    assert gone.startswith("The database postgresql+psycopg://me:***@host/studies does not answer; waiting for it, 10m")
    assert back == "The database answers again, after 1s."


def test_a_connection_that_broke_is_no_database_that_is_gone(at, told, waiting):
    with waiting():
        assert at.run(Gone(1)) == "done"
    assert told == []


def test_a_database_that_takes_long_to_fail_is_said_to_be_gone_at_once(at, told, waiting, monkeypatch):
    monkeypatch.setattr(server, "_LONG_S", -1.0)
    with waiting():
        assert at.run(Gone(1)) == "done"
    assert len(told) == 2


def test_an_attempt_from_before_the_answer_does_not_say_again_that_it_is_gone(at, told, waiting):
    """One thread's connection may still be failing when another's has been made."""
    tries, gone, began, answered = [], Gone(2), threading.Event(), threading.Event()

    def late():
        tries.append(None)
        if len(tries) == 2:
            began.set()
            answered.wait(60.0)
        return gone()

    with waiting():
        thread = threading.Thread(target=at.run, args=(late,))
        thread.start()
        began.wait(60.0)
        assert at.run(Gone(5)) == "done"
        answered.set()
        thread.join()
    assert len(tries) == 3
    assert len(told) == 2


def test_what_needs_no_database_does_not_say_that_it_answers(at, told, waiting):
    gone = Gone(5)

    def work():
        at.run(lambda: "known already")
        return gone()

    with waiting():
        at.run(work)
    assert len(told) == 2


def test_after_the_deadline_it_is_said_for_how_long_and_what_to_do(at, waiting):
    with waiting(seconds=0.0), pytest.raises(RunError, match=r"did not answer for .*: connection refused$") as caught:
        at.run(Gone(10**9))
    assert "run the same command again" in caught.value.hint


def test_those_who_come_after_the_deadline_wait_no_second_time(at, waiting):
    with waiting(seconds=0.2):
        with pytest.raises(RunError):
            at.run(Gone(10**9))
        second = Gone(10**9)
        with pytest.raises(RunError):
            at.run(second)
    assert second.left >= 10**9 - 3


def test_stopping_ends_the_waiting(at, waiting):
    cancel = threading.Event()
    cancel.set()
    with waiting(cancel=cancel), pytest.raises(InterruptionError, match="stopped while"):
        at.run(Gone(10**9))


def test_nobody_waits_before_a_study_is_at_work_or_after_it(at, waiting):
    with waiting():
        pass
    with pytest.raises(StorageError, match="cannot be reached: connection refused"):
        at.run(Gone(2))


def test_a_heartbeat_does_not_wait(at, told, waiting):
    with waiting(), pytest.raises(StorageError, match="cannot be reached"):
        at.run(Gone(2), waits=False)
    assert told == []


def test_what_else_a_database_refuses_is_not_waited_for(at, told, waiting):
    class UniqueViolation(Exception):
        sqlstate = "23505"

    with waiting(), pytest.raises(RunError, match="failed: connection refused"):
        at.run(Gone(1, UniqueViolation))
    with waiting(), pytest.raises(ZeroDivisionError):
        at.run(lambda: 1 / 0)
    assert told == []


@pytest.mark.parametrize("sqlstate", ["08006", "57P01", "57P03"])
def test_a_server_that_shuts_down_or_starts_is_waited_for(at, waiting, sqlstate):
    error = type("AdminShutdown", (Exception,), {"sqlstate": sqlstate})
    with waiting():
        assert at.run(Gone(3, error)) == "done"


def test_whoever_waits_within_somebody_who_waits_gives_up_once(at, waiting):
    calls = []

    def outer():
        calls.append("outer")
        at.run(Gone(10**9))

    with waiting(seconds=0.1), pytest.raises(RunError):
        at.run(outer)
    assert calls == ["outer"]


# -- with a real server


@pytest.fixture(scope="module")
def place():
    with postgresql_schema() as made:
        with open_store(made.url) as store:
            store.prepare()
        yield made


@pytest.fixture
def wire(place, tmp_path_factory):
    with Wire(place.url, tmp_path_factory.mktemp("w")) as made:
        yield made


def ask(study):
    trial = study.optuna.ask()
    trial.suggest_categorical("batch_size", [32])
    return trial.number


def begun(study):
    number = ask(study)
    assert study.begin(number, PLANNED, "runs/0")
    return number


def finished(study):
    number = begun(study)
    assert study.finish(number, MEASURED, ENVIRONMENT)
    return number


WRITES = {
    "set_spec": (None, lambda study, _: study.set_spec(replace(SPEC, max_trials=7))),
    "set_facts": (None, lambda study, _: study.set_facts(FACTS)),
    "set_verdict": (None, lambda study, _: study.set_verdict(VERDICT)),
    "add_bundle": (None, lambda study, _: study.add_bundle("/out")),
    "add_repeat": (None, lambda study, _: study.add_repeat(Repeat(PLANNED, 1, MEASURED, ENVIRONMENT, "runs/9", 2))),
    "final": (None, lambda study, _: study.end_final(study.begin_final())),
    "ask": (None, lambda study, _: ask(study)),
    "enqueue": (None, lambda study, _: study.optuna.enqueue_trial({"batch_size": 32})),
    "ask for what is enqueued": (
        lambda study: study.optuna.enqueue_trial({"batch_size": 32}),
        lambda study, _: study.begin(ask(study), PLANNED, "runs/0"),
    ),
    "add to Optuna": (
        None,
        lambda study, _: study.optuna.add_trial(create_trial(state=TrialState.COMPLETE, values=[1.0, 2.0])),
    ),
    "add_trial": (
        lambda study: study.optuna.add_trial(create_trial(state=TrialState.COMPLETE, values=[1.0, 2.0])),
        lambda study, _: study.add_trial(0, BASELINE, MEASURED, ENVIRONMENT, "runs/discovery"),
    ),
    "begin": (ask, lambda study, number: study.begin(number, PLANNED, "runs/0") or 1 / 0),
    "finish": (begun, lambda study, number: study.finish(number, MEASURED, ENVIRONMENT) or 1 / 0),
    "tell": (finished, lambda study, number: study.optuna.tell(number, (32.0, 1.0))),
    "mark_told": (finished, lambda study, number: study.mark_told(number)),
    "untold": (finished, lambda study, _: study.untold()[0]),
    "release": (begun, lambda study, number: study.release(number)),
}


def told_of(study):
    """All that is stored of a study, but for times."""
    record = study.record()
    trials = [replace(one, started_at=0.0, finished_at=one.finished_at and 1.0) for one in record.trials]
    rows = [(one.state, one.params, one.values, set(one.user_attrs)) for one in study.optuna.get_trials()]
    return replace(record, name="", created_at=0.0, trials=tuple(trials)), rows


@pytest.mark.postgresql
@pytest.mark.parametrize("how", ["before", "after"])
@pytest.mark.parametrize("write", WRITES)
def test_whichever_commit_a_connection_breaks_at_each_write_is_done_once(wire, write, how, told):
    before, do = WRITES[write]
    with open_store(wire.url) as store:

        def result(commit):
            """What is stored after a write whose so-manyth commit is cut off, and whether it has so many."""
            study = store.create(f"{write} {how} {commit}", SPEC)
            study.optuna.get_trials()
            number = before(study) if before else None
            with store.waiting(60.0, told=told.append, cancel=threading.Event()):
                wire.cut(commit, how)
                do(study, number)
                was_cut = wire.commits >= commit
                wire.cut(0, how)
            return told_of(study), was_cut

        expected, _ = result(0)
        commit, was_cut = 0, True
        while was_cut:
            commit += 1
            found, was_cut = result(commit)
            assert found == expected, f"commit {commit}"
    assert commit > 1, "there was no commit to cut off"
    assert told == []


@pytest.mark.postgresql
def test_a_final_that_was_claimed_without_our_hearing_of_it_hinders_nobody(wire):
    living = replace(Owner.current(), process=os.getppid(), process_start=_start_of(os.getppid()))
    with open_store(wire.url) as store, open_store(wire.url, owner=living) as others:
        study = store.create("final", SPEC)
        study.recover()
        with store.waiting(60.0, told=print, cancel=threading.Event()):
            wire.cut(1, "after")
            number = study.begin_final()
        other = others.open("final")
        assert number == 2, "it was heard of: the test shows nothing"
        assert other.begin_final() is None
        study.end_final(number)
        assert other.begin_final() == 3


@pytest.mark.postgresql
@pytest.mark.parametrize("how", ["before", "after"])
def test_whichever_commit_breaks_while_recovering_each_trial_is_enqueued_once(wire, how):
    commit, was_cut = 0, True
    with open_store(wire.url, owner=DEAD) as deads, open_store(wire.url) as store:
        while was_cut:
            commit += 1
            dead = deads.create(f"recover {how} {commit}", SPEC)
            begun(dead)
            ask(dead)
            study = store.open(dead.name)
            study.optuna.get_trials()
            with store.waiting(60.0, told=print, cancel=threading.Event()):
                wire.cut(commit, how)
                recovered = study.recover()
                was_cut = wire.commits >= commit
                wire.cut(0, how)
            assert [one.number for one in recovered] == [0], f"commit {commit}"
            states = Counter(one.state for one in study.optuna.get_trials())
            assert (states[TrialState.WAITING], states[TrialState.RUNNING]) == (2, 0), f"commit {commit}"
    assert commit > 5


@pytest.mark.postgresql
def test_a_server_that_takes_a_statement_and_never_answers_is_given_up(wire):
    with open_store(wire.url, timeout_s=1.0) as store:
        study = store.create("frozen", SPEC)
        wire.cut(1, "frozen")
        with pytest.raises(StorageError, match="has not answered for 2 s"):
            study.set_facts(FACTS)
        with store.waiting(60.0, told=print, cancel=threading.Event()):
            wire.cut(1, "frozen")
            study.set_facts(FACTS)
        assert wire.commits > 1
        assert study.record().facts == FACTS


@pytest.mark.postgresql
def test_while_the_database_was_gone_nobody_elsewhere_died(place, monkeypatch):
    """Nobody could give a sign; so the grace period begins anew when the server starts."""
    far = replace(Owner.current(), machine="another machine", hostname="far")
    with open_store(place.url, owner=far) as there, open_store(place.url, grace_s=120.0) as here:
        remote = there.create("restarted", SPEC)
        begun(remote)
        place.execute("UPDATE autotune_owner SET heartbeat_at = 0")
        study = here.open("restarted")
        monkeypatch.setattr(claims, "_up_since", claims._now)
        assert study.recover() == ()
        monkeypatch.setattr(claims, "_up_since", lambda connection: claims._now(connection) - 121.0)
        assert [one.number for one in study.recover()] == [0]


@pytest.mark.postgresql
def test_connections_that_the_server_has_ended_are_made_anew_though_nobody_waits(place):
    """Servers end what is idle for long, and everything when they are started again."""
    own = sa.make_url(place.url).update_query_dict({"application_name": place.name})
    with open_store(own.render_as_string(hide_password=False)) as store:
        study = store.create("idle", SPEC)
        ask(study)
        ended = place.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = :name",
            name=place.name,
        )
        assert ended
        ask(study)
        assert len(study.optuna.get_trials()) == 2
