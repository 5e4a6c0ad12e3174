"""The cost model as an ordinary Optuna sampler."""

from __future__ import annotations

from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.trial import FrozenTrial

from .knowledge import Ground, Knowledge
from .optuna_trials import distributions, observe
from .runs import propose

__all__ = ["ModelSampler"]


class ModelSampler(BaseSampler):
    """Suggests the configuration that the cost model expects most of, trial by trial.

    Where the model would stop, and for parameters that are not the space's, it draws at random. ``Search`` asks the
    model for whole runs instead, and for its reason to stop.

    Args:
        ground: What may be tried, and what discovery found.
        seed: Of the draws.
    """

    def __init__(self, ground: Ground, seed: int) -> None:
        self._ground, self._seed = ground, seed
        self._random = RandomSampler(seed=seed)
        self._distributions = {name: one for name, one in distributions(ground.space).items() if not one.single()}

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Give the whole space, whatever the study holds: all parameters are chosen together."""
        del study, trial
        return self._distributions

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Give the model's best, or draw at random from another space."""
        if search_space == self._distributions:
            seen = [one for one in observe(study, self._ground.space) if one.number != trial.number]
            proposal = propose(Knowledge(self._ground, seen), most=1, seed=self._seed)
            for configuration in proposal.configurations:
                point = self._ground.space.point(configuration) or {}
                return {name: point[name] for name in search_space}
        return {
            name: self._random.sample_independent(study, trial, name, distribution)
            for name, distribution in search_space.items()
        }

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Draw at random what is not of the space."""
        return self._random.sample_independent(study, trial, param_name, param_distribution)

    def reseed_rng(self) -> None:
        """Draw differently from now on."""
        self._random.reseed_rng()
