"""Samplers of the Optuna study: they enter a run that was chosen, or what a sampler of Optuna's proposes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from ..records.configuration import Configuration
from .candidates import Candidates
from .optuna_trials import distributions
from .space import Space

# Below this many trials TPE draws at random; what is not worth a trial is kept from it, so it is low.
_STARTUP_TRIALS = 6


def make_sampler(name: str, seed: int) -> BaseSampler:
    """Make the sampler of Optuna's that proposes; where the cost model does, ``model``, none is asked."""
    return TPESampler(seed=seed, n_startup_trials=_STARTUP_TRIALS) if name == "tpe" else RandomSampler(seed=seed)


class SpaceSampler(BaseSampler):
    """Wraps a sampler so that each trial is a configuration of the space that may be tried, and no other.

    Deciding inside the sampler, before Optuna has recorded anything, keeps the study free of duplicates: told as
    pruned or failed they would fill the database and dashboards with trials that never ran, and enqueued ones could be
    taken by another controller between ``enqueue_trial`` and ``ask``.

    Attributes:
        assigned: Given out as it is: that is how the runs that the cost model chose enter the study. Without it the
            wrapped sampler proposes, and the nearest candidate that is ``allowed`` is given out.
        allowed: (candidates,), which may be given out.
    """

    def __init__(self, inner: BaseSampler, space: Space, candidates: Candidates) -> None:
        self._inner, self._space, self._candidates = inner, space, candidates
        self._distributions = {name: one for name, one in distributions(space).items() if not one.single()}
        self.assigned: Configuration | None = None
        self.allowed: npt.NDArray[np.bool_] = np.ones(len(candidates), dtype=bool)

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Give the whole space, whatever the study holds: all parameters are drawn together."""
        del study, trial
        return self._distributions

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Give the assigned configuration, or the nearest that is allowed to what the wrapped sampler proposes."""
        if self.assigned is not None:
            assigned = self._space.point(self.assigned)
            assert assigned is not None, f"{self.assigned} is not in the space"
            return assigned
        drawn = self._inner.sample_relative(study, trial, search_space)
        for name, distribution in search_space.items():
            if name not in drawn:
                drawn[name] = self._inner.sample_independent(study, trial, name, distribution)
        return self._candidates.point(self._candidates.nearest(drawn, self.allowed))

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Leave to the wrapped sampler what is not of the space."""
        return self._inner.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Tell the wrapped sampler."""
        self._inner.before_trial(study, trial)

    def after_trial(
        self, study: optuna.Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """Tell the wrapped sampler."""
        self._inner.after_trial(study, trial, state, values)
