"""The peaks of all candidates: simulated where that can be, and told from the plan table where it cannot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from ...records.configuration import Configuration
from ...records.engines import ENGINES
from ...records.facts import Facts
from ..candidates import Indices, Observation
from .context import SearchContext
from .features import Array, Features, Featuring
from .gaussian_process import GaussianProcess
from .prior_values import Noise, TabledPeak
from .priors import PeakPrior, Resident, SimulatedPeakPrior

# So many simulated peaks hold the plan table's way of telling them to simulation.
_MOST_LIKENED = 100


class Peaks:
    """The expected peaks of configurations, going by the peaks measured so far.

    Attributes:
        noise: The scatter of a measured peak, as a share.
        scatter: The scatter of the peaks of one configuration from process to process, as a share.
    """

    def __init__(
        self,
        context: SearchContext,
        features: tuple[Featuring, Features],
        sized: Sequence[Observation],
        bounded: Sequence[Observation],
    ) -> None:
        self._predictions = context.predictions
        self._featuring, self._all = features
        facts, space, limit_bytes = context.facts, context.space, float(context.aim.run_limit_bytes)
        # A configuration, and its peak in bytes, that all is measured in.
        units = [one for one in sized if one.configuration.key == space.baseline.key] or sized
        unit, unit_bytes = space.baseline, limit_bytes
        if units:
            unit, unit_bytes = units[0].configuration, units[0].peak_bytes or 0.0
        simulated = self._predictions.of(unit) if self._predictions.works else None
        self._simulates = simulated is not None
        is_resident = facts.environment.device_kind == "cpu"
        rough, prior = self._priors(facts, unit_bytes, simulated, is_resident, ENGINES[space.engine].fuses)
        doubt_of_all = 1.0 if self._simulates or is_resident else TabledPeak.DOUBT_OF_ROWS
        measured = [one for one in sized if one.configuration.engine in space.engines]
        peaks = [one.peak_bytes or 0.0 for one in measured]
        self._process = GaussianProcess(
            [replace(prior, doubt=doubt_of_all * doubt) for doubt in TabledPeak.DOUBTS],
            self._features([one.configuration for one in (*measured, *bounded)]),
            np.array(peaks + [max(limit_bytes, one.needed_bytes or 0.0) for one in bounded], dtype=float),
            is_bound=[False] * len(measured) + [True] * len(bounded),
            noises=Noise.RESIDENT_SETS if is_resident else Noise.PEAKS,
        )
        self.noise = self._process.noise
        self.scatter = self.noise if is_resident else 0.0
        if self._simulates:
            self._mean, self._sd = self._likened(rough)
        else:
            self._mean, self._sd = self._process.mean(self._all), np.sqrt(self._process.variance(self._all))

    def _priors(
        self, facts: Facts, unit_bytes: float, simulated: float | None, is_resident: bool, fuses: bool
    ) -> tuple[PeakPrior, PeakPrior | SimulatedPeakPrior]:
        """Return the prior by the plan table, and the one to go by, which is by simulation where that works."""
        listed = self._featuring.knows_stashed
        stashed_bytes = self._featuring.stashed_bytes if listed else TabledPeak.UNLISTED * unit_bytes
        resident, beyond_bytes = None, 0.0
        if is_resident:
            held_bytes = stashed_bytes if simulated is None else simulated
            # What the resident set is between steps.
            between = [row.allocated for row in facts.memory_matrix if row.phase == "pre_forward"]
            still_bytes = min(between, default=None)
            if fuses and listed and still_bytes is not None:
                unit_bytes = still_bytes + held_bytes  # what the script's own step holds says nothing of that
            step_bytes = 0.0 if still_bytes is None else unit_bytes - still_bytes
            resident = Resident(max(0.0, step_bytes - held_bytes), fuses)
        elif listed and facts.split is not None:
            beyond_bytes = max(0.0, unit_bytes - stashed_bytes - facts.split.state)
        rough = PeakPrior(unit_bytes, stashed_bytes, beyond_bytes, resident=resident)
        if simulated is None:
            return rough, rough
        return rough, SimulatedPeakPrior(unit_bytes, simulated, resident=resident, fuses=fuses)

    def of(self, configurations: Sequence[Configuration]) -> tuple[Array, Array]:
        """Return the expected peaks of configurations, and their standard deviations, in bytes."""
        features = self._features(configurations)
        return self._process.mean(features), np.sqrt(self._process.variance(features))

    def of_all(self) -> tuple[Array, Array]:
        """Return the same for all candidates."""
        return self._mean, self._sd

    def together(self, indices: Indices) -> tuple[Array, Array]:
        """Simulate some candidates; return their expected peaks (n,), and the covariance of the errors (n, n)."""
        features = self._at(indices)
        mean, covariance = self._process.mean(features), self._process.covariance(features, features)
        self._mean[indices], self._sd[indices] = mean, np.sqrt(np.maximum(np.diag(covariance), 0.0))
        return mean, covariance

    def _features(self, configurations: Sequence[Configuration]) -> Features:
        features = self._featuring.of(configurations)
        return self._with(features, (self._predictions.of(one) for one in configurations))

    def _at(self, indices: Indices) -> Features:
        return self._with(self._all[indices], (self._predictions.at(int(index)) for index in indices))

    def _with(self, features: Features, simulated: Iterable[float | None]) -> Features:
        if not self._simulates:
            return features
        known = [np.nan if value is None else value for value in simulated]
        return replace(features, simulated_bytes=np.array(known, dtype=float))

    def _likened(self, rough: PeakPrior) -> tuple[Array, Array]:
        known = np.array([*self._predictions.indices], dtype=np.intp)
        features = self._at(known)
        exact, variance = self._process.mean(features), self._process.variance(features)
        likened = GaussianProcess([rough], features[:_MOST_LIKENED], exact[:_MOST_LIKENED], noises=Noise.LIKENESS)
        mean = likened.mean(self._all)
        sd = np.sqrt(likened.variance(self._all) + np.median(variance))
        mean[known], sd[known] = exact, np.sqrt(variance)
        return mean, sd
