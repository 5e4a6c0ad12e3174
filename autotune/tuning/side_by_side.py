"""Runs beside one another, and alone where that fails."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, Self, TypeVar

from ..errors import DiscoveryError
from ..machine.host import host_memory_limit

_MOST = 8
_BYTES_EACH = 2 << 30

Found = TypeVar("Found")


def most_at_once() -> int:
    """Return how many runs without a device this machine has processors and free memory for, at least 1."""
    return max(1, min(_MOST, len(os.sched_getaffinity(0)), host_memory_limit() // _BYTES_EACH))


def say_nothing(ended: int, asked: int) -> None:
    """Take note of no progress."""
    del ended, asked


class SideBySide(Generic[Found]):
    """Makes runs in threads, some at once, and begins them in the order in which they were asked for.

    A run that fails while others run may do so because of them, as over a port or a file. Such a run is made again when
    none does.

    Args:
        at_once: how many runs go on at a time.
        progress: is told how many runs have ended, and how many were asked for.
    """

    def __init__(self, at_once: int, progress: Callable[[int, int], None] = say_nothing) -> None:
        self._pool = ThreadPoolExecutor(at_once, "run")
        self._progress = progress
        self._turn = threading.Condition()
        self._running = self._started = self._asked = self._ended = 0
        self._is_alone = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Wait for runs that have begun; begin no other."""
        self._pool.shutdown(cancel_futures=True)

    def submit(self, run: Callable[[], Found]) -> Future[Found]:
        """Ask for a run, which may raise DiscoveryError."""
        with self._turn:
            self._asked += 1
            self._progress(self._ended, self._asked)
        future = self._pool.submit(self._make, run)
        future.add_done_callback(self._count_no_cancelled)
        return future

    def _count_no_cancelled(self, run: Future[Found]) -> None:
        if run.cancelled():
            with self._turn:
                self._asked -= 1
                self._progress(self._ended, self._asked)

    def _make(self, run: Callable[[], Found]) -> Found:
        with self._turn:
            self._turn.wait_for(lambda: not self._is_alone)
            self._running, self._started = self._running + 1, self._started + 1
            had_others, started = self._running > 1, self._started
        try:
            found: Found | DiscoveryError = run()
        except DiscoveryError as error:
            found = error
        finally:
            with self._turn:
                self._running -= 1
                had_others = had_others or self._started > started
                self._turn.notify_all()
        try:
            if isinstance(found, DiscoveryError):
                if not had_others:
                    raise found
                found = self._make_alone(run)
            return found
        finally:
            with self._turn:
                self._ended += 1
                self._progress(self._ended, self._asked)

    def _make_alone(self, run: Callable[[], Found]) -> Found:
        with self._turn:
            self._turn.wait_for(lambda: not self._is_alone)
            self._is_alone = True
            self._turn.wait_for(lambda: not self._running)
        try:
            return run()
        finally:
            with self._turn:
                self._is_alone = False
                self._turn.notify_all()
