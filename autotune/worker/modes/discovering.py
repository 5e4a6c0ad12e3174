"""Discovery: the script as it stands is measured, and then described over a few steps under the engine."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
from torch import nn

from ...records import Configuration, Described, Outcome
from ..facts import Description
from ..hooks.samples import Window
from ..registry import description_of
from ..results import append_line
from .measuring import MeasureMode

__all__ = ["DiscoverMode"]


class DiscoverMode(MeasureMode):
    """Measures the baseline, the request's one configuration, and then fills a ``Description``."""

    _description: Description | None = None
    _is_written = False

    def ready(self) -> None:
        """Begin the trial, unless it is over."""
        if self._description is None:
            super().ready()

    def inputs(self, root: nn.Module, tensors: Sequence[torch.Tensor], dimension: int) -> None:
        """Pass them on."""
        if self._description is not None:
            self._description.see_call(root, list(tensors), dimension)

    def backward_began(self) -> None:
        """Pass it on."""
        if self._description is not None:
            self._description.backward_begins()

    def backward_done(self) -> None:
        """Pass it on."""
        if self._description is not None:
            self._description.backward_done()

    def step(self, window: Window) -> None:
        """Measure, or describe, a step."""
        if self._description is None:
            super().step(window)
        elif self._description.step_done():
            self._write()
            self._session.end()

    def trial_done(self) -> None:
        """Go on to the description."""
        if self._session.engine is None:
            super().trial_done()
        else:
            self._begin()

    def script_over(self) -> None:
        """The script was too short for the steps under the engine: leave the facts that there are."""
        if self._session.engine is None or self._is_written:
            return
        if self._description is None:
            self._begin()
        self._session.note("the script ended before its graphs could be described: with a few more steps it gets plans")
        self._write()

    def failed(self, outcome: Outcome) -> None:
        """Where the engine is what refuses: without plans there are still batch sizes to search."""
        if self._description is not None and not self._is_written and outcome == self._session.not_applied():
            self._write()

    def _begin(self) -> None:
        session, engine = self._session, self._session.engine
        assert engine is not None
        self._description = description_of(session, engine, self.baseline())
        for text in engine.describe():
            session.note(text)
        engine.use(Configuration(engine=engine.name))

    def _write(self) -> None:
        assert self._description is not None
        self._is_written = True
        if self._session.rank == 0:
            append_line(self._session.directory, Described(self._description.facts(), process=os.getpid()))
