"""Priors of memory and step time before a trial, and how far off they may be.

Memory: what simulation says, with an offset and a slope; without it a fixed part and a part per sample, less what the
plans free. Step time: a fixed part, a part per sample and what is recomputed. Neither holds exactly: kernels change
with the batch size. Arrays are in seconds or in bytes, n is the number of configurations, and ``prior_values``
has the numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .features import Array, Features, kept
from .gaussian_process import GaussianProcess, Part
from .prior_values import ChoiceEffect, EngineEffect, PlanTable, ResidentSet, SimulatedPeak, StepTime, TabledPeak


@dataclass(frozen=True)
class StepTimePrior:
    """Seconds of a training step.

    With ``scale``, the batch size in units of the script's own, and ``recompute_s`` of each kind of recompute::

        step_time_s * (FIXED + (1 - FIXED) * scale) + sum(recompute_s)

    Args:
        step_time_s: A step at the script's own batch size, without plans.
        unit_sd: How far off that is, as a share.
        table_sd: How far the plan table's times are off, all of them together, as a share.
        roughness: How far speed leaves the straight line over batch sizes; 1 is usual.
        guess: A first fit of the step times, which errors of a step are shares of.
    """

    step_time_s: float
    unit_sd: float
    table_sd: float
    roughness: float = 1.0
    guess: GaussianProcess | None = None
    _kept: dict[Any, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    @kept
    def mean(self, features: Features) -> Array:
        """Return the expected seconds, (n,)."""
        plain_s = self.step_time_s * (StepTime.FIXED + (1 - StepTime.FIXED) * features.scale)
        return np.asarray(plain_s + features.recompute_s.sum(axis=1))

    @kept
    def directions(self, features: Features) -> Array:
        """Return the errors of the fixed part, the unit, the engine and its choices, and recomputing, (n, d)."""
        unit, mean = self.step_time_s, self.mean(features)
        recomputed = features.recompute_s.sum(axis=1)
        return np.column_stack(
            [
                StepTime.FIXED_SD * unit * (features.scale - 1),
                self.unit_sd * mean,
                EngineEffect.SD * self._size(features) * features.planned,
                ChoiceEffect.TIME_SD * self._size(features)[:, None] * features.chosen,
                self.table_sd * recomputed,
                PlanTable.FUSED_TIMES_SD * recomputed * features.compiled,
                PlanTable.ROW_TIME_SD * features.recompute_s,
            ]
        )

    @kept
    def parts(self, features: Features) -> list[Part]:
        """Return the errors of the curve over batch sizes, of each of them, and of each configuration."""
        size, recomputed = self._size(features), features.recompute_s.sum(axis=1)
        return [
            Part(self.roughness * StepTime.CURVE_SD * size, features.octaves, StepTime.CURVE_OCTAVES),
            Part(self.roughness * StepTime.BATCH_SIZE_SD * size, features.scale),
            Part(StepTime.OWN_SD * size),
            Part(StepTime.OWN_RECOMPUTE_SD * recomputed),
        ]

    @kept
    def _size(self, features: Features) -> Array:
        """Return the seconds that errors are shares of, (n,)."""
        mean = self.mean(features)
        return mean if self.guess is None else np.maximum(self.guess.mean(features), StepTime.LEAST_GUESS * mean)


@dataclass(frozen=True)
class Resident:
    """The difference of a process's resident set, which is the peak on CPU, from what is held in it.

    An engine's code and graphs stay in the process, and the heap has gaps, which grow with the batch size.

    Args:
        beyond_bytes: What a step of the script's own batch size adds beyond what is known to be held: gaps, and what
            the script keeps longer than an engine does.
        fuses: The engine generates code, whose tools stay in the process too.
    """

    beyond_bytes: float = 0.0
    fuses: bool = False

    def mean(self, features: Features) -> Array:
        """Return the difference in bytes, above that at the script's own batch size."""
        compiles = self.fuses | (features.compiled > 0)
        engine_bytes = np.where(compiles, EngineEffect.COMPILER_RESIDENT_BYTES, EngineEffect.RESIDENT_BYTES)
        return np.asarray(engine_bytes * features.planned + self._beyond(features))

    def directions(self, features: Features, growing_bytes: Array) -> list[Array]:
        """Return the errors of the engine, of what is beyond, of the growth, and of what plans free, each (n,)."""
        engine_sd = EngineEffect.COMPILER_RESIDENT_SD_BYTES if self.fuses else EngineEffect.RESIDENT_SD_BYTES
        return [
            engine_sd * features.planned,
            ResidentSet.BEYOND_SD * self._beyond(features),
            ResidentSet.SLOPE_SD * growing_bytes,
            ResidentSet.FREED_SD * features.freed_bytes,
        ]

    def _beyond(self, features: Features) -> Array:
        return self.beyond_bytes * (features.scale - 1)


@dataclass(frozen=True)
class PeakPrior:
    """Bytes at the highest point of a training step, by the plan table.

    Args:
        peak_bytes: The peak at the script's own batch size, without plans.
        stashed_bytes: Saved activations there.
        beyond_bytes: Held there besides activations and what no batch size changes: gradients of activations,
            workspaces, what an allocator keeps; 0 where that is unknown.
        doubt: How far all of it may be off; 1 is usual.
        resident: How the resident set leaves all this; None where peaks are an allocator's.
    """

    peak_bytes: float
    stashed_bytes: float
    beyond_bytes: float = 0.0
    doubt: float = 1.0
    resident: Resident | None = None

    def mean(self, features: Features) -> Array:
        """Return the expected bytes, (n,)."""
        stashed = min(self.stashed_bytes, TabledPeak.MOST_STASHED * self.peak_bytes)
        own = self.peak_bytes - stashed + stashed * features.scale - self._freed(features)
        own += TabledPeak.BEYOND * self.beyond_bytes * (features.scale - 1)
        return own if self.resident is None else own + self.resident.mean(features)

    def directions(self, features: Features) -> Array:
        """Return the errors of the fixed part, the part per sample, of plans, of the engine and its choices."""
        stashed = self.stashed_bytes * features.scale
        kept = np.maximum(stashed - self._freed(features), 0.0)
        return self.doubt * np.column_stack(
            [
                np.full(len(features), TabledPeak.FIXED_SD * self.peak_bytes),
                TabledPeak.LEFT_SD * (stashed - self._freed(features)),
                TabledPeak.PER_SAMPLE_SD * stashed,
                TabledPeak.BEYOND_SD * self.beyond_bytes * (features.scale - 1),
                PlanTable.SAVINGS_SD * self._freed(features),
                PlanTable.SAVINGS_SD * features.saved_bytes,
                PlanTable.OVERLAP_SD * features.overlap_bytes,
                PlanTable.ROOM_SD * features.room_bytes,
                PlanTable.ANY_ROOM_SD * stashed * features.planned,
                EngineEffect.SD * self.peak_bytes * features.planned,
                ChoiceEffect.PEAK_SD * self.peak_bytes * features.chosen,
                ChoiceEffect.PER_SAMPLE_SD * kept[:, None] * features.chosen,
                *([] if self.resident is None else self.resident.directions(features, stashed)),
            ]
        )

    def parts(self, features: Features) -> list[Part]:
        """Return the errors of a batch size, with plans and without, and of all that should need the same bytes."""
        mean = self.mean(features)
        # An allocator keeps whole segments; a process's own memory has none.
        segment_bytes = TabledPeak.SEGMENT_SD_BYTES if self.resident is None else 0.0
        # A batch size is another place with plans than without.
        return [
            Part(TabledPeak.BATCH_SIZE_SD * mean, np.where(features.planned, -features.scale, features.scale)),
            Part(np.hypot(TabledPeak.OWN_SD * mean, segment_bytes), np.rint(mean)),
        ]

    def _freed(self, features: Features) -> Array:
        return features.freed_bytes * min(1.0, TabledPeak.MOST_STASHED * self.peak_bytes / self.stashed_bytes)


@dataclass(frozen=True)
class SimulatedPeakPrior:
    """The same by simulation: a process holds more than the graph, and an allocator rounds up.

    ``simulated_bytes`` are those of ``peak_bytes``. ``fuses``: the engine fuses operators, which are simulated one by
    one.
    """

    peak_bytes: float
    simulated_bytes: float
    doubt: float = 1.0
    resident: Resident | None = None
    fuses: bool = False

    def mean(self, features: Features) -> Array:
        """Return the expected bytes, (n,)."""
        own = self.peak_bytes - self.simulated_bytes + features.simulated_bytes
        return own if self.resident is None else own + self.resident.mean(features)

    def directions(self, features: Features) -> Array:
        """Return the errors of the offset, the slope, the engine and its choices."""
        return self.doubt * np.column_stack(
            [
                np.full(len(features), SimulatedPeak.OFFSET_SD * self.peak_bytes),
                SimulatedPeak.SLOPE_SD * features.simulated_bytes,
                EngineEffect.SD * self.peak_bytes * features.planned,
                ChoiceEffect.PEAK_SD * self.peak_bytes * features.chosen,
                ChoiceEffect.PER_SAMPLE_SD * features.simulated_bytes[:, None] * features.chosen,
                *([] if self.resident is None else self.resident.directions(features, features.simulated_bytes)),
            ]
        )

    def parts(self, features: Features) -> list[Part]:
        """Return the errors of what is simulated the same, of a batch size, and of fusing by what a step has left."""
        mean, plain = self.mean(features), self.simulated_bytes * features.scale
        size_sd = 0.0 if self.resident is None else ResidentSet.BATCH_SIZE_SD
        fused_sd = self.doubt * SimulatedPeak.FUSED_SD if self.fuses else 0.0
        return [
            Part(TabledPeak.OWN_SD * mean, np.rint(mean)),
            Part(size_sd * mean, features.octaves, ResidentSet.BATCH_SIZE_OCTAVES),
            Part(fused_sd * plain, features.simulated_bytes / plain, SimulatedPeak.FUSED_ALIKE),
        ]
