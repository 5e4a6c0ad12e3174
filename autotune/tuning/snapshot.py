"""The study as a tuning process knows it, so that the database is not read again for each question."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

from ..records.configuration import Configuration
from ..records.environment import Environment
from ..records.outcome import Outcome
from ..records.study import Repeat, StudyRecord, Trial
from ..store.port import Study


class Snapshot:
    """A study's record, as it was read last and with what this process has stored since.

    What this process stores of trials and rounds goes through here, so it is known at once. What other processes of the
    same study store is known from the next ``refresh``: before something is asked for, before a final, and before a
    decision. Who may have a trial or a final is never decided by the snapshot, but by the database. Methods may be
    called from several threads.
    """

    def __init__(self, study: Study) -> None:
        self._study = study
        self._lock = threading.Lock()
        self._record = study.record()

    @property
    def record(self) -> StudyRecord:
        """The record; trials that were begun since it was read have no times yet."""
        return self._record

    def refresh(self) -> StudyRecord:
        """Read the record again."""
        with self._lock:
            self._record = self._study.record()
            return self._record

    def begin(self, number: int, configuration: Configuration, run_directory: str) -> bool:
        """Claim a trial; False if another process has it."""
        with self._lock:
            if not self._study.begin(number, configuration, run_directory):
                return False
            trial = Trial(number, configuration, "running", run_directory=run_directory)
            self._record = replace(self._record, trials=(*self._record.trials, trial))
            return True

    def finish(self, number: int, outcome: Outcome, environment: Environment | None) -> bool:
        """Store the outcome of a trial; False if it was taken over."""
        with self._lock:
            if not self._study.finish(number, outcome, environment):
                return False
            trials = (
                replace(trial, state="finished", outcome=outcome, environment=environment, finished_at=time.time())
                if trial.number == number
                else trial
                for trial in self._record.trials
            )
            self._record = replace(self._record, trials=tuple(trials))
            return True

    def add_repeat(self, repeat: Repeat) -> None:
        """Store a round of a final."""
        with self._lock:
            self._study.add_repeat(repeat)
            self._record = replace(self._record, repeats=(*self._record.repeats, repeat))
