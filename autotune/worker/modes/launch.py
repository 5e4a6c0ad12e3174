"""Running a script to its own end with a bundle applied."""

from __future__ import annotations

import sys

from ..hooks.samples import Window
from .base import Mode

__all__ = ["LaunchMode"]

_REFUSED = 3


class LaunchMode(Mode):
    """Looks at the first step only: a script is not trained with anything but what the bundle says."""

    def step(self, window: Window) -> None:
        """Refuse to go on, after the first step, if the bundle could not be applied."""
        if self._process.steps > 1:
            return
        failure = self._applied.problem() or self._applied.batch_problem(window.batch_size, window.micro_batches)
        if failure is not None:
            sys.stderr.write(f"autotune: the bundle cannot be applied to this script: {failure.cause}\n")
            sys.stderr.write("  next: `autotune run` on this script writes a bundle for it\n")
            sys.stderr.flush()
            self._process.refuse(_REFUSED)
