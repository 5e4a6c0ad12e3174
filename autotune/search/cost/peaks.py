"""The peaks of all candidates: simulated where that can be, and told from the plan table where it cannot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...records import Configuration
from ..candidates import Indices
from .beliefs import Noise, TabledPeak
from .features import Array, Features, Featuring
from .gaussian_process import GaussianProcess
from .priors import PeakPrior, Resident, SimulatedPeakPrior
from .simulated import Predictions

__all__ = ["Peaks"]

# So many simulated peaks hold the plan table's way of telling them to simulation.
_MOST_LIKENED = 100


class Peaks:
    """What configurations need, going by the peaks measured so far.

    Args:
        measured: Configurations with their peaks in bytes; with the limit where they ran out of memory.
        is_bound: Which did.
        unit: A configuration, and its peak in bytes, that all is measured in.
        features: What makes features, and those of all candidates.
        predictions: The script's simulations.
        is_resident: Whether peaks are those of the resident set.
        still_bytes: What the resident set is between steps; None where that is not known.
        state_bytes: Parameters, gradients, the optimizer's state and buffers; None where they are not known.
        fuses: Whether the engine fuses operators, so that a step of it holds other things than the script's own.

    Attributes:
        noise: How far a measured peak scatters, as a share.
    """

    def __init__(
        self,
        measured: Sequence[tuple[Configuration, float]],
        is_bound: Sequence[bool],
        *,
        unit: tuple[Configuration, float],
        features: tuple[Featuring, Features],
        predictions: Predictions,
        is_resident: bool,
        still_bytes: float | None,
        state_bytes: float | None,
        fuses: bool,
    ) -> None:
        self._predictions = predictions
        self._featuring, self._all = features
        configuration, unit_bytes = unit
        listed = self._featuring.knows_stashed
        stashed_bytes = self._featuring.stashed_bytes if listed else TabledPeak.UNLISTED * unit_bytes
        simulated = predictions.of(configuration) if predictions.works else None
        resident = None
        if is_resident:
            held_bytes = stashed_bytes if simulated is None else simulated
            if fuses and listed and still_bytes is not None:
                unit_bytes = still_bytes + held_bytes  # what the script's own step holds says nothing of that
            step_bytes = 0.0 if still_bytes is None else unit_bytes - still_bytes
            resident = Resident(max(0.0, step_bytes - held_bytes), fuses)
        beyond_bytes = 0.0
        if listed and state_bytes is not None and not is_resident:
            beyond_bytes = max(0.0, unit_bytes - stashed_bytes - state_bytes)
        rough = PeakPrior(unit_bytes, stashed_bytes, beyond_bytes, resident=resident)
        self._simulates = simulated is not None
        prior: PeakPrior | SimulatedPeakPrior = rough
        if simulated is not None:
            prior = SimulatedPeakPrior(unit_bytes, simulated, resident=resident, fuses=fuses)
        doubt_of_all = 1.0 if self._simulates or is_resident else TabledPeak.DOUBT_OF_ROWS
        self._process = GaussianProcess(
            [replace(prior, doubt=doubt_of_all * doubt) for doubt in TabledPeak.DOUBTS],
            self._features([one for one, _ in measured]),
            np.array([peak for _, peak in measured], dtype=float),
            is_bound=is_bound,
            noises=Noise.RESIDENT_SETS if is_resident else Noise.PEAKS,
        )
        self.noise = self._process.noise
        if self._simulates:
            self._mean, self._sd = self._likened(rough)
        else:
            self._mean, self._sd = self._process.mean(self._all), np.sqrt(self._process.variance(self._all))

    def of(self, configurations: Sequence[Configuration]) -> Array:
        """Expect these peaks, in bytes."""
        return self._process.mean(self._features(configurations))

    def sd_of(self, configurations: Sequence[Configuration]) -> Array:
        """How uncertain that is, in bytes."""
        return np.asarray(np.sqrt(self._process.variance(self._features(configurations))))

    def of_all(self) -> tuple[Array, Array]:
        """What is expected of each candidate, and how uncertain that is."""
        return self._mean, self._sd

    def together(self, indices: Indices) -> tuple[Array, Array]:
        """Of some candidates, simulated now, what is expected (n,) and how the errors go together (n, n)."""
        features = self._at(indices)
        mean, covariance = self._process.mean(features), self._process.covariance(features, features)
        self._mean[indices], self._sd[indices] = mean, np.sqrt(np.maximum(np.diag(covariance), 0.0))
        return mean, covariance

    def _features(self, configurations: Sequence[Configuration]) -> Features:
        features = self._featuring.of(configurations)
        if not self._simulates:
            return features
        return replace(features, simulated_bytes=_numbers([self._predictions.of(one) for one in configurations]))

    def _at(self, indices: Indices) -> Features:
        features = self._all[indices]
        if not self._simulates:
            return features
        return replace(features, simulated_bytes=_numbers([self._predictions.at(int(index)) for index in indices]))

    def _likened(self, rough: PeakPrior) -> tuple[Array, Array]:
        known = np.array(self._predictions.indices, dtype=np.intp)
        features = self._at(known)
        exact, variance = self._process.mean(features), self._process.variance(features)
        likened = GaussianProcess([rough], features[:_MOST_LIKENED], exact[:_MOST_LIKENED], noises=Noise.LIKENESS)
        mean = likened.mean(self._all)
        sd = np.sqrt(likened.variance(self._all) + np.median(variance))
        mean[known], sd[known] = exact, np.sqrt(variance)
        return mean, sd


def _numbers(values: Sequence[float | None]) -> Array:
    return np.array([np.nan if value is None else value for value in values], dtype=float)
