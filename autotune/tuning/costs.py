"""Times that runs of a study have taken so far, and so the times that its repetitions and its proof should take."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence

from ..records.choices import start_variables
from ..records.configuration import Configuration
from ..records.engines import ENGINES, PLAIN_ENGINES, SWITCHING_ENGINES, Engine
from ..records.measurement import Measurement
from ..records.outcome import Measured, Outcome
from ..records.study import Trial

# The runs of a proof (``proving.py``), of so many steps each, and those of them that trace the model. Compiled code has
# other bits than the script: six runs. With and without plans it is compiled anew, as only proofs keep the script's
# casts. As exported, it is in the cache with plans, and may be without.
_PROOF, _COMPILED_PROOF, _PROOF_STEPS = (2, 1), (6, 3), 3
# A description traces the model twice, once with sizes as symbols, and times it. A judgement.
_TRACING_SHARE = 1 / 3


class Costs:
    """The costs of runs so far, all in seconds, 0.0 where nothing like it was seen.

    A run is its start, up to the first training call, and then its trials. Proofs and the first repetition of a
    confirmation are fresh processes. Runs of the search and later repetitions may be forked from a process that has
    imported torch. Each later repetition has such a process of its own, one for each heap, and the first entrant in it
    waits for that.
    """

    def __init__(self, trials: Sequence[Trial] = ()) -> None:
        self._fresh_starts_s: list[float] = []
        self._other_starts_s: list[float] = []
        self._trials_s: dict[str, float] = {}
        self._warmups_s: dict[Engine, list[float]] = defaultdict(list)
        self._steps_s: dict[str, float] = {}
        self._fresh_repetitions_s: dict[str, list[float]] = defaultdict(list)
        # Of those that were to be forked, whether or not that could be.
        self._forked_repetitions_s: dict[str, list[float]] = defaultdict(list)
        self._forked_starts_s: list[float] = []
        self._description_s = 0.0
        runs: dict[str, list[Trial]] = defaultdict(list)
        for trial in trials:
            if trial.outcome is not None:
                runs[trial.run_directory].append(trial)
        # A run's own order is that of least memory, and its first may have failed: what came after it had no start.
        firsts = [min(run, key=lambda one: one.finished_at or math.inf) for run in runs.values()]
        for trial in trials:
            if trial.outcome is not None and trial.measured is not None:
                # The first trial of a study is the baseline's, which discovery measured.
                is_first = any(trial is one for one in firsts)
                seconds = (trial.finished_at or 0.0) - trial.started_at if is_first else 0.0
                self.note_trial(trial.configuration, trial.outcome, seconds, is_fresh=trial is trials[0])

    def note_trial(
        self, configuration: Configuration, outcome: Outcome, seconds: float = 0.0, *, is_fresh: bool = False
    ) -> None:
        """Learn from a trial of discovery or of the search; failures end early and tell nothing.

        ``seconds`` are from the start of its run to its end, if it was the first of the run; else 0.0.
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
                self._warmups_s[configuration.engine].append(measurement.warmup_s)

    def note_description(self, seconds: float) -> None:
        """Learn how long it took to describe the script."""
        self._description_s = seconds

    def note_repetition(
        self,
        configuration: Configuration,
        outcome: Outcome,
        seconds: float,
        *,
        may_fork: bool = False,
        is_fresh: bool = True,
    ) -> None:
        """Learn how long a repetition of a confirmation took."""
        if not isinstance(outcome, Measured):
            return
        repetitions_s = self._forked_repetitions_s if may_fork else self._fresh_repetitions_s
        repetitions_s[configuration.key].append(seconds)
        start_s = max(0.0, seconds - _seconds(outcome.measurement))
        if may_fork:
            self._forked_starts_s.append(start_s)
        if is_fresh:
            self._fresh_starts_s.append(start_s)

    @property
    def start_s(self) -> float:
        """Return how long a run of the search takes before its first trial."""
        return _median(self._other_starts_s or self._fresh_starts_s)

    @property
    def trial_s(self) -> float:
        """Return how long a trial takes, usually."""
        return _median(list(self._trials_s.values()))

    def repetition_s(self, entrants: Sequence[Configuration], *, forked: Sequence[Configuration] = ()) -> float:
        """Return the seconds of a repetition of these entrants, of which some are forked from its own server."""
        forked = [one for one in entrants if one in forked]
        fresh_s = sum(self._fresh_repetition_s(one) for one in entrants if one not in forked)
        # The mean of such repetitions has its share of the waiting for servers in it.
        servers = {frozenset(start_variables(one, {}).items()) for one in forked}
        waits_s = 0.0 if self._forked_starts_s else len(servers) * self._saved_by_forking_s
        return fresh_s + waits_s + sum(map(self._forked_repetition_s, forked))

    def confirmation_s(
        self, entrants: Sequence[Configuration], repetitions: int, *, forked: Sequence[Configuration] = ()
    ) -> float:
        """Return the seconds of so many repetitions of these entrants, ``forked`` ones forked in all but the first."""
        return self.repetition_s(entrants) + (repetitions - 1) * self.repetition_s(entrants, forked=forked)

    def confirmable_trial_s(
        self, left_s: float, beside: Sequence[Configuration], repetitions: int, *, can_fork: bool = False
    ) -> float:
        """Return the most seconds that a trial may take for its repetitions to fit in ``left_s`` too.

        ``left_s`` begins with the start of the trial's run. The setting has so many repetitions, and those ``beside``
        it; all but the first are forked if they ``can_fork``. An equivalence check is left out.
        """
        saved_s = self._saved_by_forking_s if can_fork else 0.0
        starts_s = self.start_s + repetitions * self._fresh_start_s - (repetitions - 1) * saved_s
        beside_s = self.confirmation_s(beside, repetitions, forked=beside if can_fork else ())
        return max(0.0, left_s - starts_s - beside_s) / (1 + repetitions)

    def proof_s(self, winner: Configuration) -> float:
        """Return how long the winner's proof takes."""
        if winner.is_untouched:
            return 0.0
        step_s = self._steps_s.get(winner.key, 0.0)
        runs, traces = _COMPILED_PROOF if ENGINES[winner.engine].fuses else _PROOF
        warmup_s = _median(self._warmups_s[winner.engine])
        return runs * (self._fresh_start_s + _PROOF_STEPS * step_s) + traces * warmup_s

    def compiling_s(self, engine: Engine) -> float:
        """Return how much longer a run takes that has another engine compile: as seen, or as such runs usually do."""
        if warmups_s := self._warmups_s[engine]:
            return _median(warmups_s)
        return (ENGINES[engine].runs_take - 1) * (self._fresh_start_s + self.trial_s)

    def tracing_s(self, engine: Engine) -> float:
        """Return how long a run with plans takes to trace the model first: as seen, or by the description."""
        warmups_s = self._warmups_s[engine]
        return _median(warmups_s) if warmups_s else _TRACING_SHARE * self._description_s

    def compiled_s(self, configuration: Configuration, engine: Engine) -> float:
        """Return how long measuring a setting once, compiled in a fresh process, should take."""
        return self._fresh_start_s + self._trials_s.get(configuration.key, self.trial_s) + self.compiling_s(engine)

    def _fresh_repetition_s(self, configuration: Configuration) -> float:
        if repetitions_s := self._fresh_repetitions_s.get(configuration.key):
            return _median(repetitions_s)
        return self._fresh_start_s + self._traced_trial_s(configuration)

    def _forked_repetition_s(self, configuration: Configuration) -> float:
        if repetitions_s := self._forked_repetitions_s.get(configuration.key):
            return statistics.fmean(repetitions_s)
        if repetitions_s := self._fresh_repetitions_s.get(configuration.key):
            return max(0.0, _median(repetitions_s) - self._saved_by_forking_s)
        return self._fresh_start_s - self._saved_by_forking_s + self._traced_trial_s(configuration)

    def _traced_trial_s(self, configuration: Configuration) -> float:
        trial_s = self._trials_s.get(configuration.key, self.trial_s)
        # What was measured after another one in its run did not have to trace the model.
        warmups_s = self._warmups_s[configuration.engine]
        return trial_s + (_median(warmups_s) if configuration.engine in SWITCHING_ENGINES else 0.0)

    @property
    def _saved_by_forking_s(self) -> float:
        """Return how many seconds sooner a forked process trains, by repetitions or else by the search."""
        start_s = statistics.fmean(self._forked_starts_s) if self._forked_starts_s else self.start_s
        return max(0.0, self._fresh_start_s - start_s)

    @property
    def _fresh_start_s(self) -> float:
        # Discovery's may have been the first in a long while, with nothing in the caches of the machine.
        return _median(self._fresh_starts_s[1:] or self._fresh_starts_s or self._other_starts_s)


def _seconds(measurement: Measurement) -> float:
    """Return the time from the first training call to the last measured step."""
    return measurement.warmup_s + sum(measurement.step_times_s)


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else 0.0
