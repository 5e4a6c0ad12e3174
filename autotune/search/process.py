"""A Gaussian process whose prior is knowledge, not a fit: what is expected, in which ways it may be off, and how far.

Few trials are all that a search has, so nothing is tuned to them but the size of the noise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from .features import Array, Features

__all__ = ["Prior", "Process", "matern"]

_JITTER = 1e-9
# Rounds in which the bounds are brought into line with each other.
_ROUNDS = 3
# Fewer values than this tell nothing about a prior or the noise.
_FEWEST = 3
# How much likelier, as a logarithm, what is measured has to be under each further prior.
_PENALTY = 2.0


class Prior(Protocol):
    """What is thought of a quantity before it was measured.

    ``mean`` (n,) is what is expected; ``directions`` (n, d) are ways in which all of it may be off at once, each with
    the size of one standard deviation; ``residual`` (n, m) is the covariance of all else, and ``residual_variance``
    (n,) its diagonal, with what is peculiar to each.
    """

    def mean(self, features: Features) -> Array:
        """Expect this."""

    def directions(self, features: Features) -> Array:
        """Expect errors along these."""

    def residual(self, features: Features, others: Features) -> Array:
        """Expect what is left to be alike so far."""

    def residual_variance(self, features: Features) -> Array:
        """Expect what is left to be that large."""


class Process:
    """A prior with what was measured.

    Args:
        priors: What may be thought before, to choose from by their likelihood; the first where nothing tells.
        features: Of what was measured.
        values: What was measured there; of a bound, the bound.
        is_bound: Where the true value is only known to be above ``values``.
        noises: Sizes of the noise to choose from likewise, as shares of the value.
    """

    def __init__(
        self,
        priors: Sequence[Prior],
        features: Features,
        values: Array,
        *,
        is_bound: Sequence[bool] | None = None,
        noises: Sequence[float],
    ) -> None:
        self._features = features
        bounds = np.zeros(len(values), dtype=bool) if is_bound is None else np.array(is_bound, dtype=bool)
        self._prior, self.noise = self._likeliest(priors, noises, features, values, bounds)
        self._values, self._noise_variance = values.copy(), (self.noise * np.abs(values)) ** 2
        self._own = _own(self._prior, features)
        self._fit()
        for _ in range(_ROUNDS if bounds.any() else 0):
            self._raise(np.flatnonzero(bounds), values)

    def mean(self, features: Features) -> Array:
        """Expect these values, (n,)."""
        across = self._covariance(features, self._features)
        return np.asarray(self._prior.mean(features) + across @ self._weights)

    def variance(self, features: Features) -> Array:
        """How uncertain the true values are, noise not included, (n,)."""
        across = self._covariance(features, self._features)
        prior = (self._prior.directions(features) ** 2).sum(axis=1) + self._prior.residual_variance(features)
        solved = np.linalg.solve(self._factor, across.T)
        return np.asarray(np.maximum(prior - (solved**2).sum(axis=0), _JITTER * prior))

    def covariance(self, features: Features, others: Features) -> Array:
        """How the errors of some and of others go together, (n, m)."""
        solved, others_solved = (
            np.linalg.solve(self._factor, self._covariance(each, self._features).T) for each in (features, others)
        )
        return np.asarray(self._covariance(features, others) - solved.T @ others_solved)

    def _fit(self) -> None:
        covariance = self._covariance(self._features, self._features)
        covariance[np.diag_indices_from(covariance)] += self._noise_variance + self._own
        self._factor = np.linalg.cholesky(covariance)
        errors = self._values - self._prior.mean(self._features)
        self._weights = np.linalg.solve(self._factor.T, np.linalg.solve(self._factor, errors))

    def _raise(self, index: npt.NDArray[np.intp], bounds: Array) -> None:
        """Take each bounded value for what it is expected to be above its bound, as uncertain as that leaves it."""
        from scipy.special import log_ndtr

        inverse = np.linalg.inv(self._factor @ self._factor.T)
        # Without its own pseudo measurement: the leave-one-out formulas.
        precision = np.diag(inverse)[index]
        mean = self._values[index] - (inverse @ (self._values - self._prior.mean(self._features)))[index] / precision
        variance = np.maximum(1 / precision - self._noise_variance[index], _JITTER * bounds[index] ** 2)
        sd = np.sqrt(variance)
        margin = (mean - bounds[index]) / sd
        ratio = np.exp(-0.5 * margin**2 - 0.5 * math.log(2 * math.pi) - log_ndtr(margin))
        shrunk = np.clip(1 - ratio * (ratio + margin), 0.02, 0.999)
        raised = mean + sd * ratio
        # The pseudo measurement that turns one Gaussian into the other (expectation propagation).
        noise = np.minimum(1 / (1 / (variance * shrunk) - 1 / variance), 1e6 * variance)
        self._noise_variance[index] = noise
        self._values[index] = raised + (raised - mean) * noise / variance
        self._fit()

    def _covariance(self, features: Features, others: Features) -> Array:
        directions = self._prior.directions
        return np.asarray(directions(features) @ directions(others).T + self._prior.residual(features, others))

    @staticmethod
    def _likeliest(
        priors: Sequence[Prior],
        noises: Sequence[float],
        features: Features,
        values: Array,
        bounds: npt.NDArray[np.bool_],
    ) -> tuple[Prior, float]:
        """The prior and the noise under which what was measured is likeliest; later ones have to be more so."""
        best, chosen = -math.inf, (priors[0], noises[0])
        for (rank, prior), (place, noise) in itertools.product(enumerate(priors), enumerate(noises)):
            if len(values) < _FEWEST and rank + place:
                continue
            score = _likelihood(prior, noise, features, values, bounds) - _PENALTY * rank - math.log(1 + place)
            if score > best:
                best, chosen = score, (prior, noise)
        return chosen


def _likelihood(prior: Prior, noise: float, features: Features, values: Array, bounds: npt.NDArray[np.bool_]) -> float:
    """The logarithm, up to a constant, of how likely what was measured is, and then each bound by itself."""
    directions = prior.directions(features)
    covariance = directions @ directions.T + prior.residual(features, features)
    covariance[np.diag_indices_from(covariance)] += (noise * values) ** 2 + _own(prior, features)
    exact, bounded = np.flatnonzero(~bounds), np.flatnonzero(bounds)
    factor = np.linalg.cholesky(covariance[np.ix_(exact, exact)])
    errors = values - prior.mean(features)
    solved = np.linalg.solve(factor, errors[exact])
    score = float(-0.5 * solved @ solved - np.log(np.diag(factor)).sum())
    if not len(bounded):
        return score
    from scipy.special import log_ndtr  # late for the same reason as in CostModel.fits()

    across = np.linalg.solve(factor, covariance[np.ix_(exact, bounded)])
    sd = np.sqrt(np.maximum(np.diag(covariance)[bounded] - (across**2).sum(axis=0), _JITTER))
    return score + float(log_ndtr((across.T @ solved - errors[bounded]) / sd).sum())


def _own(prior: Prior, features: Features) -> Array:
    """The variance that is peculiar to each, with a little more, so that none is known exactly."""
    shared = np.diag(prior.residual(features, features))
    return np.asarray(prior.residual_variance(features) - shared + _JITTER * prior.mean(features) ** 2)


def matern(one: Array, other: Array, length: float) -> Array:
    """How alike two things are at such a distance: the Matérn covariance of smoothness 3/2, (n, m)."""
    distance = math.sqrt(3) * np.abs(one[:, None] - other[None, :]) / length
    return np.asarray((1 + distance) * np.exp(-distance))
