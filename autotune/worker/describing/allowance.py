"""How long a description may take: by the size of the model, then by what its first step has taken."""

from __future__ import annotations

import time

__all__ = ["Allowance"]

# Tracing takes some 0.05 s for a module on one core of 2023, and importing the compiler some 5 s; other programs may
# keep the cores busy, so ten times that is allowed. What is left after the first step runs each graph some twenty
# times, node by node, and cuts it into plans.
_IMPORT_S = 60.0
_MODULE_S = 0.5
_STEPS = 40
_TIMES_FIRST = 4.0
# Of what a study's time budget has left, describing the script may take this share: what it brings is of use in trials.
_MOST_OF_BUDGET = 1 / 3


class Allowance:
    """The seconds that each part of a description may take; what takes longer is not going to end, or not worth it.

    Args:
        num_modules: of the roots, their own included.
        step_s: what a step of the script takes as it stands.
        left_s: what the study has left, of which the whole description may take a third; None for no budget.

    Attributes:
        first_s: what the first step, in which the graphs are traced and compiled, may take.
        rest_s: what the steps after it may take; None before the first one is done.
    """

    def __init__(self, *, num_modules: int, step_s: float, left_s: float | None) -> None:
        self._began_s = time.monotonic()
        self._step_s = step_s
        self._most_s = None if left_s is None else _MOST_OF_BUDGET * left_s
        self.first_s = self._within(_IMPORT_S + _MODULE_S * num_modules + _STEPS * step_s)
        self.rest_s: float | None = None

    def first_step_done(self) -> float:
        """The first step has ended; gives what the others may take."""
        took_s = time.monotonic() - self._began_s
        self.rest_s = self._within(_TIMES_FIRST * took_s + _STEPS * self._step_s)
        return self.rest_s

    def _within(self, seconds: float) -> float:
        if self._most_s is None:
            return seconds
        return min(seconds, max(0.0, self._most_s - (time.monotonic() - self._began_s)))
