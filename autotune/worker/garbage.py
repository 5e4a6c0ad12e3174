"""Timing of garbage collection: none while torch makes graphs, and between trials mostly among new objects."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import torch

# After so many trials all objects are looked at again.
_TRIALS = 8


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect no garbage meanwhile: each collection would go through the many objects of torch's graphs."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class LongLived:
    """The objects that are there before a run's second trial, which garbage collection leaves out after that.

    Most are torch's, or compiled graphs: going through them takes longer than a trial's step. Where a tensor that the
    script made after its first step outlives the next trial, it may be garbage: all objects are collected again.
    """

    def __init__(self) -> None:
        # By address: parameters with weak references to them cannot be swapped (torch.utils.swap_tensors).
        self._lasting: frozenset[int] | None = None
        self._watched: list[weakref.ref[torch.Tensor]] | None = None
        self._trials = 0

    def first_step_done(self) -> None:
        """Note the tensors that are there after a step, which are taken to last."""
        self._lasting = frozenset(id(tensor) for tensor in _tensors())

    def trial_done(self) -> None:
        """Collect garbage at the end of each trial but the last, while the first one's graphs are current or kept."""
        if self._lasting is not None:
            gc.collect()
            self._watched = [weakref.ref(tensor) for tensor in _tensors() if id(tensor) not in self._lasting]
            self._lasting = None
            gc.freeze()
        elif self._watched is not None:
            self._trials += 1
            outlived = any(reference() is not None for reference in self._watched)
            if outlived or self._trials % _TRIALS == 0:
                gc.unfreeze()
            if outlived:
                self._watched = None
            elif self._trials % _TRIALS == 0:
                gc.collect()
                gc.freeze()


def _tensors() -> list[torch.Tensor]:
    # By its type: what an object says of its class can be anything, and asking may do anything.
    return [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor)]
