"""The cost model: memory and speed of every candidate, learnt from every trial, failed ones included.

Step times are a Gaussian process in seconds, peaks another one in bytes (``peaks.py``). Logarithms of samples/s have
the errors of step times, as shares. ``n`` is the number of candidates.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...records.configuration import Configuration
from ...records.engines import ENGINES, PLAIN_ENGINES
from ...records.facts import Facts
from ..candidates import Indices, Observation
from .context import SearchContext
from .features import Array, Features
from .gaussian_process import GaussianProcess
from .peaks import Peaks
from .prior_values import Noise, PlanTable, StepTime
from .priors import StepTimePrior


class CostModel:
    """A model of the memory and speed of all candidates, learnt from the trials so far.

    Attributes:
        limit_bytes, run_limit_bytes: The highest peaks allowed of an answer and of runs.
        own_log_rate: The logarithm of the samples/s of the script's own setting, memory aside.
        noise: The spread of measured speeds, as a share.
        ruled_out: (n,), which candidates need no less memory than what turned out not to fit.
    """

    def __init__(self, context: SearchContext, observations: Sequence[Observation]) -> None:
        self._space, self._candidates = space, candidates = context.space, context.candidates
        self.run_limit_bytes = float(context.aim.run_limit_bytes)
        self.limit_bytes = min(float(context.aim.limit_bytes), self.run_limit_bytes)
        seen = [one for one in observations if space.point(one.configuration) is not None]
        scored = [one for one in seen if one.state == "scored"]
        timed = [one for one in scored if one.samples_per_s > 0]
        self._own = own = [one for one in timed if self._is_own(one.configuration)]
        step_s = self._step_s(own or timed, context.facts)
        self._featuring, self._all = features = context.features(step_s)
        unit_sd = StepTime.UNIT_SD if own else StepTime.UNIT_OF_OTHER_ENGINE_SD
        table_sd = PlanTable.FUSED_TIMES_SD if ENGINES[space.engine].fuses else PlanTable.TIMES_SD
        self._priors = [StepTimePrior(step_s, unit_sd, table_sd, roughness) for roughness in StepTime.ROUGHNESSES]
        guess = self._timed(own)
        self._priors = [replace(prior, guess=guess) for prior in self._priors]
        self._times = self._timed(own)
        running = [one for one in seen if one.state == "running" and self._is_own(one.configuration)]
        if running:
            theirs = self._featuring.of([one.configuration for one in running])
            rates = self._batches(theirs) / self._times.mean(theirs)
            expected = [replace(one, samples_per_s=rate) for one, rate in zip(running, rates.tolist(), strict=True)]
            self._times = self._timed([*own, *expected])
        self.noise = self._times.noise

        # What had to free and try again was at the limit, whatever its peak says.
        bounded = [
            one
            for one in scored
            if one.out_of_memory or not (one.feasible or one.fails or (one.peak_bytes or 0) > self.limit_bytes)
        ]
        bounded = [one for one in bounded if space.tells_memory(one.configuration)]
        sized = [one for one in scored if one.peak_bytes is not None and space.tells_memory(one.configuration)]
        sized = [one for one in sized if one not in bounded]
        self._is_calibrated = bool(sized)
        bounded = [one for one in bounded if self._is_own(one.configuration)]
        self.peaks = Peaks(context, features, sized, bounded)
        self.ruled_out = np.zeros(len(candidates), dtype=bool)
        for one in (*bounded, *sized):
            if self._is_own(one.configuration) and (one in bounded or (one.peak_bytes or 0) > self.limit_bytes):
                self.ruled_out |= candidates.needing_no_less(one.configuration)
        self.own_log_rate = math.log((space.own_batch_size or 1) / step_s)

    def expected_bytes(self, configuration: Configuration) -> float | None:
        """Return the peak that is expected of a configuration of the space; None before any was measured."""
        peaks_bytes, _ = self.peaks.of([configuration])
        return float(peaks_bytes[0]) if self._is_calibrated else None

    def figures_of(self, trials: Sequence[Observation], *, of_any_process: bool = False) -> tuple[Array, Array]:
        """Return the expected logarithms of samples/s, and peaks in bytes, of measured trials, each (trials,).

        Trials of another engine are as they were measured, and so are peaks that the model leaves out. Speeds
        ``of_any_process`` count each trial as one process, and others are faster or slower.
        """
        rates = np.log([one.samples_per_s for one in trials])
        peaks_bytes = np.array([one.peak_bytes for one in trials], dtype=float)
        own = np.array([self._is_own(one.configuration) for one in trials], dtype=bool)
        if own.any():
            configurations = [one.configuration for one in itertools.compress(trials, own)]
            features = self._featuring.of(configurations)
            told = own & [self._space.tells_memory(one.configuration) for one in trials]
            times = self._timed(self._own, noises=(Noise.PROCESSES,)) if of_any_process else self._times
            rates[own] = np.log(self._batches(features) / self._seconds(features, times))
            if told.any():
                telling = [one.configuration for one in itertools.compress(trials, told)]
                peaks_bytes[told], _ = self.peaks.of(telling)
        return rates, peaks_bytes

    def log_rates(self, beside: Observation | None = None) -> tuple[Array, Array]:
        """Return the logarithm of samples/s expected of each candidate, (n,), and its uncertainty, (n,).

        Beside another trial it is that of the difference: what would make both faster does not count.
        """
        mean, sd = self._log_rates(self._all)
        place = self.place_of(beside)
        if place is not None:
            reference = self._all[place : place + 1]
            seconds, own_s = self._seconds(self._all), self._seconds(reference)
            together = self._times.covariance(self._all, reference)[:, 0] / (seconds * own_s)
            own_variance = self._times.variance(reference)[0] / own_s[0] ** 2
            sd = np.sqrt(np.maximum(sd**2 + own_variance - 2 * together, 0.0) + Noise.LEAST_SD**2)
        return mean, sd

    def fits(self) -> Array:
        """Return the chance that each candidate fits an answer's limit in its trial, (n,)."""
        mean, sd = self.peaks.of_all()
        return self._within(mean, np.hypot(sd, self.peaks.noise * mean)) * ~self.ruled_out

    def always_fits(self) -> Array:
        """Return the chance that each candidate fits in every process that an answer is measured in, (n,)."""
        if not self.peaks.scatter:
            return self.fits()
        return self._within(*self._highest(*self.peaks.of_all(), Noise.HIGHEST_OF_ALL)) * ~self.ruled_out

    def fits_again(self, trials: Sequence[Observation]) -> Array:
        """Return the chance that measured trials that fitted fit in every process of a confirmation, (trials,).

        1 where peaks do not scatter, for the script as it stands, and for what nothing is expected of: another engine,
        peaks that the model leaves out.
        """
        chances, baseline = np.ones(len(trials)), self._space.baseline
        configurations = [one.configuration for one in trials]
        asked = [
            self._is_own(one) and one.key != baseline.key and self._space.tells_memory(one) for one in configurations
        ]
        if any(asked) and self.peaks.scatter:
            figures = self.peaks.of(list(itertools.compress(configurations, asked)))
            chances[asked] = self._within(*self._highest(*figures, Noise.HIGHEST_OF_CONFIRMATION))
        return chances

    def drawn(
        self, indices: Indices, beside: Sequence[int], count: int, chance: np.random.Generator
    ) -> tuple[Array, Array]:
        """Draw together logarithms of samples/s and peaks in bytes, each (count, candidates), those ``beside`` last."""
        together = np.array([*indices, *beside], dtype=np.intp)
        features = self._all[together]
        seconds = self._seconds(features)
        covariance = self._times.covariance(features, features)
        # What is peculiar to one of those that all are held against shifts all.
        for place in range(len(indices), len(together)):
            covariance[place, place] = self._times.variance(features[place : place + 1])[0]
        # Drawn as seconds: where steps hardly grow with the batch size, large batches may be many times as fast as
        # expected, and errors of logarithms do not reach so far.
        drawn_s = np.maximum(seconds + _correlated(covariance, count, chance), StepTime.LEAST * seconds)
        rates = np.log(self._batches(features)) - np.log(drawn_s)
        peaks, covariance = self.peaks.together(together)
        return rates, peaks + _correlated(covariance, count, chance)

    def place_of(self, trial: Observation | None) -> int | None:
        """Return the place of a trial among the candidates; None where it is none of them."""
        return None if trial is None else self._candidates.index(trial.configuration)

    def in_order(self, configurations: Sequence[Configuration]) -> tuple[Configuration, ...]:
        """Order from least to most memory expected, so that running out of it ends a run late."""
        if not configurations:
            return ()
        peaks, _ = self.peaks.of(configurations)
        order = sorted(range(len(configurations)), key=lambda number: (peaks[number], configurations[number].key))
        return tuple(configurations[number] for number in order)

    def _highest(self, peaks: Array, sd: Array, highest: tuple[float, float]) -> tuple[Array, Array]:
        """Return the expected highest peak of several processes, and its standard deviation."""
        scatter = self.peaks.scatter * peaks
        return peaks + highest[0] * scatter, np.hypot(sd, highest[1] * scatter)

    def _within(self, peaks: Array, sd: Array) -> Array:
        from scipy.special import ndtr  # takes a while to import, and `autotune --help` needs none of it

        return np.asarray(ndtr((self.limit_bytes - peaks) / sd))

    def _is_own(self, configuration: Configuration) -> bool:
        return configuration.engine in self._space.engines

    def _step_s(self, timed: Sequence[Observation], facts: Facts) -> float:
        """Return the seconds of a step at the script's own batch size, without plans, as near as was measured."""
        engines = {self._space.engine, *PLAIN_ENGINES}
        plain = [one for one in timed if not one.configuration.recomputed and one.configuration.engine in engines]
        baseline = [one for one in plain if self._space.scale(one.configuration) == 1.0]
        if timed:
            return statistics.median(
                (one.configuration.batch_size or 1) / one.samples_per_s / self._space.scale(one.configuration)
                for one in baseline or timed
            )
        return StepTime.STEPS_PER_RECOMPUTE * sum(row.recompute_time_s for row in facts.clusters) or 1.0

    def _timed(self, own: Sequence[Observation], noises: Sequence[float] = Noise.STEP_TIMES) -> GaussianProcess:
        times_s = np.array([(one.configuration.batch_size or 1) / one.samples_per_s for one in own])
        features = self._featuring.of([one.configuration for one in own])
        return GaussianProcess(self._priors, features, times_s, noises=noises)

    def _log_rates(self, features: Features) -> tuple[Array, Array]:
        """Return the logarithms of samples/s, and their standard deviations, each (features,)."""
        seconds = self._seconds(features)
        return np.log(self._batches(features)) - np.log(seconds), np.sqrt(self._times.variance(features)) / seconds

    def _batches(self, features: Features) -> Array:
        return features.scale * (self._space.own_batch_size or 1)

    def _seconds(self, features: Features, times: GaussianProcess | None = None) -> Array:
        """Return the expected seconds of a step, (features,), by all that is known or by other ``times``."""
        return np.maximum((times or self._times).mean(features), StepTime.LEAST_GUESS * self._priors[0].mean(features))


def _correlated(covariance: Array, count: int, chance: np.random.Generator) -> Array:
    """Draw Gaussian errors (count, k) of a covariance (k, k), by its eigenvectors, as it may be singular."""
    values, vectors = np.linalg.eigh(covariance)
    drawn = chance.standard_normal((count, len(values))) * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(drawn @ vectors.T)
