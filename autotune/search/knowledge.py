"""Knowledge of a study at some moment: the outcomes so far, and the configurations that are still worth a trial."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..records.configuration import Configuration
from ..records.engines import PLAIN_ENGINES
from ..records.outcome import Measured
from ..records.study import Repeat
from ..verdict.aim import Aim
from ..verdict.repetitions import holds
from .acquisition import Acquisition
from .candidates import Observation
from .cost.context import SearchContext
from .cost.model import CostModel
from .score import score

# After so many failures and no success, an engine, or a choice, is taken not to work with a script at all.
_FAILURES = 3
# What is worse than the best by more standard deviations than this cannot win: samplers that know nothing of it do not
# propose it, and runs do not go on for it.
_REACH = 2.0


class Knowledge:
    """The study so far: its trials, the ``feasible`` ones that fit, and whether the engine fails on this script.

    Candidates that should take longer than ``longest_s``, or compiled ones than ``longest_compiled_s``, or others with
    plans than ``longest_planned_s``, are not open.
    ``model_of`` makes the cost model, or recalls it: fitting it anew takes most of the time between two runs.
    """

    def __init__(
        self,
        context: SearchContext,
        observations: Iterable[Observation],
        tried: Iterable[Configuration] = (),
        *,
        longest_s: float = math.inf,
        longest_compiled_s: float = math.inf,
        longest_planned_s: float = math.inf,
        batches_per_step: float = 1.0,
        model_of: Callable[[tuple[Observation, ...]], CostModel] | None = None,
    ) -> None:
        self.context, self.space = context, context.space
        self._model_of = model_of or functools.partial(CostModel, context)
        self._longest_s, self._longest_compiled_s = longest_s, min(longest_s, longest_compiled_s)
        self._longest_planned_s = min(longest_s, longest_planned_s)
        self._batches_per_step = batches_per_step
        self.observations = tuple(observations)
        self.feasible = [one for one in self.observations if one.feasible]
        own = {self.space.engine} - PLAIN_ENGINES
        self.engine_fails = _fail([one for one in self.observations if one.configuration.engine in own])
        self._tried = (*tried, *(one.configuration for one in self.observations))

    @cached_property
    def model(self) -> CostModel:
        """Return the cost model that follows."""
        return self._model_of(self.observations)

    @cached_property
    def reference(self) -> Observation | None:
        """Return the baseline, which speeds are held against, if it fits and its samples were counted."""
        own = self.space.baseline.key
        return next((one for one in self.feasible if one.configuration.key == own and one.samples_per_s > 0), None)

    @cached_property
    def acquisitions(self) -> tuple[Acquisition, ...]:
        """Return what is looked for, in turn: where speeds have no reference yet, the fastest that fits comes first."""
        aim, points = self.context.aim, self.space.point
        compared = [one for one in self.feasible if one.samples_per_s > 0 and points(one.configuration) is not None]
        aims = (aim,) if self.reference else (aim.for_speed, aim) if aim.seeks_memory and compared else (aim.for_speed,)
        return tuple(Acquisition(one, self.model, compared, self.reference) for one in aims)

    @cached_property
    def tried(self) -> frozenset[int]:
        """Return the indices of the candidates that were tried, or are being tried."""
        indices = (self.context.candidates.index(one) for one in self._tried)
        return frozenset(index for index in indices if index is not None)

    @cached_property
    def open(self) -> npt.NDArray[np.bool_]:
        """Return which candidates are untried, tell something, and should neither fail nor take too long, (n,)."""
        candidates = self.context.candidates
        is_open = ~self.model.ruled_out
        is_open[[*self.tried]] = False
        if self.engine_fails and self.space.plain_engine in PLAIN_ENGINES:
            is_open &= ~candidates.planned | candidates.compiled
        elif self.engine_fails:
            is_open[:] = False
        for number, name in enumerate(self.space.choices):
            if _fail([one for one in self.observations if self.space.makes(one.configuration, name)]):
                is_open &= ~candidates.chosen[:, number]
        # An engine that knows no layers in this model never will.
        if _fail([one for one in self.observations if one.configuration.level], fewest=1):
            is_open &= ~candidates.at_level
        # One that is new is made without another new one, or what each of them changes would not show.
        ended = [one.configuration for one in self.observations if one.state != "running"]
        is_new = [not any(self.space.makes(one, name) for one in ended) for name in self.space.choices]
        is_open &= candidates.chosen[:, is_new].sum(axis=1) <= 1
        longest_s = min(self._longest_compiled_s, self._longest_planned_s)
        if longest_s < math.inf and any(one.samples_per_s > 0 for one in self.observations):
            of_plain = np.where(candidates.planned, self._longest_planned_s, self._longest_s)
            is_open &= self.trial_s <= np.where(candidates.compiled, self._longest_compiled_s, of_plain)
        for one in self.observations:
            if one.state == "failed":
                is_open &= ~self._beyond(one)
        return np.asarray(is_open & (~candidates.between | self._beside_best))

    @property
    def _beside_best(self) -> npt.NDArray[np.bool_]:
        """Return the candidates whose batch sizes lie around that of the best."""
        candidates, best = self.context.candidates, self.acquisitions[-1].best
        if best is None:
            return np.zeros(len(candidates), dtype=bool)
        usual = set(self.space.batch_sizes) - set(self.space.between)
        size = best.configuration.batch_size or 0
        low = max((one for one in usual if one < size), default=size)
        high = min((one for one in usual if one > size), default=size)
        return np.asarray((candidates.batch_sizes >= low) & (candidates.batch_sizes <= high))

    @cached_property
    def trial_s(self) -> npt.NDArray[np.float64]:
        """Return the least seconds that a trial of each candidate should take from its first step on, (n,)."""
        log_rates, _ = self.model.log_rates()
        return np.asarray(self.context.least_steps * self._batches_per_step * self._step_sizes / np.exp(log_rates))

    @property
    def _step_sizes(self) -> npt.NDArray[np.int64]:
        """Return the batch size that a candidate's optimizer step takes as long as, (n,): equal for a global batch."""
        sizes = np.maximum(self.context.candidates.batch_sizes, 1)
        return np.full_like(sizes, self.space.own_batch_size or 1) if self.space.global_batch else sizes

    def is_open(self, configuration: Configuration) -> bool:
        """Return whether a configuration is an open candidate."""
        index = self.context.candidates.index(configuration)
        return index is not None and bool(self.open[index])

    @cached_property
    def may_win(self) -> npt.NDArray[np.bool_]:
        """Return which candidates may be allowed and better than the best, tried or not."""
        may_win = np.zeros(len(self.context.candidates), dtype=bool)
        for acquisition in self.acquisitions:
            gain, sd = acquisition.gains()
            is_better = gain + _REACH * sd > 0 if acquisition.best is not None else True
            may_win |= acquisition.likely_allowed() & is_better
        return may_win

    @property
    def worthwhile(self) -> npt.NDArray[np.bool_]:
        """Return which open candidates may be better than the best: for samplers that know no cost model."""
        return self.open & self.may_win

    def _beyond(self, failed: Observation) -> npt.NDArray[np.bool_]:
        """Return the candidates that may well fail too: those beyond its batch size, and half of the way back.

        A failure of plans closes only plans, and one of choices only those choices. It closes nothing if that batch
        size was measured otherwise, unless it only took too long. Steps that are too few depend on the size alone, and
        so does whether a size has an effect.
        """
        candidates, own = self.context.candidates, self.space.own_batch_size
        size = failed.configuration.batch_size
        if size is None or own is None:
            return np.full(len(candidates), failed.steps_seen > 0)
        if failed.steps_seen:
            seen = failed.steps_seen * (own if self.space.global_batch else size)
            return np.asarray(self._step_sizes * self.context.least_steps > seen)
        works = {one.configuration.batch_size or 0 for one in self.observations if one.state == "scored"}
        if size == own or (size in works and not failed.timed_out):
            return np.zeros(len(candidates), dtype=bool)
        if size > own:
            nearest = max((one for one in works if one < size), default=own)
            beyond = candidates.batch_sizes >= math.sqrt(nearest * size)
        else:
            nearest = min((one for one in works if one > size), default=own)
            beyond = candidates.batch_sizes <= math.sqrt(nearest * size)
        if failed.no_effect:
            return np.asarray(beyond)
        if failed.configuration.recomputed:
            beyond &= candidates.planned
        made = [self.space.makes(failed.configuration, name) for name in self.space.choices]
        return np.asarray(beyond & candidates.chosen[:, made].all(axis=1))


def _fail(observations: Sequence[Observation], fewest: int = _FAILURES) -> bool:
    """Return whether at least ``fewest`` of the trials failed, and not by their batches, and none was scored."""
    states = [one.state for one in observations if not one.no_effect]
    return states.count("failed") >= fewest and "scored" not in states


def with_repetitions(
    observation: Observation, repeats: Sequence[Repeat], aim: Aim, *, baseline_is_finite: bool
) -> Observation:
    """Return a trial with its highest peak and its failures in repetitions; the baseline stays as it is."""
    if observation.state != "scored" or observation.out_of_memory or observation.origin == "baseline":
        return observation
    outcomes = [repeat.outcome for repeat in repeats if repeat.configuration.key == observation.configuration.key]
    if any(outcome.for_memory for outcome in outcomes):
        return replace(observation, samples_per_s=0.0, feasible=False, out_of_memory=True)
    peaks = [outcome.measurement.peaks.fit_bytes for outcome in outcomes if isinstance(outcome, Measured)]
    highest = max((peak for peak in (observation.peak_bytes, *peaks) if peak is not None), default=None)
    is_held = holds(repeats, observation.configuration, aim, baseline_is_finite=baseline_is_finite)
    told = [score(outcome, aim, expected_bytes=None, baseline_is_finite=baseline_is_finite) for outcome in outcomes]
    return replace(observation, peak_bytes=highest, feasible=observation.feasible and is_held, fails=None in told)
