"""Measurement of one trial inside the process that runs it, from its warm-up to enough steps."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from ..records.measurement import CONTENDED_SHARE, Measurement, median_interval, nearly_whole
from ..records.measuring import FEWEST_ROUNDS, GpuMeasuring, Measuring
from .host import ResidentMemory
from .waiting import WaitingTime


class WallClock:
    """Marks of time at step boundaries, of steps that are over when they return."""

    def __init__(self) -> None:
        self._marks: list[float] = []

    def mark(self) -> None:
        """End a step and begin the next."""
        self._marks.append(time.perf_counter())

    def step_times_s(self) -> list[float]:
        """Return the seconds between the marks, of the steps that are over: a device may be at work on the latest."""
        return [end - begin for begin, end in zip(self._marks, self._marks[1:], strict=False)]


# Processes that train together must stop at the same step, so their trials take a fixed number of steps.
_FIXED_WARMUP_STEPS, _FIXED_STEPS = 4, 16
_NO_GPU = GpuMeasuring(warmup_s=0.0, measure_s=0.0, steps=0)


@dataclass
class Window:
    """The samples, calls and backwards between two optimizer steps (in this process)."""

    samples: int = 0
    calls: int = 0
    backwards: int = 0
    guessed: bool = False
    batch_size: int | None = None

    @property
    def micro_batches(self) -> float:
        """Return the number of micro-batches: by the samples where those were counted, else by the backwards."""
        if not self.batch_size or self.guessed:
            return float(self.backwards or self.calls)
        return nearly_whole(self.samples / self.batch_size)

    def add(self, other: Window) -> None:
        """Add another window's counts."""
        self.samples += other.samples
        self.calls += other.calls
        self.backwards += other.backwards
        self.guessed |= other.guessed
        self.batch_size = other.batch_size or self.batch_size


@dataclass
class _Round:
    """The optimizer steps that are measured as one: a single one, or a cycle of batches, each step with its weight."""

    window: Window = field(default_factory=Window)
    samples: float = 0.0
    weights: list[float] = field(default_factory=list)
    seconds: float = 0.0  # while the times of steps are taken one by one
    compiled: bool = False
    first: int = 0  # step of the clock

    @property
    def end(self) -> int:
        """Return the step of the clock behind its last one."""
        return self.first + len(self.weights)

    def add(self, window: Window, weight: float, *, compiled: bool) -> None:
        """Add a step."""
        self.window.add(window)
        self.samples += weight * window.samples
        self.weights.append(weight)
        self.compiled |= compiled


@dataclass(eq=False)
class TrialMeter:
    """Measures a trial step by step; ``step`` says when the trial is done.

    Where batches come in cycles, a cycle of steps is a round, and rounds are measured as single steps are otherwise.

    It waits for a device at each step until step times have settled, and then once more at the end. Steps that have
    settled while the device is not warm are measured as well: they count where no others come. ``measuring_since_s`` is
    when the window of the steps that count began, by ``time.monotonic``; 0.0 before and after.
    """

    measuring: Measuring
    _: KW_ONLY
    fixed_length: bool = False  # take a fixed number of steps, whatever the times show
    memory: ResidentMemory = field(default_factory=ResidentMemory)
    make_clock: Callable[[], WallClock] = WallClock
    synchronize: Callable[[], object] | None = None  # waits for a device that is still at work when a step returns
    make_waiting: Callable[[], WaitingTime] = WaitingTime  # called in the thread that trains

    def __post_init__(self) -> None:
        self._least = _NO_GPU if self.synchronize is None else self.measuring.on_gpu
        self._began_s = time.perf_counter()
        self._last_s: float | None = None
        self._round, self._rounds_in_all, self._marks = _Round(), 0, 0
        # Since the end of the first step, or of the last one that compiled.
        self._at_work_since_s = 0.0
        self._is_warm = False
        self._warmup_times_s: list[float] = []
        self._warmup_s = 0.0
        self._compile_s = 0.0
        self._clock: WallClock | None = None
        self._waiting: WaitingTime | None = None
        # Since step times had settled.
        self._settled_waiting: WaitingTime | None = None
        self._window_began_s = 0.0
        self._rounds: list[_Round] = []
        # The rounds before this one are of steps that had settled while the device was not warm.
        self._counts_from = 0
        self._settled_after_s = 0.0
        # How many steps have compiled since they had settled.
        self._late_compilations = 0
        self._next_check = 0
        self._next_look = FEWEST_ROUNDS
        self._settled = True
        self.measuring_since_s = 0.0
        self.notes: list[str] = []
        self.steps = 0

    def begin(self) -> None:
        """Begin, before the trial's first training call."""
        self.memory.begin()
        self._began_s = time.perf_counter()

    @property
    def measured_steps(self) -> int:
        """Return the number of steps measured so far, without warm-up."""
        return sum(len(one.weights) for one in self._counted())

    @property
    def _measured_rounds(self) -> int:
        return len(self._rounds) - self._counts_from

    @property
    def is_measuring(self) -> bool:
        """Return whether steps have been measured."""
        return self._measured_rounds > 0

    @property
    def has_figure(self) -> bool:
        """Return whether enough steps were measured for a figure."""
        return self._measured_rounds >= FEWEST_ROUNDS

    def script_ended(self) -> None:
        """Count the steps before the device was warm as well, where those after it are too few: no others come."""
        if not self.has_figure and self._counts_from:
            self._counts_from, self._warmup_s, self._is_warm = 0, self._settled_after_s, False
            self._waiting = self._settled_waiting
            self.memory.measuring_began_earlier()

    def step(
        self, window: Window, *, compiled: bool, weight: float = 1.0, begins: bool = True, completes: bool = True
    ) -> bool:
        """Measure a step that took ``window``, and compiled a graph or not; True when the trial is done.

        A step that ``begins`` a round drops an incomplete one; the one that ``completes`` it may be the same. In a
        round, ``weight`` is how many steps this one stands for.
        """
        self.steps += 1
        if begins:
            self._round = _Round(first=self._marks, compiled=self._round.compiled)
        self._round.add(window, weight, compiled=compiled)
        if self._clock is None:
            self._settle(compiled=compiled, completes=completes)
            return False
        self._clock.mark()
        self._marks += 1
        if not completes:
            return False
        done, self._round = self._round, _Round(first=self._marks)
        self._rounds.append(done)
        if not self._is_warm:
            self._warm_up(compiled=done.compiled)
            return False
        if not self._enough():
            return False
        self.measuring_since_s = 0.0
        return True

    def _settle(self, *, compiled: bool, completes: bool) -> None:
        if self.synchronize is not None:
            self.synchronize()
        now = time.perf_counter()
        took_s = now - (self._began_s if self._last_s is None else self._last_s)
        is_first, self._last_s = self._last_s is None, now
        one = self._round
        one.seconds += took_s
        if compiled or is_first:
            self._at_work_since_s = now
        if compiled:
            self._compile_s += took_s
        if not completes:
            return
        self._round = _Round()
        self._rounds_in_all += 1
        if one.compiled:
            self._warmup_times_s.clear()
        elif self._rounds_in_all > 1:
            self._warmup_times_s.append(one.seconds)
        if not self._has_settled():
            return
        self._settled_after_s = now - self._began_s
        self._clock = self.make_clock()
        self._clock.mark()
        # Processes that train together stop at the same step, and the seconds of each are its own.
        self._is_warm = self.fixed_length or now - self._at_work_since_s >= self._least.warmup_s
        self._begin_window(now)

    def _warm_up(self, *, compiled: bool) -> None:
        """Measure a step that does not count if others come: its clocks are not those of a long training."""
        now = time.perf_counter()
        if compiled:
            self._at_work_since_s = now
            self._late_compilations += 1
        self._is_warm = now - self._at_work_since_s >= self._least.warmup_s
        if self._late_compilations >= self.measuring.max_warmup_steps and not self._is_warm:
            late = f"{self._late_compilations} steps compiled graphs after step times had settled"
            self.notes.append(f"{late}, and later ones may")
            self._is_warm, self._settled = True, False
        if self._is_warm:
            self._begin_window(now)

    def _begin_window(self, now: float) -> None:
        self._warmup_s = now - self._began_s
        self._counts_from = len(self._rounds)
        self.memory.measuring_begins()
        self._waiting = self.make_waiting()
        self._settled_waiting = self._settled_waiting or self._waiting
        self._window_began_s = time.perf_counter()
        self.measuring_since_s = time.monotonic()

    def _has_settled(self) -> bool:
        if self.fixed_length:
            return self._rounds_in_all >= _FIXED_WARMUP_STEPS
        if self._rounds_in_all >= self.measuring.max_warmup_steps:
            self.notes.append(f"step times had not settled after {self.steps} warm-up steps")
            self._settled = False
            return True
        recent = self._warmup_times_s[-2:]
        if self._rounds_in_all < self.measuring.min_warmup_steps or len(recent) < 2:
            return False
        return max(recent) <= 1.2 * min(recent)

    def _enough(self) -> bool:
        rules, done = self.measuring, self._measured_rounds
        if self.fixed_length:
            return done >= max(_FIXED_STEPS, self._least.steps)
        elapsed_s = time.perf_counter() - self._window_began_s
        if done >= self._next_look and elapsed_s >= rules.min_measure_s / 2:
            self._next_look = done + max(1, done // 4)
            if self._is_too_slow():
                self.notes.append(f"measured for {self.measured_steps} steps only: too slow to be the answer")
                return True
        # A cycle is the mean of several steps, so fewer cycles are enough.
        least = rules.min_steps if len(self._rounds[-1].weights) == 1 else FEWEST_ROUNDS
        if done < least or (elapsed_s < rules.min_measure_s and done < rules.max_steps):
            return False
        if elapsed_s < self._least.measure_s:
            return False
        if elapsed_s >= rules.max_measure_s:
            return True
        if done < self._least.steps:
            return False
        if done >= rules.max_steps:
            return True
        if done < self._next_check:
            return False
        # On a GPU there may be thousands of steps, and it waits while they are sorted: look ever more rarely.
        self._next_check = done + (1 if self.synchronize is None else max(1, done // 4))
        times = self._step_times_s()
        if len(times) < least:
            return False
        low, high = median_interval(times)
        is_long = len(times) >= rules.fine_steps
        ratio = rules.rough_interval_ratio if is_long else rules.interval_ratio
        return high - low <= ratio * (low + high) / 2

    def _is_too_slow(self) -> bool:
        # Steps that had not settled become faster still, and so do those that other processes slowed down.
        if self.measuring.rate_to_beat is None or not self._settled:
            return False
        if max(self._waiting_shares(), default=0.0) > CONTENDED_SHARE:
            return False
        times = self._step_times_s()
        if len(times) < FEWEST_ROUNDS:  # a device may be at work on the others
            return False
        low_s, _ = median_interval(times)
        samples = sum(one.samples for one in self._counted()) / self._measured_rounds
        return 0 < samples < self.measuring.rate_to_beat * low_s

    def measurement(self, *, notes: list[str], **fields: Any) -> Measurement:
        """Return the measurement with other ``fields`` of it; valid once at least one step was measured."""
        if self.synchronize is not None:
            self.synchronize()
        rounds, times, steps = self._counted(), tuple(self._step_times_s()), self.measured_steps
        windows = [one.window for one in rounds]
        sizes = [window.batch_size for window in windows if window.batch_size]
        samples = tuple(_counted(one.samples) for one in rounds)
        if not self._is_warm:
            seconds = time.perf_counter() - self._at_work_since_s
            cold = f"the script ended when the GPU had been at work for {seconds:.1f} s"
            self.notes.append(f"{cold}: its clocks may have been higher")
        if not any(samples):
            self.notes.append(
                "no samples were counted: neither DataLoaders nor calls of top-level modules give their number"
            )
        waiting = self._waiting_shares()
        return Measurement(
            step_times_s=times,
            samples_per_step=samples,
            peaks=self.memory.peaks(),
            cycle=len(rounds[-1].weights),
            warmup_steps=self.steps - steps,
            warmup_s=self._warmup_s,
            batch_size=max(set(sizes), key=sizes.count) if sizes else None,
            calls_per_step=sum(window.calls for window in windows) / steps,
            backwards_per_step=sum(window.backwards for window in windows) / steps,
            samples_are_guessed=any(window.guessed for window in windows),
            allocator_retries=self.memory.allocator_retries(),
            contended=max(waiting, default=0.0) > CONTENDED_SHARE,
            waited_share=min(1.0, sum(waiting)),
            compile_s=self._compile_s,
            notes=tuple(dict.fromkeys([*self.notes, *self.memory.notes, *notes, *_unevenness(times)])),
            **fields,
        )

    def _counted(self) -> list[_Round]:
        return self._rounds[self._counts_from :]

    def _step_times_s(self) -> list[float]:
        assert self._clock is not None
        times = self._clock.step_times_s()
        return [
            sum(map(operator.mul, one.weights, times[one.first : one.end]))
            for one in self._counted()
            if one.end <= len(times)
        ]

    def _waiting_shares(self) -> tuple[float, ...]:
        return () if self._waiting is None else self._waiting.shares()


def _counted(samples: float) -> float:
    """Return a number of samples as a whole one, unless weights have made it none."""
    whole = round(samples)
    return whole if abs(samples - whole) < 1e-6 * max(1, whole) else samples


def _unevenness(times: tuple[float, ...]) -> list[str]:
    median = sorted(times)[len(times) // 2]
    mean = sum(times) / len(times)
    if mean <= 1.25 * median or len(times) < 10:
        return []
    return [f"steps are uneven: the mean step takes {mean / median:.2f}x the median (evaluation or logging inside?)"]
