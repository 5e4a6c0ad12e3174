"""When a trial is warm, when it has been measured enough, and what its measurement says."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.metering import trial_meter
from autotune.metering.trial_meter import TrialMeter, Window
from autotune.metering.waiting import WaitingTime, others_s
from autotune.records.measuring import Measuring

RULES = Measuring(
    min_warmup_steps=2, max_warmup_steps=8, min_steps=5, max_steps=30, interval_ratio=0.01, min_measure_s=0.0,
    fine_steps=100, max_measure_s=100.0,
)  # fmt: skip


class Clock:
    """Time passes when a test says so."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def perf_counter(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(trial_meter.time, "perf_counter", clock.perf_counter)
    assert trial_meter.time.perf_counter == clock.perf_counter
    return clock


def begun(rules: Measuring = RULES, **options: Any) -> TrialMeter:
    meter = TrialMeter(rules, **options)
    meter.begin()
    return meter


def window(samples: int = 8) -> Window:
    return Window(samples=samples, calls=1, batch_size=samples)


Step = Callable[..., bool]


def stepping(meter: TrialMeter, clock: Clock) -> Step:
    def step(seconds: float, samples: int = 8, *, compiled: bool = False) -> bool:
        clock.now_s += seconds
        return meter.step(window(samples), compiled=compiled)

    return step


def test_warm_up_ends_when_two_steps_take_alike(clock: Clock) -> None:
    meter = begun()
    step = stepping(meter, clock)
    for seconds in (9.0, 5.0, 1.0, 1.1):
        assert not step(seconds)
        assert meter.measured_steps == 0
    assert not step(1.0)
    assert meter.measured_steps == 1
    assert meter.notes == []


def test_a_step_that_compiled_starts_the_comparison_anew(clock: Clock) -> None:
    meter = begun()
    step = stepping(meter, clock)
    for seconds, compiled in ((9.0, True), (1.0, False), (1.0, True), (1.0, False)):
        step(seconds, compiled=compiled)
    assert meter.measured_steps == 0
    step(1.0)
    assert meter.measured_steps == 0
    step(1.0)
    assert meter.measured_steps == 1


def test_steps_that_never_settle_are_measured_all_the_same_and_that_is_said(clock: Clock) -> None:
    meter = begun()
    step = stepping(meter, clock)
    for number in range(8):
        step(2.0**number)
    assert meter.measured_steps == 0
    step(1.0)
    assert meter.measured_steps == 1
    assert meter.notes == ["step times had not settled after 8 warm-up steps"]


def warm(meter: TrialMeter, clock: Clock) -> Step:
    step = stepping(meter, clock)
    for _ in range(3):
        step(1.0)
    return step


def steps_until_done(step: Step, times: list[float]) -> int:
    for number, seconds in enumerate(times, start=1):
        if step(seconds):
            return number
    raise AssertionError("never done")


def test_even_steps_are_enough_at_the_least_number(clock: Clock) -> None:
    assert steps_until_done(warm(begun(), clock), [1.0] * 40) == 5


def test_uneven_steps_are_measured_until_the_interval_is_narrow(clock: Clock) -> None:
    times = [1.0, 1.2, 0.9, 1.1, 1.0] + [1.0] * 40
    assert 5 < steps_until_done(warm(begun(), clock), times) < 30


def test_steps_that_stay_uneven_end_at_the_largest_number(clock: Clock) -> None:
    assert steps_until_done(warm(begun(), clock), [1.0, 2.0] * 20) == 30


def cycle(meter: TrialMeter, clock: Clock, *, compiled: bool = False, scale: float = 1.0) -> bool:
    """A cycle of a long batch that stands for few of an epoch, and a short one that stands for many."""
    clock.now_s += 8.0 * scale
    meter.step(Window(samples=2, calls=1, backwards=1, batch_size=2), compiled=compiled, weight=0.5, completes=False)
    clock.now_s += 2.0 * scale
    return meter.step(Window(samples=6, calls=1, backwards=1, batch_size=6), compiled=False, weight=1.5, begins=False)


def test_a_cycle_of_batches_is_measured_as_one_step(clock: Clock) -> None:
    meter = begun()
    for place in range(3):
        meter.step(window(), compiled=place == 0, begins=place == 0, completes=place == 2)
    done = [cycle(meter, clock) for _ in range(5)]
    assert done == [False] * 4 + [True], "two cycles alike, and three that are measured"
    found = meter.measurement(notes=[])
    assert (found.cycle, found.num_steps, found.warmup_steps) == (2, 6, 3 + 2 * 2)
    assert found.step_times_s == (7.0, 7.0, 7.0)
    assert found.samples_per_step == (10, 10, 10)
    assert (found.step_time_s, found.mean_samples, found.samples_per_s) == (3.5, 5.0, 10 / 7)
    assert (found.calls_per_step, found.backwards_per_step) == (1.0, 1.0)
    assert found.step_time_interval_s == (3.5, 3.5)


def test_an_incomplete_cycle_is_dropped(clock: Clock) -> None:
    meter = begun()
    meter.step(window(), compiled=False)
    for _ in range(3):
        cycle(meter, clock)
    clock.now_s += 90.0
    meter.step(window(), compiled=False, weight=0.5, completes=False)
    for _ in range(2):
        done = cycle(meter, clock)
    assert done
    assert meter.measurement(notes=[]).step_times_s == (7.0, 7.0, 7.0)
    assert meter.measured_steps == 6


def test_a_graph_that_a_dropped_cycle_compiled_is_part_of_the_warm_up(clock: Clock) -> None:
    meter = begun()
    cycle(meter, clock, compiled=True)
    meter.step(window(), compiled=True, completes=False)
    for _ in range(3):
        assert meter.measured_steps == 0
        cycle(meter, clock)
    cycle(meter, clock)
    assert meter.measured_steps == 2


def test_notes_count_steps(clock: Clock) -> None:
    meter = begun(replace(RULES, max_warmup_steps=3))
    for place in range(4):
        cycle(meter, clock, scale=2.0**place)
    assert meter.notes == ["step times had not settled after 6 warm-up steps"]


def test_a_rough_interval_will_do_after_many_steps(clock: Clock) -> None:
    times = [1.0, 1.02] * 20
    assert steps_until_done(warm(begun(replace(RULES, fine_steps=8)), clock), times) == 8
    assert steps_until_done(warm(begun(replace(RULES, fine_steps=8, rough_interval_ratio=0.01)), clock), times) == 30


def test_slow_steps_end_when_their_time_is_spent(clock: Clock) -> None:
    rules = Measuring(min_warmup_steps=2, min_steps=5, max_steps=30, max_measure_s=20.0, interval_ratio=0.001)
    assert steps_until_done(warm(begun(rules), clock), [3.0, 4.0] * 20) == 6


def test_quick_steps_are_measured_for_a_least_time(clock: Clock) -> None:
    rules = Measuring(min_warmup_steps=2, min_steps=5, max_steps=60, min_measure_s=10.0)
    assert steps_until_done(warm(begun(rules), clock), [0.5] * 60) == 20


def test_processes_that_train_together_take_a_fixed_number_of_steps(clock: Clock) -> None:
    meter = begun(fixed_length=True)
    step = stepping(meter, clock)
    times = [5.0, 1.0, 3.0, 1.0] + [1.0, 4.0] * 20
    assert steps_until_done(step, times) == 4 + 16
    assert meter.measured_steps == 16
    assert meter.steps == 20


def test_the_measurement_says_what_was_measured(clock: Clock) -> None:
    meter = begun()
    step = stepping(meter, clock)
    for _ in range(3):
        step(2.0)
    for seconds, samples in ((1.0, 8), (2.0, 8), (3.0, 4)):
        step(seconds, samples)
    found = meter.measurement(num_processes=1, split=None, saved_bytes=77, notes=["said before", "said before"])
    assert found.step_times_s == pytest.approx((1.0, 2.0, 3.0))
    assert found.samples_per_step == (8, 8, 4)
    assert found.samples_per_s == pytest.approx((20 / 3) / 2.0)
    assert (found.warmup_steps, found.warmup_s) == (3, pytest.approx(6.0))
    assert (found.batch_size, found.calls_per_step, found.saved_bytes) == (8, 1.0, 77)
    assert not found.nonfinite_loss
    assert found.notes == ("said before",)
    assert found.peaks.resident is not None
    assert found.peaks.resident > 0


def test_one_guess_among_the_steps_marks_the_samples_as_guessed(clock: Clock) -> None:
    meter = begun()
    step = warm(meter, clock)
    step(1.0)
    clock.now_s += 1.0
    meter.step(Window(samples=8, calls=3, guessed=True, batch_size=8), compiled=False)
    found = meter.measurement(num_processes=1, split=None, saved_bytes=None, notes=[])
    assert found.samples_are_guessed
    assert found.calls_per_step == 2.0


def test_a_few_long_steps_among_many_are_said(clock: Clock) -> None:
    meter = begun(Measuring(min_warmup_steps=2, min_steps=20, max_steps=20, min_measure_s=0.0))
    step = warm(meter, clock)
    steps_until_done(step, ([1.0] * 9 + [6.0]) * 2)
    found = meter.measurement(num_processes=1, split=None, saved_bytes=None, notes=[])
    assert found.notes == ("steps are uneven: the mean step takes 1.50x the median (evaluation or logging inside?)",)
    assert found.step_time_s == pytest.approx(1.0)


def test_the_peak_of_a_trial_leaves_out_what_came_before_it() -> None:
    megabytes = 300
    bytes(bytearray(megabytes << 20))
    meter = begun()
    if meter.memory.notes:
        pytest.skip(meter.memory.notes[0])
    before = meter.memory.peaks().resident
    held = bytearray(b"x") * (megabytes << 20)
    after = meter.memory.peaks().resident
    del held
    assert before is not None
    assert after is not None
    assert after - before == pytest.approx(megabytes << 20, rel=0.1)


def test_a_trial_that_stays_below_the_rate_to_beat_is_not_measured_for_long(clock: Clock) -> None:
    meter = begun(replace(RULES, rate_to_beat=10.0))
    step = stepping(meter, clock)
    while not meter.measured_steps:
        step(1.0)
    assert [step(seconds) for seconds in (1.3, 0.9)] == [False, True], "8 samples in 0.9 s are 8.9 samples/s"
    assert meter.measured_steps == 3
    assert "measured for 3 steps only: too slow to be the answer" in meter.notes


def test_a_trial_that_may_come_to_the_rate_to_beat_is_measured_in_full(clock: Clock) -> None:
    meter = begun(replace(RULES, rate_to_beat=10.0))
    step = stepping(meter, clock)
    while not meter.measured_steps:
        step(1.0)
    assert [step(seconds) for seconds in (1.0, 0.79, 1.0)] == [False] * 3
    steps = 4
    while not step(1.0):
        steps += 1
    assert steps > RULES.min_steps


def test_a_trial_is_not_too_slow_before_it_was_measured_for_a_while(clock: Clock) -> None:
    meter = begun(replace(RULES, rate_to_beat=10.0, min_measure_s=10.0))
    step = stepping(meter, clock)
    while not meter.measured_steps:
        step(1.0)
    assert [step(1.0) for _ in range(4)] == [False, False, False, True], "half of ten seconds"


@pytest.mark.parametrize("synchronize", [None, lambda: None], ids=["on a CPU", "on a device"])
@pytest.mark.parametrize(("waiting", "steps"), [(0.0, 3), (0.5, RULES.max_steps)])
def test_a_trial_that_others_slow_down_is_not_too_slow(
    clock: Clock, waiting: float, steps: int, synchronize: Callable[[], None] | None
) -> None:
    meter = begun(
        replace(RULES, rate_to_beat=10.0, interval_ratio=0.0),
        synchronize=synchronize,
        make_waiting=lambda: SimpleNamespace(shares=lambda: (waiting, waiting / 10)),
    )
    step = stepping(meter, clock)
    seconds = itertools.cycle((1.3, 0.9))
    while not meter.measured_steps:
        step(1.0)
    while not step(next(seconds)):
        pass
    assert meter.measured_steps == steps
    measurement = meter.measurement(num_processes=1, split=None, saved_bytes=None, notes=[])
    assert measurement.contended is (waiting > 0)
    assert measurement.waited_share == pytest.approx(1.1 * waiting)


class Threads:
    """What the kernel shows of a process's threads: this one and two of others' making."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.here = threading.get_native_id()
        self.waited_s(**dict.fromkeys(("here", "pt_autograd_0", "pin_memory"), 3.0))

    def waited_s(self, **waited_s: float) -> None:
        """Since they began, each has waited for so long."""
        for number, (name, seconds) in enumerate(waited_s.items()):
            thread = self.folder / str(self.here if name == "here" else number)
            thread.mkdir(exist_ok=True)
            (thread / "comm").write_text("python\n" if name == "here" else f"{name}\n")
            (thread / "schedstat").write_text(f"77 {int(seconds * 1e9)} 5\n")


def test_each_thread_that_waits_for_a_processor_counts_where_the_processor_does_the_work(
    clock: Clock, tmp_path: Path
) -> None:
    threads = Threads(tmp_path)
    waiting = WaitingTime(tasks=tmp_path, others_s=lambda: None)
    clock.now_s += 10.0
    threads.waited_s(here=4.0, pt_autograd_0=5.0, pin_memory=12.0)

    assert sorted(waiting.shares()) == pytest.approx([0.1, 0.2, 0.9])


def test_threads_that_launch_a_devices_work_in_turns_count_as_one_and_no_others_do(
    clock: Clock, tmp_path: Path
) -> None:
    threads = Threads(tmp_path)
    waiting = WaitingTime(launching="pt_autograd_", tasks=tmp_path, others_s=lambda: None)
    clock.now_s += 10.0
    threads.waited_s(here=4.0, pt_autograd_0=5.0, pin_memory=12.0)

    assert waiting.shares() == pytest.approx((0.3,))


@pytest.mark.parametrize(
    ("others_ran_s", "shares"), [(0.0, [0.0] * 3), (3.0, [0.1, 0.2, 0.3]), (20.0, [0.1, 0.2, 0.9])]
)
def test_no_thread_waited_for_other_programs_longer_than_they_ran(
    clock: Clock, tmp_path: Path, others_ran_s: float, shares: list[float]
) -> None:
    """Guards a script whose own loader workers take the processors: no other program has to be ended."""
    threads, ran_s = Threads(tmp_path), iter([100.0, 100.0 + others_ran_s])
    waiting = WaitingTime(tasks=tmp_path, others_s=lambda: next(ran_s))
    clock.now_s += 10.0
    threads.waited_s(here=4.0, pt_autograd_0=5.0, pin_memory=12.0)

    assert sorted(waiting.shares()) == pytest.approx(shares)


def test_others_are_whatever_ran_but_the_process_and_its_children(tmp_path: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")

    def process(pid: str, *times_s: int, children: str = "") -> None:
        (tmp_path / pid / "task/1").mkdir(parents=True)
        (tmp_path / pid / "task/1/children").write_text(children)
        times = " ".join(str(ticks * seconds) for seconds in times_s)
        (tmp_path / pid / "stat").write_text(f"1 (a) b) S 1 1 1 0 -1 4194560 1 1 1 1 {times} 20 0 1 0 5 6 7\n")

    counts = " ".join(str(ticks * seconds) for seconds in (100, 20, 30, 7000, 900, 4, 5, 6, 0, 0))
    (tmp_path / "stat").write_text(f"cpu  {counts}\ncpu0 {counts}\nintr 1 2 3\n")
    process("self", 10, 5, 2, 1, children="71 72 ")
    process("71", 20, 1, 0, 0, children="73 ")
    process("73", 3, 0, 0, 0)  # and 72 has ended meanwhile
    assert others_s(tmp_path) == (100 + 20 + 30 + 4 + 5 + 6) - (18 + 21 + 3)
    (tmp_path / "stat").unlink()
    assert others_s(tmp_path) is None


def test_here_the_kernel_tells_what_others_ran() -> None:
    before = others_s()
    sum(range(3 * 10**6))
    after = others_s()
    assert before is not None
    assert after is not None
    assert after >= before - 0.05, "ticks are coarse"


@pytest.mark.parametrize("launching", [None, "pt_autograd_"])
def test_a_kernel_that_keeps_no_figures_of_waiting_shows_none(
    clock: Clock, tmp_path: Path, launching: str | None
) -> None:
    waiting = WaitingTime(launching=launching, tasks=tmp_path, others_s=lambda: None)
    clock.now_s += 10.0

    assert waiting.shares() == ()


def test_steps_that_had_not_settled_say_nothing_of_what_is_too_slow(clock: Clock) -> None:
    meter = begun(replace(RULES, rate_to_beat=10.0, max_steps=7))
    step = stepping(meter, clock)
    seconds = 100.0
    while not meter.measured_steps:
        seconds /= 1.5
        step(seconds)
    assert "step times had not settled" in meter.notes[0]
    assert [step(2.0) for _ in range(6)] == [False] * 5 + [True]
    assert len(meter.notes) == 1
