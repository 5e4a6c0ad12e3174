"""Time limit of a description: by the size of the model, then by the time of the description's first step."""

from __future__ import annotations

import math
import time

from ...records.run import MOST_OF_BUDGET_TO_DESCRIBE, DescriptionPace

# Tracing takes some 0.05 s for a module on one core of 2023, and importing the compiler some 5 s; other programs may
# keep the cores busy, so ten times that is allowed. What is left after the first step runs each graph some twenty
# times, node by node, and cuts it into plans.
_IMPORT_S = 60.0
_MODULE_S = 0.5
_STEPS = 40
_TIMES_FIRST = 4.0
# Where nothing had to be imported any more the first step may take a second, which tells little of the others on a
# machine that others use as well: so long all of it may take at the least.
_LEAST_S = 30.0


class Allowance:
    """The seconds that a description may take; what takes longer is not going to end, or not worth it.

    Args:
        num_modules: of the roots, their own included.
        step_s: what a step of the script takes as it stands.
        left_s: what the study has left, of which the description may take a share; None for no budget.
        steps: how many steps the description has.

    Attributes:
        may_take_s: what all of it may take; until the first step is done, which traces and compiles, what that one may.
        pace: how fast it goes; None as long as no step but the first is over.
    """

    def __init__(self, *, num_modules: int, step_s: float, left_s: float | None, steps: int) -> None:
        self._began_s = time.monotonic()
        self._step_s = step_s
        self._most_s = math.inf if left_s is None else MOST_OF_BUDGET_TO_DESCRIBE * left_s
        self._steps = steps
        self._done = 0
        self._first_s = 0.0
        self.may_take_s = min(_IMPORT_S + _MODULE_S * num_modules + _STEPS * step_s, self._most_s)
        self.pace: DescriptionPace | None = None

    def step_done(self) -> None:
        """Note that a step has ended, and was not the last."""
        took_s = time.monotonic() - self._began_s
        self._done += 1
        if self._done == 1:
            self._first_s = took_s
            whole_s = (1 + _TIMES_FIRST) * took_s + _STEPS * self._step_s
            self.may_take_s = min(max(whole_s, _LEAST_S), self._most_s)
        else:
            each_s = (took_s - self._first_s) / (self._done - 1)
            self.pace = DescriptionPace(self._first_s, each_s * (self._steps - 1))
