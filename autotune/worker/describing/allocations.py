"""Measurement of torch's allocations between marks: the current bytes and the highest point, exact to the byte."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import torch
from torch._C import _autograd

from ..device import uses_cuda

_MARK = "autotune mark"


def why_uncounted() -> str:
    """Return why nothing counts the bytes that are asked for, with what to do; empty where they are counted.

    With ``cudaMallocAsync`` torch's statistics of requests are zeros. A script may also have put an allocator of its
    own in the place of torch's (``torch.cuda.memory.change_current_allocator``), which torch calls ``pluggable``.
    """
    if not uses_cuda() or (backend := torch.cuda.get_allocator_backend()) == "native":
        return ""
    if backend == "cudaMallocAsync":
        return (
            f"torch's allocator is {backend}, which does not count the bytes that are asked for; without "
            f"backend:{backend} in PYTORCH_CUDA_ALLOC_CONF and PYTORCH_ALLOC_CONF memory can be predicted"
        )
    return (
        f"the script has put another allocator ({backend}) in the place of torch's, which does not count the bytes "
        "that are asked for; with torch's own memory can be predicted"
    )


@dataclass(frozen=True)
class Stretch:
    """From one mark to the next, in bytes above what was allocated at the first mark: ``end``, and the highest point.

    The first stretch is empty: it ends at the first mark.
    """

    end: int
    peak: int


class Allocations:
    """Counts from entering to leaving; afterwards ``stretches`` has one entry for each mark.

    On CUDA the current device's caching allocator counts the bytes that were asked for. Without it the profiler counts
    host memory, but not the end of what was allocated before entering: ``sees_earlier`` is False then.

    Raises:
        RuntimeError: on entering, when torch's profiler is in use or missing, or the allocator does not count.
    """

    def __init__(self) -> None:
        self.stretches: list[Stretch] = []
        self._cuda = self.sees_earlier = uses_cuda()
        self._profile: torch.autograd.profiler.profile | None = None
        self._began: int | None = None
        self._collects = False

    def __enter__(self) -> Self:
        if reason := why_uncounted():
            raise RuntimeError(reason)
        if not self._cuda and (_autograd._profiler_enabled() or not _autograd.kineto_available()):
            raise RuntimeError("torch's profiler, which counts allocations, is in use or missing")
        # Garbage that is in a cycle would be freed at some moment or other, and no two steps would count alike.
        self._collects = gc.isenabled()
        gc.disable()
        if not self._cuda:
            self._profile = torch.autograd.profiler.profile(use_kineto=True, profile_memory=True)
            self._profile.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._collects:
            gc.enable()
        if self._profile is None:
            return
        self._profile.__exit__(kind, error, traceback)
        if kind is None:
            self._read_profile(self._profile)
        self._profile = None

    def mark(self) -> None:
        """End a stretch and begin the next."""
        if not self._cuda:
            with torch.profiler.record_function(_MARK):
                return
        counted = torch.cuda.memory.memory_stats_as_nested_dict()["requested_bytes"]["all"]
        if self._began is None:
            self._began = counted["current"]
            self.stretches.append(Stretch(0, 0))
        else:
            self.stretches.append(Stretch(counted["current"] - self._began, counted["peak"] - self._began))
        torch.cuda.reset_peak_memory_stats()

    def _read_profile(self, profile: torch.autograd.profiler.profile) -> None:
        assert profile.kineto_results is not None
        current = peak = 0
        alive: set[int] = set()
        is_counting = False
        for event in _in_order(profile.kineto_results.experimental_event_tree()):
            if event.name == _MARK:
                self.stretches.append(Stretch(current, peak))
                is_counting, peak = True, current
                continue
            block = event.extra_fields
            if block.alloc_size > 0:
                alive.add(block.ptr)
            elif block.ptr in alive:
                alive.remove(block.ptr)
            else:
                # Torch remembers blocks of earlier profiles whose end it has not seen, and takes this one for such.
                continue
            if is_counting:
                current += block.alloc_size
                peak = max(peak, current)


def _in_order(tree: list[Any]) -> list[Any]:
    """List the marks, and the blocks of host memory as they come and go, from torch's tree of events."""
    found, left = [], list(tree)
    while left:
        event = left.pop()
        left += event.children
        if event.name == _MARK or (event.name == "[memory]" and event.extra_fields.device.type == "cpu"):
            found.append(event)
    return sorted(found, key=lambda event: event.start_time_ns)
