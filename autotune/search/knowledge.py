"""What a study knows at some moment: the outcomes so far, and which configurations are still worth a trial."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..records import Configuration, Facts
from .aim import Aim
from .candidates import Candidates
from .model import CostModel
from .observation import Observation
from .predictions import Predictions
from .space import Space
from .standing import Standing

__all__ = ["Ground", "Knowledge"]

# After this many failures and no success, an engine, or a choice, is taken not to work with a script at all.
_FAILURES = 3
# What is less likely to fit is not proposed by samplers that know nothing of memory, and what is worse than the best by
# more standard deviations not either.
_LEAST_LIKELY = 0.05
_REACH = 2.0


class Ground:
    """What does not change in a study: what may be tried, what discovery found, the aim, and the simulations."""

    def __init__(self, space: Space, facts: Facts, aim: Aim) -> None:
        self.space, self.facts, self.aim = space, facts, aim
        self.candidates = Candidates(space, facts)
        self.predictions = Predictions(facts, space, self.candidates)


class Knowledge:
    """The study so far.

    Args:
        ground: What does not change.
        observations: The trials so far, running ones included, in the order of their numbers.
        tried: Configurations tried outside ``observations``.

    Attributes:
        feasible: The trials that fit, in the order of their numbers.
        engine_fails: Whether the engine seems not to get this script to run: it failed, and never anything but.
    """

    def __init__(
        self, ground: Ground, observations: Iterable[Observation], tried: Iterable[Configuration] = ()
    ) -> None:
        self.ground, self.space = ground, ground.space
        self.observations = tuple(observations)
        self.feasible = [one for one in self.observations if one.feasible]
        under_engine = [one.state for one in self.observations if one.configuration.engine != "eager"]
        self.engine_fails = under_engine.count("failed") >= _FAILURES and "scored" not in under_engine
        self._tried = (*tried, *(one.configuration for one in self.observations))

    @cached_property
    def model(self) -> CostModel:
        """The cost model that follows."""
        ground = self.ground
        return CostModel(
            self.space,
            ground.facts,
            ground.aim.run_limit_bytes,
            ground.aim.limit_bytes,
            self.observations,
            ground.candidates,
            ground.predictions,
        )

    @cached_property
    def reference(self) -> Observation | None:
        """The baseline, if it fits and its samples were counted: what speeds are then held against."""
        own = self.space.baseline.key
        return next((one for one in self.feasible if one.configuration.key == own and one.samples_per_s > 0), None)

    @cached_property
    def standings(self) -> tuple[Standing, ...]:
        """What is looked for, one after the other.

        Where speeds are held against the fastest that fits, that has to be found first.
        """
        aim, points = self.ground.aim, self.space.point
        compared = [one for one in self.feasible if one.samples_per_s > 0 and points(one.configuration) is not None]
        aims = (aim,) if self.reference else (aim.for_speed, aim) if aim.seeks_memory and compared else (aim.for_speed,)
        return tuple(Standing(one, self.model, compared, self.reference) for one in aims)

    @cached_property
    def open(self) -> npt.NDArray[np.bool_]:
        """Which candidates are untried, not known to need too much memory, or to fail, and would tell something."""
        candidates = self.ground.candidates
        is_open = ~self.model.ruled_out
        tried = [candidates.index(one) for one in self._tried]
        is_open[[index for index in tried if index is not None]] = False
        if self.engine_fails:
            is_open &= ~self._under_engine
        for number, name in enumerate(self.space.choices):
            if self._choice_fails(name):
                is_open &= ~candidates.chosen[:, number]
        at_levels = [one.state for one in self.observations if one.configuration.level]
        if "failed" in at_levels and "scored" not in at_levels:  # the engine knows no layers in this model
            is_open &= ~candidates.at_level
        # One that is new is made without another new one, or what each of them changes would not show.
        ended = [one.configuration for one in self.observations if one.state != "running"]
        is_new = [not any(one.makes(name) for one in ended) for name in self.space.choices]
        is_open &= candidates.chosen[:, is_new].sum(axis=1) <= 1
        for one in self.observations:
            if one.state == "failed":
                is_open &= ~self._beyond(one)
        return is_open

    def is_open(self, configuration: Configuration) -> bool:
        """Tell whether a configuration may be tried and that is not without hope."""
        index = self.ground.candidates.index(configuration)
        return index is not None and bool(self.open[index])

    @cached_property
    def may_win(self) -> npt.NDArray[np.bool_]:
        """Which candidates may be allowed and better than the best, tried or not."""
        may_win = np.zeros(len(self.ground.candidates), dtype=bool)
        for standing in self.standings:
            gain, sd = standing.gains()
            is_better = gain + _REACH * sd > 0 if standing.best is not None else True
            may_win |= (standing.allowed() >= _LEAST_LIKELY) & is_better
        return may_win

    def worthwhile(self) -> Callable[[Configuration], bool]:
        """Tell what may be better than the best: for samplers that do not know."""
        worth = self.open & self.may_win
        index = self.ground.candidates.index
        return lambda configuration: (number := index(configuration)) is not None and bool(worth[number])

    def _choice_fails(self, name: str) -> bool:
        """Whether the script seems not to run with a choice made: it failed, and never anything but."""
        made = [one.state for one in self.observations if one.configuration.makes(name)]
        return made.count("failed") >= _FAILURES and "scored" not in made

    def _beyond(self, failed: Observation) -> npt.NDArray[np.bool_]:
        """Candidates that may well fail too: a batch size that the script can't train with is the first of many.

        Those beyond it, and half of the way back to what works. A failure of plans closes only plans, one of choices
        only those, and nothing at all if that size was measured otherwise.
        """
        candidates, own = self.ground.candidates, self.space.own_batch_size
        size = self.space.batch_size_of(failed.configuration)
        scored = (self.space.batch_size_of(one.configuration) for one in self.observations if one.state == "scored")
        works = {one for one in scored if one is not None}
        if size is None or own is None or size == own or size in works:
            return np.zeros(len(candidates), dtype=bool)
        if size > own:
            nearest = max((one for one in works if one < size), default=own)
            beyond = candidates.batch_sizes >= math.sqrt(nearest * size)
        else:
            nearest = min((one for one in works if one > size), default=own)
            beyond = candidates.batch_sizes <= math.sqrt(nearest * size)
        if failed.configuration.recomputed:
            beyond &= candidates.planned
        made = [failed.configuration.makes(name) for name in self.space.choices]
        return np.asarray(beyond & candidates.chosen[:, made].all(axis=1))

    @property
    def _under_engine(self) -> npt.NDArray[np.bool_]:
        candidates = self.ground.candidates
        if self.space.plain_engine != "eager":
            return np.ones(len(candidates), dtype=bool)
        return np.asarray(candidates.planned)
