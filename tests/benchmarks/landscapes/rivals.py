"""Rivals of the search on the same landscapes: what one would do without it.

Each takes a table and a seed, and gives what it took. Each of their trials is a process of its own, so it takes a run's
start and a trial's time; what is tried again is free of charge. Two of Optuna's samplers and ``at_random`` begin with
nothing, and don't know when to stop: they go on until something within 1 % of the best was measured, or give up.
``heuristic`` and ``patient`` know the script's own figures, as a search does, and what it lists of each cluster; they
stop by themselves, and try the listed batch sizes only.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import optuna
from optuna.distributions import IntDistribution
from optuna.samplers import BaseSampler, GPSampler, TPESampler
from optuna.trial import TrialState

from autotune.records.configuration import Configuration
from autotune.records.outcome import Measured, Outcome
from autotune.search.space import BATCH_SIZE, LEVEL, Point

from .replay import NEAR, Needed
from .table import Process, Table

__all__ = ["BY_HAND", "RIVALS", "Effort", "at_random", "gaussian_process", "heuristic", "patient", "plain_tpe"]

# The most trials, and the most proposals: what is proposed again takes no device, but it may go on for ever. A Gaussian
# process takes seconds to propose once it has hundreds of trials, and where it is sure it proposes the same again.
_MOST_TRIALS, _MOST_PROPOSALS = 400, 1600
_MOST_TRIALS_GP, _MOST_PROPOSALS_GP = 80, 160
# How far over the limit a trial is taken to be that ran out of memory, as a share; its peak is not known.
_OVER = 0.1


@dataclass(frozen=True)
class Effort:
    """What a rival took.

    ``found`` is None if nothing within 1 % of the best was measured. ``loss`` is how much less than the best there is
    the setting is worth that it measured to be the fastest, by true speeds.
    """

    found: Needed | None
    stopped: Needed
    loss: float


Rival = Callable[[Table, int], Effort]


class Attempts:
    """Trials of a rival, a fresh process for each.

    Attributes:
        found: What it took until something within 1 % of the best was measured; None before.
        best_per_s: The highest samples/s measured of what fits; 0.0 without any.
    """

    def __init__(self, table: Table, seed: int) -> None:
        self.table = table
        self.found: Needed | None = None
        self.best_per_s = 0.0
        self._best = table.facts.baseline
        self._chance = random.Random(f"{table.name} {seed}")
        self._outcomes: dict[str, Outcome] = {}
        if table.best and table.worth(self._best) >= NEAR * table.best:
            self.found = Needed()

    @property
    def needed(self) -> Needed:
        """What it took so far."""
        cost, trials = self.table.landscape.cost, len(self._outcomes)
        return Needed(trials, trials, trials * (cost.run_start_s + cost.trial_s))

    @property
    def effort(self) -> Effort:
        """What it took until here, where the rival stops."""
        loss = 1 - self.table.worth(self._best) / self.table.best if self.table.best else 0.0
        return Effort(self.found, self.needed, loss)

    def measure(self, configuration: Configuration) -> Outcome:
        """Give the outcome of a configuration, the first one where it was tried before."""
        if configuration.key not in self._outcomes:
            process = Process(self.table.landscape, self._chance, len(self._outcomes))
            self._outcomes[configuration.key] = self.table.measure(configuration, process)
            self._learn(configuration, self._outcomes[configuration.key])
        return self._outcomes[configuration.key]

    def baseline_per_s(self) -> float:
        """Measure the script as it stands, which a search is given as well; 0.0 where it does not fit."""
        own = self.table.facts.baseline
        return self._learn(own, self.table.measure(own, Process(self.table.landscape, self._chance, 0)))

    def per_s(self, configuration: Configuration) -> float:
        """Give measured samples/s; 0.0 where it fails or does not fit."""
        return self._learn(configuration, self.measure(configuration))

    def _learn(self, configuration: Configuration, outcome: Outcome) -> float:
        fits = isinstance(outcome, Measured) and (outcome.measurement.peaks.fit_bytes or 0) <= self.table.limit_bytes
        per_s = outcome.measurement.samples_per_s if isinstance(outcome, Measured) and fits else 0.0
        if per_s > self.best_per_s:
            self.best_per_s, self._best = per_s, configuration
        if self.found is None and self.table.best and self.table.worth(configuration) >= NEAR * self.table.best:
            self.found = self.needed
        return per_s


def plain_tpe(table: Table, seed: int) -> Effort:
    """TPE as Optuna has it."""
    return _sampled(table, seed, TPESampler(seed=seed), _MOST_TRIALS, _MOST_PROPOSALS)


def gaussian_process(table: Table, seed: int) -> Effort:
    """The Gaussian process of Optuna's, which models the constraint by another one."""
    return _sampled(table, seed, GPSampler(seed=seed), _MOST_TRIALS_GP, _MOST_PROPOSALS_GP)


def at_random(table: Table, seed: int) -> Effort:
    """The settings in any order."""
    attempts = Attempts(table, seed)
    points = list(table.space.points())
    random.Random(f"{table.name} {seed} at random").shuffle(points)
    for values in points:
        if attempts.found is not None:
            break
        attempts.measure(table.space.configuration(dict(zip(table.space.parameters, values, strict=True))))
    return attempts.effort


def _sampled(table: Table, seed: int, sampler: BaseSampler, most: int, most_proposals: int) -> Effort:
    """What a sampler of Optuna's needs: places in the lists of values are its parameters, memory is a constraint.

    What it proposes outside the table fails, free of charge.
    """
    attempts, parameters = Attempts(table, seed), table.space.parameters
    study = optuna.create_study(direction="maximize", sampler=sampler)
    distributions = {name: IntDistribution(0, len(values) - 1) for name, values in parameters.items()}
    members = set(table.space.points())
    for _ in range(most_proposals):
        if attempts.found is not None or attempts.needed.trials >= min(most, len(members)):
            break
        trial = study.ask(distributions)
        values = tuple(values[trial.params[name]] for name, values in parameters.items())
        if values not in members:
            study.tell(trial, state=TrialState.FAIL)
            continue
        outcome = attempts.measure(table.space.configuration(dict(zip(parameters, values, strict=True))))
        over = _OVER
        if isinstance(outcome, Measured):
            over = outcome.measurement.peaks.fit_bytes / table.limit_bytes - 1
        trial.set_constraint("memory", over)
        study.tell(trial, outcome.measurement.samples_per_s if isinstance(outcome, Measured) else 0.0)
    return attempts.effort


def heuristic(table: Table, seed: int) -> Effort:
    """What somebody does by hand: raise the batch size as far as it fits, then recompute more and more and raise it on.

    It ends when two steps of the ladder in a row have brought nothing.
    """
    return _by_hand(table, seed, patient=False)


def patient(table: Table, seed: int) -> Effort:
    """The same by somebody who goes on where a step has not freed enough for the next batch size: more may."""
    return _by_hand(table, seed, patient=True)


def _by_hand(table: Table, seed: int, *, patient: bool) -> Effort:
    attempts, space = Attempts(table, seed), table.space
    sizes = [size for size in space.batch_sizes or (space.own_batch_size,) if size not in table.landscape.between]
    largest = space.own_batch_size
    if attempts.baseline_per_s():
        largest = max(largest, _climb(attempts, {}, [size for size in sizes if size > largest]))
    else:
        down = (size for size in reversed(sizes) if size < space.own_batch_size)
        largest = next((size for size in down if attempts.per_s(space.plain(size))), 0)
    idle = 0
    for step in _ladder(table):
        before = attempts.best_per_s
        above = [size for size in sizes if size > largest] if BATCH_SIZE in space.parameters else sizes
        reached = _climb(attempts, step, above)
        largest = max(largest, reached)
        if attempts.best_per_s > before:
            idle = 0
        elif reached or not patient:
            idle += 1
        if idle == 2 and attempts.best_per_s:
            break
    return attempts.effort


def _climb(attempts: Attempts, plans: Point, sizes: Sequence[int]) -> int:
    """Try sizes upwards with these plans, until one does not fit or two in a row are not faster than the best."""
    space, slower, largest = attempts.table.space, 0, 0
    for size in sizes:
        before = attempts.best_per_s
        per_s = attempts.per_s(space.configuration(space.plain_point | plans | {BATCH_SIZE: size}))
        if not per_s:
            break
        largest, slower = size, 0 if per_s > before else slower + 1
        if slower == 2:
            break
    return largest


def _ladder(table: Table) -> Iterator[Point]:
    """Plans from the cheapest for each byte freed to what frees most: one cluster more each time, then layers."""
    rows = sorted(table.space.clusters, key=lambda row: row.recompute_time_s / row.saving_bytes)
    together: Point = {}
    for row in rows:
        if not row.is_layer:
            together = together | {row.cluster_id: row.frequency}
            yield together
    for row in rows:
        if row.is_layer:
            yield from ({row.cluster_id: count} for count in table.space.counts[row.cluster_id] if count)
    yield from ({LEVEL: level} for level in table.space.levels if level)


RIVALS: dict[str, Rival] = {
    "tpe": plain_tpe,
    "gp": gaussian_process,
    "random": at_random,
    "heuristic": heuristic,
    "patient": patient,
}
BY_HAND = ("heuristic", "patient")
"""Those that stop by themselves."""
