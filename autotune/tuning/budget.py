"""When a study has to end: its time budget, and the user's interruption."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..records import Died, Outcome, Trial

__all__ = ["Budget", "Interruption", "RunCancel"]

# Rounds of finalists are kept time for as long as they take at most this share of the budget.
_MOST_KEPT = 0.9


@dataclass(frozen=True)
class Interruption:
    """Ctrl-C once sets ``finish``: nothing new is started. Twice sets ``cancel`` too: what runs is ended."""

    finish: threading.Event = field(default_factory=threading.Event)
    cancel: threading.Event = field(default_factory=threading.Event)

    def explains(self, outcome: Outcome) -> bool:
        """Whether a run died of the signal that was meant for us, as where a job scheduler ends every process."""
        return self.finish.is_set() and isinstance(outcome, Died) and outcome.signal in ("SIGINT", "SIGTERM")


class RunCancel(threading.Event):
    """Ends one run; set by itself, or by the event that ends all of them."""

    def __init__(self, all_runs: threading.Event) -> None:
        super().__init__()
        self._all_runs = all_runs

    def is_set(self) -> bool:
        """Whether this run, or every run, is to end."""
        return super().is_set() or self._all_runs.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end of all runs; this one's own is set by the thread that would wait."""
        return self.is_set() or self._all_runs.wait(timeout)


class Budget:
    """The time a study may take from now on, and how much of it the finalists will need.

    Args:
        seconds: the budget.
        interruption: ends it early.
        trials: of an earlier session; how long their runs took is what to expect.
    """

    def __init__(self, seconds: float, interruption: Interruption, trials: Sequence[Trial] = ()) -> None:
        self._seconds = seconds
        self._ends_at = time.monotonic() + seconds
        self._interruption = interruption
        self._discovery_s = 0.0
        self._alone_s: list[float] = []
        self._shared_s: list[float] = []
        runs = {trial.run_directory: trial for trial in trials}
        for trial in runs.values():
            took_s = (trial.finished_at or 0.0) - trial.started_at
            if trial.outcome is not None and took_s > 0:  # the baseline's took none: discovery measured it
                self.note_run(took_s, alone=False)

    def note_discovery(self, seconds: float) -> None:
        """Learn how long the script takes in a fresh process, measured in full: finals are expected to take that, too.

        Runs of the search may be forked, and be cut short.
        """
        self._discovery_s = seconds

    def note_run(self, seconds: float, *, alone: bool) -> None:
        """Learn how long a run takes, of one configuration ``alone`` or of more."""
        (self._alone_s if alone else self._shared_s).append(seconds)

    def why_over(self, *, runs_to_keep: int = 0, in_run: bool = False) -> str:
        """Why nothing new may start, or an empty string.

        Args:
            runs_to_keep: time for so many later runs is left.
            in_run: whether what would start is but the next trial of a run under way, which needs much less than a run.
        """
        if self._interruption.finish.is_set():
            return "It was interrupted."
        left_s = self._ends_at - time.monotonic()
        if left_s <= 0:
            return "The time budget is spent."
        kept_s = runs_to_keep * self._run_s
        # What does not fit anyway is not kept: the search then has all the time.
        if kept_s <= _MOST_KEPT * self._seconds and left_s <= kept_s + (0 if in_run else self._run_s):
            if not runs_to_keep:
                return "The time left is too short for another run."
            return "The rest of the time budget is kept for measuring the finalists again."
        return ""

    def holds(self, runs: int) -> bool:
        """Whether so many runs can be begun. Estimates are rough, so they may take twice the time that is left."""
        left_s = self._ends_at - time.monotonic()
        return not self._interruption.finish.is_set() and left_s > 0.5 * runs * self._run_s

    def needed_s(self, runs: int) -> float:
        """The budget that a later session needs for so many runs and nothing else, with some to spare."""
        return (runs + 1) * self._run_s

    @property
    def _run_s(self) -> float:
        """How long a run of one configuration takes, usually; 0.0 before anything ran."""
        times_s = sorted(self._alone_s or self._shared_s)
        return max(times_s[len(times_s) // 2] if times_s else 0.0, self._discovery_s)
