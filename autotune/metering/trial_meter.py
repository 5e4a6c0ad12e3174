"""One trial inside the process that runs it: when it is warm, when it has been measured enough, and its measurement."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ..records import Measurement, Measuring, MemorySplit, median_interval, nearly_whole
from .clocks import Clock, WaitingTime, WallClock
from .resident import ResidentMemory

__all__ = ["TrialMeter", "Window"]

# Processes that train together must stop at the same step, so their trials take a fixed number of steps.
_FIXED_WARMUP_STEPS, _FIXED_STEPS = 4, 16
# Before this many steps a trial is not given up as too slow.
_FEWEST_STEPS = 3
# On a quiet machine threads wait for less than one per cent of the time.
_CONTENDED = 0.05


@dataclass
class Window:
    """What happened between two optimizer steps (in this process)."""

    samples: int = 0
    calls: int = 0
    backwards: int = 0
    guessed: bool = False
    batch_size: int | None = None

    @property
    def micro_batches(self) -> float:
        """How many micro-batches it took: by their samples where those were counted, else by its backwards."""
        if not self.batch_size or self.guessed:
            return float(self.backwards or self.calls)
        return nearly_whole(self.samples / self.batch_size)

    def add(self, other: Window) -> None:
        """Take another window's counts over."""
        self.samples += other.samples
        self.calls += other.calls
        self.backwards += other.backwards
        self.guessed |= other.guessed
        self.batch_size = other.batch_size or self.batch_size


class TrialMeter:
    """Fed once per optimizer step; ``step`` says when the trial is done.

    Args:
        measuring: the rules for warm-up and for enough.
        fixed_length: take a fixed number of steps, whatever the times show.
        memory: reads the trial's peaks.
        make_clock: makes what times the steps.
        synchronize: waits for a device that is still at work when a step returns; None where there is none.
    """

    def __init__(
        self,
        measuring: Measuring,
        *,
        fixed_length: bool = False,
        memory: ResidentMemory | None = None,
        make_clock: Callable[[], Clock] = WallClock,
        synchronize: Callable[[], object] | None = None,
    ) -> None:
        self._rules = measuring
        self._fixed_length = fixed_length
        self._make_clock = make_clock
        self._synchronize = synchronize
        self._state: Literal["warmup", "measuring", "done"] = "warmup"
        self._began_s = time.perf_counter()
        self._last_s: float | None = None
        self._warmup_times_s: list[float] = []
        self._warmup_s = 0.0
        self._clock: Clock | None = None
        self._waiting: WaitingTime | None = None
        self._window_began_s = 0.0
        self._windows: list[Window] = []
        self._next_check = measuring.min_steps
        self._next_look = _FEWEST_STEPS
        self._settled = True
        self.memory = memory or ResidentMemory()
        self.notes: list[str] = []
        self.steps = 0

    def begin(self) -> None:
        """Called before the trial's first training call."""
        self.memory.begin()
        self._began_s = time.perf_counter()

    @property
    def measured_steps(self) -> int:
        """Steps measured so far, warm-up left out."""
        return len(self._windows)

    def step(self, window: Window, *, compiled: bool) -> bool:
        """Take a finished step in; True when the trial is done.

        Args:
            window: what the step took.
            compiled: whether a graph was compiled during it.
        """
        self.steps += 1
        if self._state == "warmup":
            self._warm(compiled=compiled)
            return False
        assert self._clock is not None
        self._clock.mark()
        self._windows.append(window)
        if self._enough():
            self._state = "done"
        return self._state == "done"

    def _warm(self, *, compiled: bool) -> None:
        if self._synchronize is not None:
            self._synchronize()
        now = time.perf_counter()
        if compiled:
            self._warmup_times_s.clear()
        elif self._last_s is not None:
            self._warmup_times_s.append(now - self._last_s)
        self._last_s = now
        if not self._is_warm():
            return
        self._state = "measuring"
        self._warmup_s = now - self._began_s
        self._clock = self._make_clock()
        self._clock.mark()
        self._waiting = WaitingTime()
        self._window_began_s = time.perf_counter()

    def _is_warm(self) -> bool:
        if self._fixed_length:
            return self.steps >= _FIXED_WARMUP_STEPS
        if self.steps >= self._rules.max_warmup_steps:
            self.notes.append(f"step times had not settled after {self.steps} warm-up steps")
            self._settled = False
            return True
        recent = self._warmup_times_s[-2:]
        if self.steps < self._rules.min_warmup_steps or len(recent) < 2:
            return False
        return max(recent) <= 1.2 * min(recent)

    def _enough(self) -> bool:
        done = self.measured_steps
        if self._fixed_length:
            return done >= _FIXED_STEPS
        elapsed_s = time.perf_counter() - self._window_began_s
        if done >= self._next_look and elapsed_s >= self._rules.min_measure_s / 2:
            self._next_look = done + max(1, done // 4)
            if self._is_too_slow():
                self.notes.append(f"measured for {done} steps only: too slow to be the answer")
                return True
        if done < self._rules.min_steps or (elapsed_s < self._rules.min_measure_s and done < self._rules.max_steps):
            return False
        if done >= self._rules.max_steps or elapsed_s >= self._rules.max_measure_s:
            return True
        if done < self._next_check:
            return False
        # Looking at the times waits for a device, so look ever more rarely.
        self._next_check = done + (1 if self._synchronize is None else max(1, done // 4))
        assert self._clock is not None
        times = self._clock.step_times_s()
        low, high = median_interval(times)
        is_long = done >= self._rules.fine_steps
        ratio = self._rules.rough_interval_ratio if is_long else self._rules.interval_ratio
        return high - low <= ratio * (low + high) / 2

    def _is_too_slow(self) -> bool:
        # Steps that had not settled become faster still, and so do those that other processes slowed down.
        if self._rules.rate_to_beat is None or not self._settled:
            return False
        if max(self._waiting_shares(), default=0.0) > _CONTENDED:
            return False
        assert self._clock is not None
        low_s, _ = median_interval(self._clock.step_times_s())
        samples = sum(window.samples for window in self._windows) / self.measured_steps
        return 0 < samples < self._rules.rate_to_beat * low_s

    def measurement(
        self,
        *,
        num_processes: int = 1,
        split: MemorySplit | None = None,
        saved_bytes: int | None = None,
        nonfinite_loss: bool = False,
        notes: list[str],
    ) -> Measurement:
        """The measurement; valid once at least one step was measured."""
        assert self._clock is not None
        if self._synchronize is not None:
            self._synchronize()
        sizes = [window.batch_size for window in self._windows if window.batch_size]
        times = tuple(self._clock.step_times_s())
        samples = tuple(window.samples for window in self._windows)
        if not any(samples):
            self.notes.append("no samples were seen: neither DataLoaders nor calls of root modules tell their number")
        waiting = self._waiting_shares()
        return Measurement(
            step_times_s=times,
            samples_per_step=samples,
            peaks=self.memory.peaks(),
            warmup_steps=self.steps - self.measured_steps,
            warmup_s=self._warmup_s,
            batch_size=max(set(sizes), key=sizes.count) if sizes else None,
            calls_per_step=sum(window.calls for window in self._windows) / self.measured_steps,
            backwards_per_step=sum(window.backwards for window in self._windows) / self.measured_steps,
            num_processes=num_processes,
            samples_are_guessed=any(window.guessed for window in self._windows),
            nonfinite_loss=nonfinite_loss,
            allocator_retries=self.memory.allocator_retries(),
            contended=max(waiting, default=0.0) > _CONTENDED,
            waited_share=min(1.0, sum(waiting)),
            split=split,
            saved_bytes=saved_bytes,
            notes=tuple(dict.fromkeys([*self.notes, *self.memory.notes, *notes, *_unevenness(times)])),
        )

    def _waiting_shares(self) -> tuple[float, ...]:
        return () if self._waiting is None or self._synchronize is not None else self._waiting.shares()


def _unevenness(times: tuple[float, ...]) -> list[str]:
    """Say so when a few long steps make the mean rate differ from the median one that is reported."""
    median = sorted(times)[len(times) // 2]
    mean = sum(times) / len(times)
    if mean <= 1.25 * median or len(times) < 10:
        return []
    return [f"steps are uneven: the mean step takes {mean / median:.2f}x the median (evaluation or logging inside?)"]
