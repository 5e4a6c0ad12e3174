"""Whole studies against a landscape: the real search with its stop rule and confirmations."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from statistics import NormalDist
from typing import Literal

import optuna

from autotune.records.configuration import Configuration
from autotune.records.outcome import Measured, Outcome
from autotune.records.study import Repeat, StudyRecord, StudySpec, Trial, Verdict
from autotune.search.optuna_trials import set_free
from autotune.search.proposal import propose
from autotune.search.search import START, Asked, Search
from autotune.verdict.decision import decide
from autotune.verdict.finalists import finalists
from autotune.verdict.repetitions import next_repetition
from autotune.verdict.sequential import FIRST_LOOK
from tests.fakes.expected import expect

from .table import Process, Table

__all__ = ["LEVELS", "NEAR", "OTHERS", "Coverage", "Needed", "Replay", "Replayed"]

LEVELS = (0.5, 0.9, 0.99)
"""Intervals that predictions are held against."""

NEAR = 0.99
"""This share of what the best is worth counts as found."""
OTHERS = 10
"""So many other seeds of the draws are asked, where a search stops, whether they would go on."""
_MOST_TRIALS = 400
# Predictions are held against so many lines of a table.
_COMPARED = 60


@dataclass(frozen=True)
class Needed:
    """What it took to measure something within 1 % of the best, or to stop; ``seconds`` are the device's."""

    runs: int = 0
    trials: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Coverage:
    """How many of the compared configurations lay within intervals of each of ``LEVELS``, of peak and of speed."""

    when: Literal["before", "after three", "at the stop"]
    compared: int
    peaks: tuple[int, ...]
    speeds: tuple[int, ...]


@dataclass(frozen=True)
class Replayed:
    """One study. ``found`` is None if nothing near the best was measured; errors are medians, as shares.

    ``duplicates`` are trials of what had been tried, the baseline included. ``loss`` is how much less than the best
    there is the best one is worth at the stop, by true speeds or peaks; ``answer_loss`` is that of the answer, after
    the confirmations. The best at the stop is who is believed to be, the baseline included. It is all of it where it is
    slower than the objective allows. ``gone_on`` is how many of ``OTHERS`` seeds would have made another run where this
    one stopped; None where that was not the cost model's to say.
    """

    landscape: str
    seed: int
    found: Needed | None
    stopped: Needed
    duplicates: int
    out_of_memory: int
    peak_error_at_once: float | None
    peak_error_after_three: float | None
    speed_error_at_stop: float | None
    loss: float
    answer_loss: float
    answer: str
    stop_reason: str
    covered: tuple[Coverage, ...] = ()
    gone_on: int | None = None


@dataclass
class Replay:
    """A study on a table: runs what is asked, as ``autotune.tuning`` does, and then the confirmations."""

    table: Table
    seed: int
    sampler: str
    optuna: optuna.Study = field(
        default_factory=lambda: optuna.create_study(directions=["maximize", "minimize"]), repr=False
    )
    trials: list[Trial] = field(default_factory=list, repr=False)
    needed: Needed = field(default_factory=Needed)
    found: Needed | None = None

    def __post_init__(self) -> None:
        self._chance = random.Random(f"{self.table.name} {self.seed}")
        self._processes = 0
        table = self.table
        self._spec = StudySpec(
            script="train.py",
            engine=table.landscape.engine,
            objective=table.objective,
            sampler=self.sampler,
            seed=self.seed,
            max_trials=_MOST_TRIALS,
        )
        self._search = Search(self.optuna, table.space, table.facts, self._spec, table.limit_bytes)
        baseline = table.facts.baseline
        outcome = self._measure(baseline, self._process())
        self._finish(self._search.add_baseline(outcome), baseline, outcome)

    def run(self) -> Replayed:
        """Search to the stop, then measure the finalists and decide."""
        at_once, after_three = self._peak_error(), None
        covered = [self._coverage("before")]
        while asked := self._search.ask(start=self._start):
            self._run(asked)
            if after_three is None and self.needed.trials >= 3:
                after_three = self._peak_error()
                covered.append(self._coverage("after three"))
        speed_error = self._speed_error()
        covered.append(self._coverage("at the stop"))
        end = self._search.end
        assert end is not None
        chosen = finalists(self.trials, self.table.facts, self.table.aim, believed=end.believed)
        own, believed = self.table.facts.baseline, end.believed.per_s
        first = next(iter(chosen), own)
        if believed.get(own.key, 0.0) > believed.get(first.key, math.inf):
            first = own
        verdict = self.conclude()
        keys = [trial.configuration.key for trial in self.trials]
        return Replayed(
            landscape=self.table.name,
            seed=self.seed,
            found=self.found,
            stopped=self.needed,
            duplicates=len(keys) - len(set(keys)),
            out_of_memory=sum(
                trial.outcome is not None and trial.outcome.kind == "out_of_memory" for trial in self.trials[1:]
            ),
            peak_error_at_once=at_once,
            peak_error_after_three=after_three,
            speed_error_at_stop=speed_error,
            loss=self._loss(first),
            # No answer is all of it, unless there is nothing to find.
            answer_loss=float(self.table.best > 0) if verdict.winner is None else self._loss(verdict.winner),
            answer=verdict.kind_of_answer,
            stop_reason="" if self._search.end is None else self._search.end.reason,
            covered=tuple(covered),
            gone_on=self._gone_on(),
        )

    def conclude(self) -> Verdict:
        """Measure finalists and baseline in turns until there is nothing to tell apart, and decide."""
        repeats: list[Repeat] = []
        table, own, end = self.table, self.table.facts.baseline, self._search.end
        assert end is not None
        for confirmation in range(1, len(self.trials)):
            entrants = finalists(self.trials, table.facts, table.aim, repeats, believed=end.believed)
            if all(any(one.configuration.key == entrant.key for one in repeats) for entrant in entrants):
                break
            if table.speed(own):
                entrants = (own, *entrants)
            repetitions: list[Repeat] = []
            while order := next_repetition(
                repetitions,
                entrants,
                own,
                table.aim,
                most_repetitions=self._spec.finalist_repetitions if table.speed(own) else FIRST_LOOK - 1,
                baseline_is_finite=True,
                seed=f"{self.seed}, confirmation {confirmation}",
            ):
                number = 1 + max((one.repetition for one in repetitions), default=-1)
                repetitions += [
                    Repeat(one, number, self._measure(one, self._process()), confirmation=confirmation) for one in order
                ]
            repeats += repetitions
        record = StudyRecord("replay", self._spec, 0.0, "", table.facts, tuple(self.trials), tuple(repeats))
        return decide(
            record,
            table.limit_bytes,
            end.reason,
            cut_short=end.cut_short,
            num_configurations=end.num_configurations,
            believed=end.believed,
        )

    @property
    def _start(self) -> float | None:
        """What starting a run takes, in trials; None where the file does not tell the two apart."""
        cost = self.table.landscape.cost
        return cost.run_start_s / cost.trial_s if cost.trial_s else None

    def _gone_on(self) -> int | None:
        """Ask other seeds of the draws; all that is known stays the same, so it is worked out once."""
        end = self._search.end
        if self.sampler != "model" or end is None or end.cut_short:
            return None
        knowledge = self._search._knowledge()
        most = self._spec.max_trials - self.needed.trials if self.table.space.switches else 1
        seeds = (OTHERS * (1 + self.seed) + number for number in range(OTHERS))
        return sum(
            bool(propose(knowledge, most=most, start=self._start or START, seed=1000 + seed).configurations)
            for seed in seeds
        )

    def _run(self, asked: Sequence[Asked]) -> None:
        """Measure a run's trials in order; a failure ends it, or the search, and the rest may be asked for again."""
        cost, needed = self.table.landscape.cost, self.needed
        self.needed = replace(needed, runs=needed.runs + 1, seconds=needed.seconds + cost.run_start_s)
        process = self._process()
        for position, one in enumerate(asked):
            self.needed = replace(
                self.needed, trials=self.needed.trials + 1, seconds=self.needed.seconds + cost.trial_s
            )
            outcome = self._measure(one.configuration, process)
            self._finish(one.number, one.configuration, outcome)
            self._search.tell(one.number, outcome)
            rest = asked[position + 1 :]
            if not isinstance(outcome, Measured) or (rest and not self._search.goes_on(rest)):
                for unreached in rest:
                    set_free(self.optuna, unreached.number)
                return

    def _process(self) -> Process:
        self._processes += 1
        return Process(self.table.landscape, self._chance, self._processes)

    def _measure(self, configuration: Configuration, process: Process) -> Outcome:
        return self.table.measure(configuration, process)

    def _finish(self, number: int, configuration: Configuration, outcome: Outcome) -> None:
        self.trials.append(Trial(number, configuration, "finished", outcome))
        if self.found is None and self.table.best and self.table.worth(configuration) >= NEAR * self.table.best:
            self.found = self.needed

    def _loss(self, configuration: Configuration) -> float:
        return 1 - self.table.worth(configuration) / self.table.best if self.table.best else 0.0

    def _peak_error(self) -> float | None:
        compared = _sample(self.table)
        expected = expect(self._search._knowledge().model, compared)
        peaks = [self.table.entry(one).peak_memory_bytes for one in compared]
        return _median_error((one.peak_bytes, peak) for one, peak in zip(expected, peaks, strict=True))

    def _coverage(self, when: Literal["before", "after three", "at the stop"]) -> Coverage:
        compared = _sample(self.table)
        peaks, speeds = [], []
        for one, which in zip(expect(self._search._knowledge().model, compared), compared, strict=True):
            peak, speed = self.table.entry(which).peak_memory_bytes, self.table.speed(which)
            if one.peak_bytes and one.samples_per_s and one.peak_sd and one.step_sd and peak:
                peaks.append(abs(peak / one.peak_bytes - 1) / one.peak_sd)
                speeds.append(abs(one.samples_per_s / speed - 1) / one.step_sd)
        reaches = [NormalDist().inv_cdf((1 + level) / 2) for level in LEVELS]
        within = (tuple(sum(off <= reach for off in offs) for reach in reaches) for offs in (peaks, speeds))
        return Coverage(when, len(peaks), *within)

    def _speed_error(self) -> float | None:
        compared = _sample(self.table)
        expected = expect(self._search._knowledge().model, compared)
        return _median_error(
            (one.samples_per_s, self.table.speed(which)) for one, which in zip(expected, compared, strict=True)
        )


@cache
def _sample(table: Table) -> tuple[Configuration, ...]:
    """Some of what fits: predictions of what does not are of no use to anybody."""
    fitting = [one for one in table.configurations if table.speed(one)]
    return tuple(random.Random(0).sample(fitting, min(_COMPARED, len(fitting))))


def _median_error(pairs: Iterable[tuple[float | None, float | None]]) -> float | None:
    errors = [abs(expected / true - 1) for expected, true in pairs if expected is not None and true]
    return statistics.median(errors) if errors else None
