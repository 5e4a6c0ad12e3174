"""What is thought of memory and step time before a trial, and how far off that may be.

Memory: what simulation says, with an offset and a slope; without it a fixed part and a part per sample, less what the
plans free. Step time: a fixed part, a part per sample and what is recomputed. Neither holds exactly: kernels change
with the batch size, and a plan table is made at one of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .features import Array, Features
from .process import Process, matern

__all__ = ["PeakPrior", "SimulatedPeakPrior", "StepTimePrior"]


@dataclass(frozen=True)
class StepTimePrior:
    """Seconds of a training step.

    Args:
        step_time_s: A step at the script's own batch size, without plans.
        unit_sd: How far off that is, as a share.
        roughness: How far speed leaves the straight line over batch sizes; 1 is usual.
        guess: What steps take going by a first fit; errors that are shares of a step are shares of that.
    """

    step_time_s: float
    unit_sd: float = 0.1
    roughness: float = 1.0
    guess: Process | None = None

    # The part of that step which does not grow with the batch size, and how far it may be off.
    _FIXED, _FIXED_SD = 0.25, 0.3
    # The plan table's times: all of them, all at one batch size, each by itself.
    _TABLE_SD, _TABLE_AT_BATCH_SD, _ROW_SD = 0.3, 0.2, 0.4
    # Of what is in layers recomputed anyway some may lie outside them: in real scripts one occurrence of many.
    _COVERED_SD = 0.05
    # What even the cheapest recompute may cost, as a share of a step.
    _LEAST_ROW_SD = 0.002
    _ENGINE_SD = 0.05
    # What a choice of the engine changes.
    _CHOICE_SD = 0.2
    # How the batch size changes speed beyond the straight line: smoothly, by octaves, and each size by itself.
    _CURVE_SD, _CURVE_OCTAVES, _SIZE_SD = 0.08, 2.0, 0.015
    # What is peculiar to a configuration: of its step, and of what it recomputes.
    _OWN_SD, _OWN_TABLE_SD = 0.003, 0.04
    _LEAST_SIZE = 0.05

    def mean(self, features: Features) -> Array:
        """Expect this."""
        return np.asarray(self._plain(features) + features.recompute_s.sum(axis=1))

    def directions(self, features: Features) -> Array:
        """The fixed part, the unit, the engine and its choices, and what is recomputed."""
        unit, mean = self.step_time_s, self.mean(features)
        recomputed = features.recompute_s.sum(axis=1)
        used = (features.recompute_s > 0) * (self._LEAST_ROW_SD * unit * features.scale[:, None])
        return np.column_stack(
            [
                self._FIXED_SD * unit * (features.scale - 1),
                self.unit_sd * mean,
                self._ENGINE_SD * self._size(features) * features.planned,
                self._CHOICE_SD * self._size(features)[:, None] * features.chosen,
                self._TABLE_SD * recomputed,
                self._ROW_SD * features.recompute_s,
                self._COVERED_SD * features.covered_s,
                used,
            ]
        )

    def residual(self, features: Features, others: Features) -> Array:
        """The curve over batch sizes, and what is peculiar to one of them."""
        curve = (self.roughness * self._CURVE_SD) ** 2 * matern(features.octaves, others.octaves, self._CURVE_OCTAVES)
        same = features.scale[:, None] == others.scale[None, :]
        at_batch = self._TABLE_AT_BATCH_SD**2 * matern(features.octaves, others.octaves, 1.0)
        recomputed, others_recomputed = features.recompute_s.sum(axis=1), others.recompute_s.sum(axis=1)
        return np.asarray(
            np.outer(self._size(features), self._size(others)) * (curve + (self.roughness * self._SIZE_SD) ** 2 * same)
            + np.outer(recomputed, others_recomputed) * at_batch
        )

    def residual_variance(self, features: Features) -> Array:
        """Its diagonal, with what is peculiar to each configuration."""
        share = self.roughness**2 * (self._CURVE_SD**2 + self._SIZE_SD**2) + self._OWN_SD**2
        recomputed = features.recompute_s.sum(axis=1)
        of_recompute = self._TABLE_AT_BATCH_SD**2 + self._OWN_TABLE_SD**2
        return np.asarray(share * self._size(features) ** 2 + of_recompute * recomputed**2)

    def _size(self, features: Features) -> Array:
        mean = self.mean(features)
        return mean if self.guess is None else np.maximum(self.guess.mean(features), self._LEAST_SIZE * mean)

    def _plain(self, features: Features) -> Array:
        return self.step_time_s * (self._FIXED + (1 - self._FIXED) * features.scale)


@dataclass(frozen=True)
class PeakPrior:
    """Bytes at the highest point of a training step.

    Args:
        peak_bytes: The peak at the script's own batch size, without plans.
        stashed_bytes: Activations there.
    """

    peak_bytes: float
    stashed_bytes: float

    # The fixed part, what is left of the stash, and what else grows with the batch size.
    _FIXED_SD, _LEFT_SD, _PER_SAMPLE_SD = 0.3, 0.2, 0.08
    # What plans free: all of them, each by itself; what they have in common; and the room that recomputing takes: of
    # what needs all of it at once, and of any.
    _FREED_SD, _ROW_SD, _OVERLAP_SD, _ROOM_SD, _ANY_ROOM_SD = 0.12, 0.12, 0.3, 0.4, 0.03
    # In the graphs of real scripts, what lies in recomputed layers frees nothing more.
    _COVERED_SD = 0.1
    # A choice may change what is held whatever the batch size, and what is kept of each sample.
    _ENGINE_SD, _CHOICE_SD, _CHOICE_SLOPE_SD = 0.05, 0.1, 0.3
    _CURVE_SD, _CURVE_OCTAVES = 0.01, 2.0
    _OWN_SD = 0.008

    def mean(self, features: Features) -> Array:
        """Expect this."""
        stashed = min(self.stashed_bytes, 0.95 * self.peak_bytes)
        return self.peak_bytes - stashed + stashed * features.scale - self._freed(features)

    def directions(self, features: Features) -> Array:
        """The fixed part, the part per sample, what plans free, the room they take, the engine and its choices."""
        kept = np.maximum(self.stashed_bytes * features.scale - self._freed(features), 0.0)
        return np.column_stack(
            [
                np.full(len(features), self._FIXED_SD * self.peak_bytes),
                self._LEFT_SD * (self.stashed_bytes * features.scale - self._freed(features)),
                self._PER_SAMPLE_SD * self.stashed_bytes * features.scale,
                self._FREED_SD * self._freed(features),
                self._ROW_SD * features.saved_bytes,
                self._COVERED_SD * features.covered_bytes.sum(axis=1),
                self._COVERED_SD * features.covered_bytes,
                self._OVERLAP_SD * features.overlap_bytes,
                self._ROOM_SD * features.room_bytes,
                self._ANY_ROOM_SD * self.stashed_bytes * features.scale * features.planned,
                self._ENGINE_SD * self.peak_bytes * features.planned,
                self._CHOICE_SD * self.peak_bytes * features.chosen,
                self._CHOICE_SLOPE_SD * kept[:, None] * features.chosen,
            ]
        )

    def residual(self, features: Features, others: Features) -> Array:
        """The curve over batch sizes."""
        curve = self._CURVE_SD**2 * matern(features.octaves, others.octaves, self._CURVE_OCTAVES)
        return np.asarray(np.outer(self.mean(features), self.mean(others)) * curve)

    def residual_variance(self, features: Features) -> Array:
        """Its diagonal, with what is peculiar to each configuration."""
        return np.asarray((self._CURVE_SD**2 + self._OWN_SD**2) * self.mean(features) ** 2)

    def _freed(self, features: Features) -> Array:
        return features.freed_bytes * min(1.0, 0.95 * self.peak_bytes / self.stashed_bytes)


@dataclass(frozen=True)
class SimulatedPeakPrior:
    """The same where simulation tells: a process holds more than the graph, and an allocator rounds up.

    Args:
        peak_bytes: The peak at the script's own batch size, without plans.
        simulated_bytes: What simulation has for it.
        is_resident: Whether peaks are those of the resident set: the heap of a process has gaps, which grow with the
            batch size and with what comes and goes.
        step_bytes: How much higher the peak is than what the process holds between steps; None where that is not
            known. What of it is not simulated (gaps, and what the script keeps beyond what an engine does) grows with
            the batch size.
    """

    peak_bytes: float
    simulated_bytes: float
    is_resident: bool = False
    step_bytes: float | None = None

    _OFFSET_SD, _SLOPE_SD, _ENGINE_SD, _CHOICE_SD, _CHOICE_SLOPE_SD = 0.3, 0.08, 0.05, 0.1, 0.3
    _OWN_SD = 0.008
    # Of the resident set: how much faster it may grow, how much less plans may free, and what is peculiar to a batch
    # size and those near it.
    _GAPS_SLOPE_SD, _GAPS_FREED_SD, _GAPS_SIZE_SD, _OCTAVES = 0.3, 0.3, 0.05, 1.0
    # How far what else grows with the batch size may be off.
    _BEYOND_SD = 0.3

    def mean(self, features: Features) -> Array:
        """Expect this."""
        return self.peak_bytes - self.simulated_bytes + features.simulated_bytes + self._beyond(features)

    def directions(self, features: Features) -> Array:
        """The offset, the slope, the engine and its choices, what else grows, and what plans free of a resident set."""
        freed_sd = self._GAPS_FREED_SD if self.is_resident else 0.0
        return np.column_stack(
            [
                np.full(len(features), self._OFFSET_SD * self.peak_bytes),
                (self._GAPS_SLOPE_SD if self.is_resident else self._SLOPE_SD) * features.simulated_bytes,
                freed_sd * features.freed_bytes,
                self._ENGINE_SD * self.peak_bytes * features.planned,
                self._CHOICE_SD * self.peak_bytes * features.chosen,
                self._CHOICE_SLOPE_SD * features.simulated_bytes[:, None] * features.chosen,
                self._BEYOND_SD * self._beyond(features),
            ]
        )

    def residual(self, features: Features, others: Features) -> Array:
        """What is peculiar to a batch size, of the resident set."""
        size_sd = self._GAPS_SIZE_SD if self.is_resident else 0.0
        alike = matern(features.octaves, others.octaves, self._OCTAVES)
        return np.asarray(size_sd**2 * np.outer(self.mean(features), self.mean(others)) * alike)

    def residual_variance(self, features: Features) -> Array:
        """Its diagonal, with what is peculiar to each configuration."""
        size_sd = self._GAPS_SIZE_SD if self.is_resident else 0.0
        return np.asarray((self._OWN_SD**2 + size_sd**2) * self.mean(features) ** 2)

    def _beyond(self, features: Features) -> Array:
        """By how much what is not simulated differs from that of the script's own batch size."""
        beyond = max(0.0, (self.step_bytes or 0.0) - self.simulated_bytes)
        return np.asarray(beyond * (features.scale - 1))
