"""A database that is gone for a while: work on it is done again until it answers, or until that takes too long."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from ..errors import InterruptionError, RunError
from ..records.units import format_duration
from .faults import is_out_of_reach, said_by_driver, translated
from .location import Location

T = TypeVar("T")

_TRY_AGAIN_S = 1.0
_LONG_S = 5.0  # whoever has waited so long by then is told why


@dataclass(frozen=True)
class _Patience:
    """The longest wait for a database in seconds, the receiver of messages, and the event that ends the wait."""

    seconds: float
    told: Callable[[str], None]
    cancel: threading.Event


class Server:
    """A store's view of its database: whether the database answers. Usable from several threads."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._patience: _Patience | None = None
        self._lock = threading.Lock()
        self._gone_since_s: float | None = None
        self._answered_s = -math.inf

    @contextmanager
    def waiting(self, seconds: float, *, told: Callable[[str], None], cancel: threading.Event) -> Iterator[None]:
        """In the block, wait for a database that is gone, for so long; see ``Store.waiting``."""
        self._patience = _Patience(seconds, told, cancel)
        try:
            yield
        finally:
            self._patience = None

    def run(self, work: Callable[[], T], *, waits: bool = True) -> T:
        """Do some work, and do it again as long as the database does not answer and is waited for.

        Args:
            work: One transaction, or several. It may be cut off anywhere, even after a commit whose answer was lost,
                and has to come to the same when it is done again.
            waits: Whether to wait for the database where others do.

        Raises:
            StorageError: It cannot be done, or nobody waits.
            RunError: It failed, or the database did not answer in all that time.
            InterruptionError: It was cancelled meanwhile.
        """
        has_failed, began_s = False, time.monotonic()
        with translated(self._location):
            while True:
                tried_s = time.monotonic()
                try:
                    done = work()
                except Exception as error:
                    patience = self._patience if waits else None
                    if patience is None or not is_out_of_reach(error):
                        raise
                    # A connection that broke is no database that is gone: first try another one.
                    if has_failed or time.monotonic() - began_s > _LONG_S:
                        self._wait(patience, error, tried_s)
                    has_failed = True
                else:
                    if has_failed:
                        self._answers()
                    return done

    def _wait(self, patience: _Patience, error: Exception, tried_s: float) -> None:
        with self._lock:
            if tried_s < self._answered_s:
                return  # another thread has had an answer since
            now_s = time.monotonic()
            if self._gone_since_s is None:
                self._gone_since_s = now_s
                patience.told(
                    f"The database {self._location} does not answer; waiting for it, "
                    f"{format_duration(patience.seconds)} at most. What runs goes on."
                )
            gone_s = now_s - self._gone_since_s
        if gone_s > patience.seconds:
            raise RunError(
                f"{self._location} did not answer for {format_duration(round(gone_s))}: {said_by_driver(error)}",
                hint="once it does, run the same command again to go on; finished trials are kept",
            ) from error
        if patience.cancel.wait(_TRY_AGAIN_S):
            raise InterruptionError(
                f"stopped while {self._location} did not answer", hint="once it does, run the same command again"
            ) from error

    def _answers(self) -> None:
        with self._lock:
            self._answered_s = time.monotonic()
            if self._gone_since_s is None:
                return
            gone_s, self._gone_since_s = time.monotonic() - self._gone_since_s, None
            if self._patience is not None:
                self._patience.told(f"The database answers again, after {format_duration(max(1, round(gone_s)))}.")
