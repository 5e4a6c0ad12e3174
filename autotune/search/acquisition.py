"""Acquisition of untried candidates beside the best trial so far, by the cost model's expectations and an aim."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from ..records.units import format_bytes, format_rate, format_speed
from ..verdict.aim import Aim
from ..verdict.search_end import EVEN_CHANCE
from .candidates import Indices, Observation
from .cost.features import Array
from .cost.model import CostModel
from .cost.prior_values import Noise, StepTime

# No peak is expected below this share of the best's: the model is a straight line, which may come down to nothing.
_LEAST_PEAK = 0.02
# Confirmations have to show that a setting is fast enough. So the search keeps clear of the slowest that is allowed, by
# so many times the noise, and at most by half of the slowdown. A judgement.
_CLEAR_OF_NOISE = 1.5
# The least chance of being allowed at which something may be tried, where there is a best and where there is none:
# another trial costs less than to say that nothing fits. Judgements.
_LEAST_LIKELY, _LEAST_LIKELY_OF_ANY = 0.1, 0.05
# Of a standard normal distribution, each as likely as the others.
_QUANTILES = np.array([NormalDist().inv_cdf((number + 0.5) / 64) for number in range(64)])
# Drawn gains are cut off at these differences of logarithms, so that one extreme draw does not decide.
_GAINS = -50.0, 5.0


class Acquisition:
    """Candidates beside the best of the feasible trials, whose speeds and peaks are measured.

    Speeds are held against ``reference``, or without one against the fastest that fits.

    Attributes:
        best: The trial that is worth most and may be the answer, by what the model expects of it; None without one.
        best_merit: The logarithm of what it is worth, ``Aim.merit``. Without one, of the script's own samples/s.
    """

    def __init__(
        self, aim: Aim, model: CostModel, feasible: Sequence[Observation], reference: Observation | None
    ) -> None:
        self._aim, self._model = aim, model
        self.best: Observation | None = None
        self._reference = reference
        # The best as it was measured, which is what people see as the best.
        self._leader: Observation | None = None
        self._leader_log_rate = 0.0
        self.best_merit, self._slowest, self._least_rate = model.own_log_rate, -math.inf, -math.inf
        if not feasible:
            assert not aim.seeks_memory, "there is nothing to compare speeds with"
            return
        rates, peaks_bytes = model.figures_of(feasible)
        if reference is None:
            self._reference = feasible[int(np.argmax(rates))]
        self._slowest = aim.log_slowest + min(_CLEAR_OF_NOISE * model.noise, -aim.log_slowest / 2)
        self._least_rate = float(rates[feasible.index(self._reference)]) + self._slowest
        merits = np.where(rates >= self._least_rate, self._log_merits(rates, peaks_bytes), -np.inf)
        # What fitted once and may well not fit again is the best only where there is nothing else. It counts for less
        # then, or nothing that fits for sure would be worth looking for.
        chances = model.fits_again(feasible)
        sure = np.where(chances >= EVEN_CHANCE, merits, -np.inf)
        merits = sure if np.isfinite(sure).any() else merits + np.log(np.maximum(chances, _LEAST_LIKELY))
        self.best, self.best_merit = feasible[int(np.argmax(merits))], float(merits.max())
        measured = [aim.merit(one.samples_per_s, one.peak_bytes) for one in feasible]
        leader = int(np.argmax(np.where(np.isfinite(merits), measured, -np.inf)))
        self._leader, self._leader_log_rate = feasible[leader], float(rates[leader])

    def gains(self) -> tuple[Array, Array]:
        """Return each candidate's expected gain over the best, (n,), and its uncertainty, (n,), as log differences."""
        if not self._aim.seeks_memory:
            mean, sd = self._model.log_rates(self.best)
            return mean - self.best_merit, sd
        mean, sd = self._model.peaks.of_all()
        mean = self._floored(mean)
        return -np.log(mean) - self.best_merit, np.hypot(sd / mean, Noise.LEAST_SD)

    def allowed(self) -> Array:
        """Return how likely each candidate may be the answer, (n,): it always fits, and is fast enough."""
        from scipy.special import ndtr  # late for the same reason as in CostModel.fits()

        fits = self._model.always_fits()
        if not self._aim.seeks_memory:
            return fits
        mean, sd = self._model.log_rates(self._reference)
        return np.asarray(fits * ndtr((mean - self._least_rate) / sd))

    def likely_allowed(self) -> npt.NDArray[np.bool_]:
        """Return which candidates are likely enough allowed to be tried, (n,)."""
        # Where nothing fits yet, what fits once is worth knowing.
        return self._model.fits() >= _LEAST_LIKELY_OF_ANY if self.best is None else self.allowed() >= _LEAST_LIKELY

    def expected_gains(self) -> Array:
        """Return by what share each candidate is expected to be better than the best, where it is allowed, (n,).

        That is the expected improvement of Jones, Schonlau and Welch (1998) times the chance of being allowed, as a
        mean over quantiles. The error is one of seconds, or bytes, and not of logarithms: where steps hardly grow with
        the batch size, large batches may be many times as fast as expected. Without a best, return how many times as
        good as the script's own setting each is.
        """
        gain, sd = self.gains()
        if self.best is None:
            return np.asarray(np.exp(gain) * self.allowed())
        costs = np.exp(-gain)[:, None] * np.maximum(1 + sd[:, None] * _QUANTILES, StepTime.LEAST)
        shares = 1 - costs if self._aim.seeks_memory else 1 / costs - 1
        return np.asarray(np.maximum(shares, 0.0).mean(axis=1) * self.allowed())

    def drawn(
        self, indices: Indices, count: int, chance: np.random.Generator
    ) -> tuple[Array, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Draw what may be true of some candidates together.

        Returns:
            Gains over the best, as in ``expected_gains``; whether they may be the answer; and whether runs have the
            memory for them. Each (count, candidates).
        """
        model, number = self._model, len(indices)
        # What they are held against is drawn with them: what would change both tells nothing.
        best, reference = model.place_of(self.best), model.place_of(self._reference)
        beside = sorted({place for place in (best, reference) if place is not None})
        rates, peaks = model.drawn(indices, beside, count, chance)
        merits = self._log_merits(rates, self._floored(peaks))
        gains = merits[:, :number] - (self.best_merit if best is None else merits[:, [number + beside.index(best)]])
        least: float | Array = self._least_rate
        if reference is not None and self._aim.seeks_memory:
            least = rates[:, [number + beside.index(reference)]] + self._slowest
        rates, peaks = rates[:, :number], peaks[:, :number]
        # In the process of the trial, and in those of a confirmation if peaks differ from process to process.
        processes = Noise.PROCESSES_OF_ANSWER if model.peaks.scatter else 1
        measured = peaks * (1 + model.peaks.noise * chance.standard_normal((processes, *peaks.shape)))
        fits = (measured[0] <= model.run_limit_bytes) & ~model.ruled_out[indices]
        allowed = fits & (measured.max(axis=0) <= model.limit_bytes) & (rates >= least)
        gains = np.clip(gains, *_GAINS)
        # As shares of the best's samples/s more, or of its memory less.
        shares = 1 - np.exp(-gains) if self._aim.seeks_memory else np.exp(gains) - (self.best is not None)
        return np.maximum(shares, 0.0), allowed, fits

    def stop_reason(self, more: float) -> str:
        """Return for people why nothing more is tried; an untried setting may be ``more`` better, a log difference."""
        more, leader = max(more, 0.0), self._leader
        if not self._aim.seeks_memory:
            expects = f"no more than {format_speed(math.exp(self.best_merit + more))}"
            sentence = f"The model of this search expects {expects} of anything untried that fits"
            if leader is None:
                return f"{sentence}."
            believed, measured = format_rate(math.exp(self._leader_log_rate)), format_rate(leader.samples_per_s)
            return f"{sentence}; of the best, which was measured at {measured}, it expects {believed}."
        peak_bytes = (leader and leader.peak_bytes) or math.exp(-self.best_merit)
        least = format_bytes(peak_bytes * math.exp(-more))
        return (
            f"The model of this search expects no less than {least} of anything untried{self._fast_enough}; the best "
            f"was measured at {format_bytes(peak_bytes)}."
        )

    def exhausted_reason(self) -> str:
        """Return for people why nothing more is tried, where nothing is left."""
        limit = self._aim.limit_text()
        if self.best is None:
            return f"Nothing tried fits {limit}, and nothing else is likely to."
        return f"Nothing untried is likely to fit {limit}{self._fast_enough}."

    @property
    def _fast_enough(self) -> str:
        if not self._aim.seeks_memory or self._reference is None:
            return ""
        return f" at {format_speed(math.exp(self._slowest) * self._reference.samples_per_s)} or more"

    def _log_merits(self, log_rates: Array, peaks_bytes: Array) -> Array:
        """Return the logarithms of ``Aim.merit``; any shape."""
        return -np.log(peaks_bytes) if self._aim.seeks_memory else log_rates

    def _floored(self, peaks_bytes: Array) -> Array:
        """Return peaks that have a logarithm, where that is what counts."""
        if not self._aim.seeks_memory:
            return peaks_bytes
        return np.maximum(peaks_bytes, _LEAST_PEAK * math.exp(-self.best_merit))
