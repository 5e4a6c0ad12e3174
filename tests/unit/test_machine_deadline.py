"""A library that hangs: nobody waits for it longer than was said, and nobody waits twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from autotune.machine.meters.deadline import MeterWithDeadline, NoAnswerError, Questions
from tests.fakes.memory_meter import FakeMeter
from tests.fakes.waiting import DEADLINE_S, becomes_true

SHORT_S = 0.02


class Driver:
    """Answers while it is let."""

    def __init__(self) -> None:
        self.lets = threading.Event()
        self.asked = 0

    def ask(self) -> int:
        self.asked += 1
        self.lets.wait(DEADLINE_S)
        return 7


@pytest.fixture
def driver() -> Iterator[Driver]:
    driver = Driver()
    yield driver
    driver.lets.set()


def test_an_answer_in_time_is_the_answer_and_an_error_is_the_error() -> None:
    questions = Questions()

    assert questions.ask(lambda: 7, within_s=DEADLINE_S) == 7
    with pytest.raises(TimeoutError, match="its own"):
        questions.ask(_raiser(TimeoutError("its own")), within_s=DEADLINE_S)
    assert questions.ask(lambda: 8, within_s=DEADLINE_S) == 8


def test_while_an_answer_is_late_nothing_else_is_asked_and_nobody_waits(driver: Driver) -> None:
    questions = Questions()
    with pytest.raises(NoAnswerError, match=r"NVML did not answer within 0\.02 s"):
        questions.ask(driver.ask, within_s=SHORT_S)

    with pytest.raises(NoAnswerError, match=r"within 0\.02 s"):
        questions.ask(driver.ask, within_s=DEADLINE_S)
    assert driver.asked == 1

    driver.lets.set()
    assert becomes_true(lambda: _answers(questions, driver))
    assert driver.asked == 2


def test_an_interrupt_while_waiting_leaves_the_question_where_it_is(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = Questions()
    with monkeypatch.context() as patch:
        patch.setattr("autotune.machine.meters.deadline.Future.result", _raiser(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            questions.ask(driver.ask, within_s=DEADLINE_S)

    with pytest.raises(NoAnswerError):
        questions.ask(lambda: 8, within_s=DEADLINE_S)


def test_a_meter_that_hangs_has_no_figure_until_it_answers(driver: Driver) -> None:
    meter = _meter(FakeMeter(lambda pids: driver.ask()))
    meter.start()

    assert (meter.sample([1]), meter.problem) == (None, "NVML did not answer within 0.02 s")
    driver.lets.set()
    assert becomes_true(lambda: meter.sample([1]) == 7)
    assert meter.problem == ""


def test_a_meter_that_started_late_has_no_figure_at_all(driver: Driver) -> None:
    class Slow(FakeMeter):
        def start(self) -> None:
            driver.ask()
            super().start()

    inner = Slow(lambda pids: 5)
    meter = _meter(inner)
    meter.start()
    driver.lets.set()

    # Its thread goes once the answer is kept, so another question could be asked.
    assert becomes_true(lambda: inner.state == "started" and "NVML" not in {one.name for one in threading.enumerate()})
    assert (meter.sample([1]), meter.problem) == (None, "NVML did not answer within 0.02 s")


def _meter(meter: FakeMeter) -> MeterWithDeadline:
    return MeterWithDeadline(meter, start_within_s=SHORT_S, sample_within_s=SHORT_S)


def _answers(questions: Questions, driver: Driver) -> bool:
    try:
        return questions.ask(driver.ask, within_s=DEADLINE_S) == 7
    except NoAnswerError:
        return False


def _raiser(error: BaseException) -> Callable[..., int]:
    def fail(*_: object) -> int:
        raise error

    return fail
