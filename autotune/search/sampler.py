"""Samplers, held to configurations of the space that are worth a trial."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseGASampler, BaseSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from ..records import Configuration
from .knowledge import Ground
from .model_sampler import ModelSampler
from .optuna_trials import distributions
from .space import Point, Space

__all__ = ["SpaceSampler", "make_sampler"]

# Below this many trials Optuna's samplers draw at random; what is not worth a trial is kept from them, so it is low.
_STARTUP_TRIALS = 6
# Optuna's default of 50 would spend a whole study on the first generation.
_POPULATION = 10
# A sampler that proposes something tried is asked again before the nearest untried configuration is taken. Not so the
# Gaussian process: it would fit the same data for seconds, to propose the same again.
_DRAWS = 4


def make_sampler(name: Literal["model", "tpe", "gp", "nsga2", "random"], seed: int, ground: Ground) -> BaseSampler:
    """Make the cost model's sampler, or one of Optuna's with our settings."""
    if name == "model":
        return ModelSampler(ground, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        if name == "gp":
            return GPSampler(seed=seed, n_startup_trials=_STARTUP_TRIALS, warn_independent_sampling=False)
        if name == "nsga2":
            return NSGAIISampler(seed=seed, population_size=_POPULATION)
        if name == "random":
            return RandomSampler(seed=seed)
        return TPESampler(seed=seed, n_startup_trials=_STARTUP_TRIALS)


class SpaceSampler(BaseSampler):
    """Wraps a sampler so that each trial is a configuration of the space that may be tried, and no other.

    Deciding inside the sampler, before Optuna has recorded anything, keeps the study free of duplicates: told as
    pruned or failed they would fill the database and dashboards with trials that never ran, and enqueued ones could be
    taken by another controller between ``enqueue_trial`` and ``ask``.

    ``assigned`` is given out as it is: that is how the runs that the cost model chose enter the study. Without it the
    wrapped sampler proposes; its proposal is moved into the space, with the values of ``pinned``, and has to be
    ``allowed``. After some refusals the nearest allowed configuration is taken.
    """

    def __init__(self, inner: BaseSampler, space: Space) -> None:
        self._inner = inner
        self._space = space
        self._distributions = {name: one for name, one in distributions(space).items() if not one.single()}
        self.assigned: Configuration | None = None
        self.allowed: Callable[[Configuration], bool] = lambda _: True
        self.pinned: Mapping[str, int] = {}

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Give the whole space, whatever the study holds: all parameters are drawn together."""
        del study, trial
        return self._distributions

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Give the assigned configuration, or one that the wrapped sampler proposes and that is allowed."""
        if self.assigned is not None:
            assigned = self._space.point(self.assigned)
            assert assigned is not None, f"{self.assigned} is not in the space"
            if isinstance(self._inner, BaseGASampler):
                # Has the side effect of counting the trial to its generation, as drawing it would have.
                self._inner.get_trial_generation(study, trial)
            return assigned
        for _ in range(1 if isinstance(self._inner, GPSampler) else _DRAWS):
            point = self._draw(study, trial, search_space)
            if self.allowed(self._space.configuration(point)):
                return point
        return self._space.nearest(point, self.allowed) or point

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Leave to the wrapped sampler what is not of the space."""
        return self._inner.sample_independent(study, trial, param_name, param_distribution)

    def reseed_rng(self) -> None:
        """Reseed the wrapped sampler."""
        self._inner.reseed_rng()

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Tell the wrapped sampler."""
        self._inner.before_trial(study, trial)

    def after_trial(
        self, study: optuna.Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """Tell the wrapped sampler."""
        self._inner.after_trial(study, trial, state, values)

    def _draw(self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]) -> Point:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            drawn = self._inner.sample_relative(study, trial, search_space)
            for name, distribution in search_space.items():
                if name not in drawn:
                    drawn[name] = self._inner.sample_independent(study, trial, name, distribution)
        single = {name: values[0] for name, values in self._space.parameters.items()}
        return self._space.snapped(single | drawn | dict(self.pinned))
