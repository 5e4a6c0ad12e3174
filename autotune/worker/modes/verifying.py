"""Comparing the first steps with those of another run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch

from ..hooks.samples import Window
from ..results import append_line
from ..verify import Verification
from .base import Mode

if TYPE_CHECKING:
    from ..session import Session

__all__ = ["VerifyMode"]


class VerifyMode(Mode):
    """Takes a ``Verification`` through the first steps."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._verification = Verification(session.request.verifying, session.directory)

    def process_began(self) -> None:
        """Seed what the steps draw from."""
        self._verification.begin(self._session.rank)

    def ready(self) -> None:
        """Hold the run to its limit."""
        self._session.limit_memory()

    def loss(self, loss: torch.Tensor) -> None:
        """Keep it, to be compared with the step."""
        self._verification.add_loss(loss)

    def step(self, window: Window) -> None:
        """Compare a step; the first one also shows whether the configuration could be applied."""
        session = self._session
        if session.steps == 1:
            failure = session.not_applied() or session.batch_failure(window.batch_size)
            if failure is not None:
                session.give_up(failure)
        if self._verification.step(session.roots.modules(), session.step_hooks.optimizers):
            self._write()
            session.end()

    def ended_early(self) -> bool:
        """Write what the steps so far have shown."""
        if not self._verification.steps:
            return False
        self._write()
        return True

    def _write(self) -> None:
        engine = self._session.engine
        is_compiled = engine is not None and engine.is_compiled
        append_line(self._session.directory, self._verification.result(os.getpid(), is_compiled=is_compiled))
        self._session.has_result = True
