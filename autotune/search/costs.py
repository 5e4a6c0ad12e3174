"""What is thought of memory and step time before a trial, and how far off that may be.

Memory: what simulation says, with an offset and a slope; without it a fixed part and a part per sample, less what the
plans free. Step time: a fixed part, a part per sample and what is recomputed. Neither holds exactly: kernels change
with the batch size, and a plan table is made at one of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .features import Array, Features
from .process import Process, matern

__all__ = ["PeakPrior", "SimulatedPeakPrior", "StepTimePrior"]


@dataclass(frozen=True)
class StepTimePrior:
    """Seconds of a training step.

    Args:
        step_time_s: A step at the script's own batch size, without plans.
        unit_sd: How far off that is, as a share.
        table_sd: How far the plan table's times are off, all of them together, as a share.
        roughness: How far speed leaves the straight line over batch sizes; 1 is usual.
        guess: What steps take going by a first fit; errors that are shares of a step are shares of that.
    """

    step_time_s: float
    unit_sd: float = 0.1
    table_sd: float = 0.3
    roughness: float = 1.0
    guess: Process | None = None

    # The part of that step which does not grow with the batch size, and how far it may be off.
    _FIXED, _FIXED_SD = 0.25, 0.3
    # The plan table's times: all of them at one batch size, each by itself.
    _TABLE_AT_BATCH_SD, _ROW_SD = 0.2, 0.4
    # Of what is in layers recomputed anyway some may lie outside them: in real scripts one occurrence of many.
    _COVERED_SD = 0.05
    # What even the cheapest recompute may cost, as a share of a step.
    _LEAST_ROW_SD = 0.002
    _ENGINE_SD = 0.05
    # What a choice changes: half the time of a step, perhaps.
    _CHOICE_SD = 0.4
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
                self.table_sd * recomputed,
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
class Resident:
    """How the resident set of a process, which is the peak on CPU, leaves what is held in it.

    An engine traces and compiles in the process, and its code and graphs stay there, whatever the script is like. The
    heap has gaps, which grow with the batch size and with what comes and goes.

    Args:
        beyond_bytes: What a step of the script's own batch size adds to the set beyond what is known to be held: gaps,
            and what the script keeps longer than an engine does. It grows with the batch size.
        fuses: The engine generates code, whose tools stay in the process too.
    """

    beyond_bytes: float = 0.0
    fuses: bool = False

    # As seen with AOTAutograd on torch 2.13: 36 to 52 MiB, of scripts with and without much to trace; Inductor: 115.
    _ENGINE_BYTES, _ENGINE_SD_BYTES = 45 * 2**20, 15 * 2**20
    _COMPILER_BYTES, _COMPILER_SD_BYTES = 110 * 2**20, 40 * 2**20
    # How much faster the set may grow, how much less plans may free, and what is peculiar to a batch size and those
    # near it.
    _SLOPE_SD, _FREED_SD, _OCTAVES = 0.3, 0.3, 1.0
    _BEYOND_SD, SIZE_SD = 0.3, 0.05

    def mean(self, features: Features) -> Array:
        """What is in it besides, in bytes more than at the script's own batch size."""
        engine_bytes = self._COMPILER_BYTES if self.fuses else self._ENGINE_BYTES
        return engine_bytes * features.planned + self._beyond(features)

    def directions(self, features: Features, growing_bytes: Array) -> list[Array]:
        """The engine, what is beyond, how fast what is held makes it grow, and what plans free, each (n,)."""
        return [
            (self._COMPILER_SD_BYTES if self.fuses else self._ENGINE_SD_BYTES) * features.planned,
            self._BEYOND_SD * self._beyond(features),
            self._SLOPE_SD * growing_bytes,
            self._FREED_SD * features.freed_bytes,
        ]

    def alike(self, features: Features, others: Features) -> Array:
        """The covariance of what is peculiar to batch sizes, as shares of a peak, (n, m)."""
        return self.SIZE_SD**2 * matern(features.octaves, others.octaves, self._OCTAVES)

    def _beyond(self, features: Features) -> Array:
        return self.beyond_bytes * (features.scale - 1)


@dataclass(frozen=True)
class PeakPrior:
    """Bytes at the highest point of a training step.

    Args:
        peak_bytes: The peak at the script's own batch size, without plans.
        stashed_bytes: Activations there.
        doubt: How far all of it may be off; 1 is usual.
        resident: How the resident set leaves all this; None where peaks are an allocator's.
    """

    peak_bytes: float
    stashed_bytes: float
    doubt: float = 1.0
    resident: Resident | None = None

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
        own = self.peak_bytes - stashed + stashed * features.scale - self._freed(features)
        return own if self.resident is None else own + self.resident.mean(features)

    def directions(self, features: Features) -> Array:
        """The fixed part, the part per sample, what plans free, the room they take, the engine and its choices."""
        stashed = self.stashed_bytes * features.scale
        kept = np.maximum(stashed - self._freed(features), 0.0)
        return self.doubt * np.column_stack(
            [
                np.full(len(features), self._FIXED_SD * self.peak_bytes),
                self._LEFT_SD * (stashed - self._freed(features)),
                self._PER_SAMPLE_SD * stashed,
                self._FREED_SD * self._freed(features),
                self._ROW_SD * features.saved_bytes,
                self._COVERED_SD * features.covered_bytes.sum(axis=1),
                self._COVERED_SD * features.covered_bytes,
                self._OVERLAP_SD * features.overlap_bytes,
                self._ROOM_SD * features.room_bytes,
                self._ANY_ROOM_SD * stashed * features.planned,
                self._ENGINE_SD * self.peak_bytes * features.planned,
                self._CHOICE_SD * self.peak_bytes * features.chosen,
                self._CHOICE_SLOPE_SD * kept[:, None] * features.chosen,
                *([] if self.resident is None else self.resident.directions(features, stashed)),
            ]
        )

    def residual(self, features: Features, others: Features) -> Array:
        """The curve over batch sizes, and what is peculiar to all that should need the same to the byte."""
        mean, others_mean = self.mean(features), self.mean(others)
        curve = self._CURVE_SD**2 * matern(features.octaves, others.octaves, self._CURVE_OCTAVES)
        return np.asarray(np.outer(mean, others_mean) * (curve + self._OWN_SD**2 * _same(mean, others_mean)))

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
        doubt: How far all of it may be off; 1 is usual.
        resident: How the resident set leaves all this; None where peaks are an allocator's.
    """

    peak_bytes: float
    simulated_bytes: float
    doubt: float = 1.0
    resident: Resident | None = None

    _OFFSET_SD, _SLOPE_SD, _ENGINE_SD, _CHOICE_SD, _CHOICE_SLOPE_SD = 0.3, 0.08, 0.05, 0.1, 0.3
    _OWN_SD = 0.008

    def mean(self, features: Features) -> Array:
        """Expect this."""
        own = self.peak_bytes - self.simulated_bytes + features.simulated_bytes
        return own if self.resident is None else own + self.resident.mean(features)

    def directions(self, features: Features) -> Array:
        """The offset, the slope, the engine and its choices."""
        return self.doubt * np.column_stack(
            [
                np.full(len(features), self._OFFSET_SD * self.peak_bytes),
                self._SLOPE_SD * features.simulated_bytes,
                self._ENGINE_SD * self.peak_bytes * features.planned,
                self._CHOICE_SD * self.peak_bytes * features.chosen,
                self._CHOICE_SLOPE_SD * features.simulated_bytes[:, None] * features.chosen,
                *([] if self.resident is None else self.resident.directions(features, features.simulated_bytes)),
            ]
        )

    def residual(self, features: Features, others: Features) -> Array:
        """What is peculiar to all that is simulated the same to the byte, and of the resident set to a batch size."""
        mean, others_mean = self.mean(features), self.mean(others)
        sizes = 0.0 if self.resident is None else self.resident.alike(features, others)
        return np.asarray(np.outer(mean, others_mean) * (sizes + self._OWN_SD**2 * _same(mean, others_mean)))

    def residual_variance(self, features: Features) -> Array:
        """Its diagonal, with what is peculiar to each configuration."""
        size_sd = 0.0 if self.resident is None else self.resident.SIZE_SD
        return np.asarray((self._OWN_SD**2 + size_sd**2) * self.mean(features) ** 2)


def _same(means: Array, others: Array) -> npt.NDArray[np.bool_]:
    """Which are expected to need the same to the byte: their graphs hold the same then, (n, m)."""
    return np.asarray(np.rint(means)[:, None] == np.rint(others)[None, :])
