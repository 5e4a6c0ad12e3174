"""Questions to NVML, which may never answer: each has a deadline, so that no study hangs with the driver."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from .port import MemoryMeter, Neighbours

_T = TypeVar("_T")


class NoAnswerError(Exception):
    """A question was not answered in time; nobody knows whether it ever will be."""


class Questions:
    """Asks NVML each question in a thread of its own: a call that hangs in a driver cannot be ended.

    Questions may be asked at the same time. Once one is late, no other is asked until it is answered: all of them would
    wait for the same driver, each with a thread.
    """

    def __init__(self) -> None:
        self._late: Future[Any] | None = None
        self._why = ""

    def ask(self, question: Callable[[], _T], *, within_s: float) -> _T:
        """Return the answer, or raise what the question raised; NoAnswerError after ``within_s`` seconds."""
        if self._late is not None and not self._late.done():
            raise NoAnswerError(self._why)
        answer: Future[_T] = Future()
        # A daemon, as this process must be able to end while it hangs.
        threading.Thread(target=_answer, args=(question, answer), name="NVML", daemon=True).start()
        try:
            return answer.result(within_s)
        except BaseException as error:
            if answer.done():
                raise
            # Also after Ctrl-C: the call goes on.
            self._late, self._why = answer, f"NVML did not answer within {within_s:g} s"
            if isinstance(error, TimeoutError):
                raise NoAnswerError(self._why) from None
            raise


def _answer(question: Callable[[], _T], answer: Future[_T]) -> None:
    try:
        answer.set_result(question())
    except BaseException as error:
        answer.set_exception(error)


class MeterWithDeadline(MemoryMeter):
    """A meter that has no figure while NVML does not answer, and none at all where it did not even start.

    ``sample_within_s`` is also the time that ``close`` has. The run is not watched for so long.
    """

    def __init__(self, meter: MemoryMeter, *, start_within_s: float, sample_within_s: float) -> None:
        self._meter = meter
        self._questions = Questions()
        self._start_within_s = start_within_s
        self._sample_within_s = sample_within_s
        self._not_started = ""

    def start(self) -> None:
        """See ``MemoryMeter``."""
        try:
            self._questions.ask(self._meter.start, within_s=self._start_within_s)
        except NoAnswerError as error:
            # An answer that comes while the run is at work would take the run's own memory for that of others.
            self._not_started = str(error)

    def sample(self, pids: Sequence[int]) -> int | None:
        """See ``MemoryMeter``."""
        try:
            if self._not_started:
                raise NoAnswerError(self._not_started)
            used = self._questions.ask(partial(self._meter.sample, pids), within_s=self._sample_within_s)
        except NoAnswerError as error:
            self.problem, self.neighbours, self.reading = str(error), Neighbours(), None
            return None
        meter = self._meter
        self.contended, self.problem = meter.contended, meter.problem
        self.neighbours, self.reading = meter.neighbours, meter.reading
        return used

    def close(self) -> None:
        """See ``MemoryMeter``."""
        try:
            self._questions.ask(self._meter.close, within_s=self._sample_within_s)
        except NoAnswerError:
            pass  # what is held ends with this process
