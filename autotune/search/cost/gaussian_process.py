"""A Gaussian process whose prior is knowledge, not a fit: what is expected, in which ways it may be off, and how far.

Few trials are all that a search has, so nothing is tuned to them but the size of the noise and which prior holds.

Symbols, as in Rasmussen and Williams, *Gaussian Processes for Machine Learning* (2006), whose sections are cited below:

- ``X``: features of the n configurations that were measured; ``X*``: of the m configurations that are asked about.
- ``y`` (n,): what was measured, in the unit of the prior (seconds of a step, or bytes of a peak).
- ``k(x, x') = h(x) h(x')^T + r(x, x')``: the prior's covariance, in that unit squared. The d directions ``h`` are known
  ways to be off, each with a standard normal factor (section 2.7, with B = I); ``r`` is the sum of the parts.
- ``K`` (n, n): the kernel matrix ``k(X, X)``, with the variance of the noise, and of what is peculiar to each
  configuration, on its diagonal. ``L`` (n, n), lower triangular, is its Cholesky factor: ``K = L L^T``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .features import Array, Features, kept
from .prior_values import Evidence

# Such a share of a variance is added, or left, where rounding could leave less than nothing.
_JITTER = 1e-9
# Sweeps in which the bounds are brought into line with each other.
_SWEEPS = 3
# What a bound leaves of a variance, as a share, and the most noise, in variances, of the measurement that stands for
# it: they keep that noise above zero and finite.
_LEAST_LEFT, _MOST_LEFT, _MOST_NOISE = 0.02, 0.999, 1e6


@dataclass(frozen=True)
class Part:
    """An error that configurations share the more the nearer they lie to each other on a line.

    Attributes:
        sd: (n,), its standard deviations.
        places: (n,), where on the line they lie; None for what is peculiar to each.
        length: The distance at which they share half of it, about; 0 where only the same place shares it.
    """

    sd: Array
    places: Array | None = None
    length: float = 0.0


class Prior(Protocol):
    """The prior of a quantity before it was measured, in the quantity's unit or that unit squared."""

    def mean(self, features: Features) -> Array:
        """Return what is expected, (n,)."""

    def directions(self, features: Features) -> Array:
        """Return ``h``: ways in which all of it may be off at once, as one standard deviation each, (n, d)."""

    def parts(self, features: Features) -> Sequence[Part]:
        """Return the parts of ``r``, as many and in the same order whatever the features."""


class GaussianProcess:
    """A prior with what was measured (algorithm 2.1), and with what is only known to lie above a bound.

    Args:
        priors: What may be thought before, to choose from by their likelihood; the first where nothing tells.
        features: ``X``, of what was measured.
        values: ``y`` (n,), what was measured there; of a bound, the bound.
        is_bound: (n,), where the true value is only known to be above ``values``.
        noises: Sizes of the noise to choose from likewise, as shares of the value.

    Attributes:
        noise: The size of the noise, as a share of the value.
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
        self._kept: dict[Any, Any] = {}
        bounds = np.zeros(len(values), dtype=bool) if is_bound is None else np.array(is_bound, dtype=bool)
        self._prior, self.noise = _likeliest(priors, noises, features, values, bounds)
        self._values, self._noise_variance = values.copy(), (self.noise * np.abs(values)) ** 2
        self._own = _own(self._prior, features)
        self._fit()
        for _ in range(_SWEEPS if bounds.any() else 0):
            self._raise(np.flatnonzero(bounds), values)

    def mean(self, features: Features) -> Array:
        """Return the expected values at ``X*``, (m,): sections 2.2 and 2.7."""
        return np.asarray(self._prior.mean(features) + self._across(features) @ self._weights)

    def variance(self, features: Features) -> Array:
        """Return the variance of the true values at ``X*``, without noise, (m,): section 2.2."""
        prior = (self._prior.directions(features) ** 2).sum(axis=1)
        prior += sum(part.sd**2 for part in self._prior.parts(features))
        solved = self._solved(features)
        return np.asarray(np.maximum(prior - (solved**2).sum(axis=0), _JITTER * prior))

    def covariance(self, features: Features, others: Features) -> Array:
        """Return the covariance of errors, (m, others), without what is peculiar to each: section 2.2."""
        solved, others_solved = map(self._solved, (features, others))
        return np.asarray(_covariance(self._prior, features, others) - solved.T @ others_solved.copy())

    def _fit(self) -> None:
        """Find ``L``, and the weights ``K^-1 (y - mean(X))``, (n,)."""
        covariance = _covariance(self._prior, self._features, self._features)
        covariance[np.diag_indices_from(covariance)] += self._noise_variance + self._own
        self._factor = np.linalg.cholesky(covariance)
        errors = self._values - self._prior.mean(self._features)
        self._weights = np.linalg.solve(self._factor.T, np.linalg.solve(self._factor, errors))

    def _raise(self, index: npt.NDArray[np.intp], bounds: Array) -> None:
        """Take each bounded value for what it is expected to be above its bound, as uncertain as that leaves it.

        One parallel sweep of expectation propagation (section 3.6; Minka 2001) whose likelihood is a step at the
        bound. ``index`` are the places of the bounds in ``X``; ``bounds`` (n,) has the bounds at those places.
        """
        from scipy.special import log_ndtr

        inverse = np.linalg.inv(self._factor @ self._factor.T)
        # The cavity, each without its own pseudo measurement: the leave-one-out formulas of section 5.4.2.
        precision = np.diag(inverse)[index]
        mean = self._values[index] - (inverse @ (self._values - self._prior.mean(self._features)))[index] / precision
        variance = np.maximum(1 / precision - self._noise_variance[index], _JITTER * bounds[index] ** 2)
        # Mean and variance of a Gaussian that is cut off at the bound (section 3.9).
        sd = np.sqrt(variance)
        margin = (mean - bounds[index]) / sd
        ratio = np.exp(-0.5 * margin**2 - 0.5 * math.log(2 * math.pi) - log_ndtr(margin))
        shrunk = np.clip(1 - ratio * (ratio + margin), _LEAST_LEFT, _MOST_LEFT)
        raised = mean + sd * ratio
        # The pseudo measurement that turns one Gaussian into the other (section 3.6.1).
        noise = np.minimum(1 / (1 / (variance * shrunk) - 1 / variance), _MOST_NOISE * variance)
        self._noise_variance[index] = noise
        self._values[index] = raised + (raised - mean) * noise / variance
        self._fit()

    @kept
    def _across(self, features: Features) -> Array:
        """Return ``k(X*, X)``, (m, n)."""
        return _covariance(self._prior, features, self._features)

    @kept
    def _solved(self, features: Features) -> Array:
        """Return ``L^-1 k(X, X*)``, (n, m), once all is fitted."""
        return np.linalg.solve(self._factor, self._across(features).T)


def _likeliest(
    priors: Sequence[Prior], noises: Sequence[float], features: Features, values: Array, bounds: npt.NDArray[np.bool_]
) -> tuple[Prior, float]:
    """Return the prior and the noise under which the values are likeliest; later ones have to be more so."""
    best, chosen = -math.inf, (priors[0], noises[0])
    for (rank, prior), (place, noise) in itertools.product(enumerate(priors), enumerate(noises)):
        if len(values) < Evidence.FEWEST and rank + place:
            continue
        score = _likelihood(prior, noise, features, values, bounds) - Evidence.PENALTY * rank - math.log(1 + place)
        if score > best:
            best, chosen = score, (prior, noise)
    return chosen


def _likelihood(prior: Prior, noise: float, features: Features, values: Array, bounds: npt.NDArray[np.bool_]) -> float:
    """Return the log-likelihood of the values up to a constant (section 2.3), each bound by itself."""
    covariance = _covariance(prior, features, features)
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


def _covariance(prior: Prior, features: Features, others: Features) -> Array:
    """Return ``k``, (n, m), without what is peculiar to each."""
    # A copy: NumPy rounds the product of an array with its own transpose in another way.
    covariance = prior.directions(features) @ prior.directions(others).copy().T
    for part, other in zip(prior.parts(features), prior.parts(others), strict=True):
        if part.places is not None and other.places is not None:
            covariance += np.outer(part.sd, other.sd) * matern(part.places, other.places, part.length)
    return np.asarray(covariance)


def _own(prior: Prior, features: Features) -> Array:
    """Return the variance that is peculiar to each, (n,), with a little more, so that none is known exactly."""
    own = sum(part.sd**2 for part in prior.parts(features) if part.places is None)
    return np.asarray(own + _JITTER * prior.mean(features) ** 2)


def matern(one: Array, other: Array, length: float) -> Array:
    """Return the Matérn covariance of smoothness 3/2 of places (n,) and (m,) on a line, (n, m) (section 4.2.1).

    It is about a half at the distance ``length``; with a length of 0, it is 1 at the same place and 0 elsewhere.
    """
    if length == 0:
        return np.asarray(one[:, None] == other[None, :], dtype=float)
    distance = math.sqrt(3) * np.abs(one[:, None] - other[None, :]) / length
    return np.asarray((1 + distance) * np.exp(-distance))
