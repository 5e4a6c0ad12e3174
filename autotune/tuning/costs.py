"""How long runs of a study have taken so far, and so how long its rounds and its proof should take."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence

from ..records import PLAIN_ENGINES, Configuration, Measured, Measurement, Outcome, Trial

__all__ = ["Costs"]

# A proof is two runs, as a rule, of three steps each (``proving.py``).
_PROOF_RUNS, _PROOF_STEPS = 2, 3


class Costs:
    """What runs have cost; all in seconds, 0.0 where nothing like it was seen.

    A run is its start, up to the first training call, and then its trials. A trial's own part is in its measurement,
    so any measured trial tells it, be it of an earlier session. Starts are told apart: rounds and proofs are fresh
    processes, runs of the search may be forked from one that has imported torch.

    Args:
        trials: Of an earlier session.
    """

    def __init__(self, trials: Sequence[Trial] = ()) -> None:
        self._fresh_starts_s: list[float] = []
        self._other_starts_s: list[float] = []
        self._trials_s: dict[str, float] = {}
        self._warmups_s: list[float] = []
        self._steps_s: dict[str, float] = {}
        self._rounds_s: dict[str, list[float]] = defaultdict(list)
        runs: dict[str, list[Trial]] = defaultdict(list)
        for trial in trials:
            if trial.outcome is not None:
                runs[trial.run_directory].append(trial)
        # A run's own order is that of least memory, and its first may have failed: what came after it had no start.
        firsts = [min(run, key=lambda one: one.finished_at or math.inf) for run in runs.values()]
        for trial in trials:
            if trial.measured is not None:
                # The first trial of a study is the baseline's, which discovery measured.
                is_first = any(trial is one for one in firsts)
                seconds = (trial.finished_at or 0.0) - trial.started_at if is_first else 0.0
                self.note_trial(trial.configuration, trial.measured, seconds, is_fresh=trial is trials[0])

    def note_trial(
        self, configuration: Configuration, outcome: Outcome, seconds: float = 0.0, *, is_fresh: bool = False
    ) -> None:
        """Learn from a trial of discovery or of the search; failures end early and tell nothing.

        Args:
            configuration: What was measured.
            outcome: How it ended.
            seconds: From the start of its run to its end, if it was the first of the run; else 0.0.
            is_fresh: The run was a fresh process.
        """
        if not isinstance(outcome, Measured):
            return
        measurement = outcome.measurement
        key = configuration.key
        self._trials_s[key], self._steps_s[key] = _seconds(measurement), measurement.step_time_s
        if seconds > 0:
            starts_s = self._fresh_starts_s if is_fresh else self._other_starts_s
            starts_s.append(max(0.0, seconds - self._trials_s[key]))
            if configuration.engine not in PLAIN_ENGINES:
                self._warmups_s.append(measurement.warmup_s)

    def note_round(self, configuration: Configuration, outcome: Outcome, seconds: float) -> None:
        """Learn how long a round of a final took."""
        if isinstance(outcome, Measured):
            self._rounds_s[configuration.key].append(seconds)
            self._fresh_starts_s.append(max(0.0, seconds - _seconds(outcome.measurement)))

    @property
    def start_s(self) -> float:
        """How long a run of the search takes before its first trial."""
        return _median(self._other_starts_s or self._fresh_starts_s)

    @property
    def trial_s(self) -> float:
        """How long a trial takes, usually."""
        return _median(list(self._trials_s.values()))

    def round_s(self, configuration: Configuration) -> float:
        """How long a round of a configuration takes."""
        if rounds_s := self._rounds_s.get(configuration.key):
            return _median(rounds_s)
        trial_s = self._trials_s.get(configuration.key, self.trial_s)
        # What was measured after another one in its run did not have to trace the model.
        tracing_s = 0.0 if configuration.engine in PLAIN_ENGINES else _median(self._warmups_s)
        return self._fresh_start_s + trial_s + tracing_s

    def final_s(self, entrants: Sequence[Configuration], rounds: int) -> float:
        """How long it takes to measure each of the entrants in so many rounds."""
        return rounds * sum(map(self.round_s, entrants))

    def proof_s(self, winner: Configuration) -> float:
        """How long the winner's proof takes."""
        if winner.is_untouched:
            return 0.0
        step_s = self._steps_s.get(winner.key, 0.0)
        return _PROOF_RUNS * (self._fresh_start_s + _PROOF_STEPS * step_s) + _median(self._warmups_s)

    @property
    def _fresh_start_s(self) -> float:
        # Discovery's may have been the first in a long while, with nothing in the caches of the machine.
        return _median(self._fresh_starts_s[1:] or self._fresh_starts_s or self._other_starts_s)


def _seconds(measurement: Measurement) -> float:
    """From the first training call to the last measured step."""
    return measurement.warmup_s + sum(measurement.step_times_s)


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else 0.0
