"""Runs beside one another: their number, their order, and those that fail because of others."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from autotune.errors import DiscoveryError, InterruptionError
from autotune.tuning.side_by_side import SideBySide, most_at_once

WAIT_S = 60


@pytest.fixture
def runs() -> Iterator[SideBySide[str]]:
    with SideBySide[str](2) as side_by_side:
        yield side_by_side


def test_as_many_run_at_once_as_are_allowed(runs: SideBySide[str]) -> None:
    both, third = threading.Barrier(2), threading.Event()

    def meet() -> str:
        both.wait(WAIT_S)
        assert not third.wait(0.1), "it waits for one of these to end"
        both.wait(WAIT_S)
        return "met"

    def come_third() -> str:
        third.set()
        return "third"

    found = [runs.submit(meet), runs.submit(meet), runs.submit(come_third)]
    assert [one.result(WAIT_S) for one in found] == ["met", "met", "third"]


def test_a_run_that_fails_beside_another_is_made_again_alone(runs: SideBySide[str]) -> None:
    running = threading.Semaphore(0)
    other_ended = threading.Event()
    tries: list[bool] = []

    def fail_beside_another() -> str:
        tries.append(other_ended.is_set())
        if len(tries) == 1:
            running.acquire(timeout=WAIT_S)
            raise DiscoveryError("the port is taken")
        return "found"

    def other() -> str:
        running.release()
        while len(tries) < 1:
            pass
        other_ended.wait(0.2)
        other_ended.set()
        return "other"

    found = [runs.submit(fail_beside_another), runs.submit(other)]
    assert [one.result(WAIT_S) for one in found] == ["found", "other"]
    assert tries == [False, True], "the second time the other had ended"


def test_a_run_that_fails_by_itself_is_not_made_again() -> None:
    tries = []

    def fail() -> str:
        tries.append(1)
        raise DiscoveryError("no")

    with SideBySide[str](1) as runs:
        found = [runs.submit(fail), runs.submit(lambda: "next")]
        with pytest.raises(DiscoveryError, match="no"):
            found[0].result(WAIT_S)
        assert found[1].result(WAIT_S) == "next"
    assert len(tries) == 1


def test_a_run_that_was_interrupted_is_not_made_again(runs: SideBySide[str]) -> None:
    both, tries = threading.Barrier(2), []

    def stop() -> str:
        tries.append(1)
        both.wait(WAIT_S)
        raise InterruptionError("stopped")

    for one in [runs.submit(stop), runs.submit(stop)]:
        with pytest.raises(InterruptionError):
            one.result(WAIT_S)
    assert len(tries) == 2


def test_progress_counts_the_runs_that_ended_and_those_asked_for() -> None:
    told: list[tuple[int, int]] = []
    with SideBySide[str](1, lambda ended, asked: told.append((ended, asked))) as runs:
        runs.submit(lambda: "one").result(WAIT_S)
        runs.submit(lambda: "two").result(WAIT_S)
    assert told == [(0, 1), (1, 1), (1, 2), (2, 2)]


def test_a_run_that_is_cancelled_is_not_counted() -> None:
    told: list[tuple[int, int]] = []
    begun, go_on = threading.Event(), threading.Event()

    def wait() -> str:
        begun.set()
        go_on.wait(WAIT_S)
        return "one"

    with SideBySide[str](1, lambda ended, asked: told.append((ended, asked))) as runs:
        first, second = runs.submit(wait), runs.submit(lambda: "two")
        begun.wait(WAIT_S)
        assert second.cancel()
        go_on.set()
        first.result(WAIT_S)
    assert told[-1] == (1, 1)


def test_a_machine_has_room_for_a_run_at_least() -> None:
    assert 1 <= most_at_once() <= 8
