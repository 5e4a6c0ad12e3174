"""Limits of a study's time: its time budget, and the user's interruption."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..records.outcome import Died, Outcome
from ..records.study import Trial
from ..verdict.search_end import SearchEnd, out_of_time
from .costs import Costs

# A study's runs may pass its budget by this share, and are cut off then. With the start of the program and the bundle
# on top, it should be no more than a tenth.
_SLACK = 0.05
# What repetitions and proof should cost is kept with so much to spare, as a share.
_TO_SPARE = 0.1


@dataclass
class Interruption:
    """Ctrl-C once sets ``finish``: nothing new is started. Twice sets ``cancel`` too: what runs is ended.

    ``say`` prints a line while something paints the terminal; it must be safe in a signal's handler.
    """

    finish: threading.Event = field(default_factory=threading.Event)
    cancel: threading.Event = field(default_factory=threading.Event)
    say: Callable[[str], None] | None = None

    def explains(self, outcome: Outcome) -> bool:
        """Return whether a run died of the signal meant for this process: a job scheduler sends it to every process."""
        return self.finish.is_set() and isinstance(outcome, Died) and outcome.signal in ("SIGINT", "SIGTERM")


class RunCancel(threading.Event):
    """Ends one run: set by itself, by the event that ends all runs, or once its time is over."""

    def __init__(self, all_runs: threading.Event, ends_at: float) -> None:
        super().__init__()
        self._all_runs = all_runs
        self._ends_at = ends_at

    def ends_by(self, ends_at: float) -> None:
        """End the run by then at the latest."""
        self._ends_at = min(self._ends_at, ends_at)

    def is_set(self) -> bool:
        """Return whether this run, or every run, is to end."""
        return super().is_set() or self._all_runs.is_set() or time.monotonic() >= self._ends_at

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end of all runs only: the thread that would wait sets this run's own end."""
        return self.is_set() or self._all_runs.wait(timeout)


class Budget:
    """The time a study may take from now on, until ``ends_at`` by ``time.monotonic``, and the ``costs`` of its runs."""

    def __init__(self, seconds: float, interruption: Interruption, trials: Sequence[Trial] = ()) -> None:
        self.seconds = seconds
        self.costs = Costs(trials)
        self.ends_at = time.monotonic() + seconds
        self._interruption = interruption

    @property
    def latest_end(self) -> float:
        """Return when whatever runs is cut off, by ``time.monotonic``."""
        return self.ends_at + _SLACK * self.seconds

    def why_over(self) -> SearchEnd | None:
        """Return why nothing at all may start any more; None if something may."""
        if self._interruption.finish.is_set():
            return SearchEnd("It was interrupted.", "it was interrupted")
        return out_of_time("The time budget is spent.") if self.left_s <= 0 else None

    def why_search_over(self, confirmation_s: float, *, in_run: bool = False) -> SearchEnd | None:
        """Return why the search may start nothing new; None if it may.

        Args:
            confirmation_s: what confirmation and proof take if the search ends now; 0.0 with nothing to confirm.
            in_run: whether what would start is but the next trial of a run under way.
        """
        if over := self.why_over():
            return over
        needed_s = self.costs.trial_s + (0.0 if in_run else self.costs.start_s)
        if self.for_search_s(confirmation_s) > needed_s:
            return None
        kept = "The rest of the time budget is kept for measuring the finalists again."
        reason = kept if self.can_confirm(confirmation_s) else "The time left is too short for another run."
        return out_of_time(reason)

    def for_search_s(self, confirmation_s: float) -> float:
        """Return how long the search may go on; nothing is kept for confirmations that there is no time for."""
        kept_s = (1 + _TO_SPARE) * confirmation_s if self.can_confirm(confirmation_s) else 0.0
        return max(0.0, self.left_s - kept_s)

    def holds(self, seconds: float) -> bool:
        """Return whether what should take so long can be begun."""
        return not self._interruption.finish.is_set() and seconds <= self.left_s + _SLACK * self.seconds

    @staticmethod
    def needed_s(seconds: float) -> float:
        """Return the budget that a later session needs for what should take so long and for nothing else."""
        return (1 + _TO_SPARE) * seconds

    def can_confirm(self, confirmation_s: float) -> bool:
        """Return whether there is something to confirm that takes so long, and the time for it."""
        return 0 < confirmation_s <= self.left_s + _SLACK * self.seconds

    @property
    def left_s(self) -> float:
        """Return the seconds until the end of the budget."""
        return self.ends_at - time.monotonic()
