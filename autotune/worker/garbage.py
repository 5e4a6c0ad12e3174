"""Looking for garbage between trials among what is new only."""

from __future__ import annotations

import gc
import weakref

import torch

__all__ = ["LongLived"]


class LongLived:
    """The objects that are there before a run's second trial, which no look for garbage goes through after that.

    Most are torch's, or compiled graphs: going through them takes longer than a trial's step. What is put aside is
    never found to be garbage, though. So the tensors that the script made since its first step, and still has, are
    watched: where one outlives the next trial, it may be garbage, and everything is looked at again from then on.
    """

    def __init__(self) -> None:
        self._lasting: list[weakref.ref[torch.Tensor]] | None = None
        self._watched: list[weakref.ref[torch.Tensor]] | None = None

    def first_step_done(self) -> None:
        """Take note of the tensors that are there after a step: they are taken to last."""
        self._lasting = _tensors()

    def trial_done(self) -> None:
        """To be called at the end of each trial but the last, while the first one's graphs are current or kept."""
        if self._lasting is not None:
            gc.collect()
            known = {id(reference()) for reference in self._lasting}
            self._watched = [reference for reference in _tensors() if id(reference()) not in known]
            self._lasting = None
            gc.freeze()
        elif self._watched is not None and any(reference() is not None for reference in self._watched):
            self._watched = None
            gc.unfreeze()


def _tensors() -> list[weakref.ref[torch.Tensor]]:
    # By its type: what an object says of its class can be anything, and asking may do anything.
    return [weakref.ref(each) for each in gc.get_objects() if issubclass(type(each), torch.Tensor)]
