"""Steps of one process measured side by side: in turns, so that a machine that slows down slows all of them."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping

import torch
from torch.profiler import ProfilerActivity, profile

__all__ = ["peak_bytes", "ratio", "times_s"]

Step = Callable[[], object]


def peak_bytes(step: Step) -> int:
    """The most bytes of tensors that a step holds at once beyond what was held before it.

    The step must leave behind what it found: the profiler does not count the end of what was there before it, or takes
    it for as large as what an earlier profile saw at its address.
    """
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    events = (event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]")
    held = peak = 0
    # Some events share a timestamp; the list has them in the order in which they came.
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    if held:
        raise RuntimeError(f"the step leaves {held:+} bytes behind; its peak cannot be told")
    return peak


def times_s(
    steps: Mapping[str, Step], repetitions: int, prepare: Mapping[str, Step] | None = None
) -> dict[str, list[float]]:
    """The seconds of each step in each repetition. The order alternates; the first repetition is thrown away.

    On CPU the process's own time: one thread, so that it is the step's wall time on a machine without other work.

    Args:
        steps: what to time.
        repetitions: how often each.
        prepare: what to call before some of them, outside of the time taken.
    """
    found: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(repetitions + 1):
        for name in sorted(steps, reverse=bool(number % 2)):
            if prepare and name in prepare:
                prepare[name]()
            gc.collect()
            elapsed_s = _elapsed_s(steps[name])
            if number:
                found[name].append(elapsed_s)
    return found


def ratio(times: Mapping[str, list[float]], name: str, reference: str) -> float:
    """Return how many times as long one step takes as another: the median over the repetitions' ratios."""
    return statistics.median(one / other for one, other in zip(times[name], times[reference], strict=True))


def _elapsed_s(step: Step) -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        began_s = time.perf_counter()
        step()
        torch.cuda.synchronize()
        return time.perf_counter() - began_s
    began_s = time.process_time()
    step()
    return time.process_time() - began_s
