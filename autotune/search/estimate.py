"""A rough expectation of memory and recompute time: good enough to order a run, never to decide a result."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable

from ..records import ClusterFacts, Configuration, Facts
from .space import Space

__all__ = ["Estimate"]

# How far savings may turn out from what the plan table says: recomputing needs memory itself.
_SAVING_RATIOS = (0.2, 1.2)


class Estimate:
    """Linear in the batch size: a fixed part, a part per sample, and the plans' savings, which grow with it.

    Fitted to the peaks measured so far. ``is_calibrated`` says whether there was any; without one the figures order
    configurations but mean nothing as bytes.

    Args:
        space: What may be tried.
        facts: Where the plan table and the memory split come from.
        peaks: Configurations measured so far with their peaks in bytes.
    """

    def __init__(self, space: Space, facts: Facts, peaks: Iterable[tuple[Configuration, float]]) -> None:
        self._space = space
        measured = list(peaks)
        without = [(c, peak) for c, peak in measured if not c.plans]
        # The script untouched may stand in for the script compiled, until that is measured.
        own = [(c, peak) for c, peak in without if c.engine == space.plain_engine] or without
        plain = [(self._scale(c), peak) for c, peak in own]
        self.is_calibrated = bool(plain)
        self._stashed = _stashed_bytes(facts)
        self._fixed, self._per_scale = _line(plain, self._stashed)
        self._saving_ratio = 1.0
        ratios = [
            (self._plain_bytes(c) - peak) / saving
            for c, peak in measured
            if plain and (saving := self._saving_bytes(c)) > 0
        ]
        if ratios:
            least, most = _SAVING_RATIOS
            self._saving_ratio = min(max(statistics.median(ratios), least), most)

    def peak_bytes(self, configuration: Configuration) -> float:
        """Expect this peak of a configuration."""
        return self._plain_bytes(configuration) - self._saving_ratio * self._saving_bytes(configuration)

    def recompute_time_s(self, configuration: Configuration) -> float:
        """Expect this much recompute in a training step; a cluster inside a recomputed layer costs nothing more."""
        layers, others = self._shares(configuration)
        covered = max(layers.values(), default=0.0)
        time_s = sum(share * row.recompute_time_s for row, share in layers.items())
        time_s += (1 - covered) * sum(share * row.recompute_time_s for row, share in others.items())
        return time_s * self._scale(configuration)

    def _plain_bytes(self, configuration: Configuration) -> float:
        return self._fixed + self._per_scale * self._scale(configuration)

    def _saving_bytes(self, configuration: Configuration) -> float:
        """Savings overlap: each is taken to free its share of what the others left, and none frees a layer twice."""
        layers, others = self._shares(configuration)
        left, kept = (
            math.prod(1 - share * min(row.saving_bytes / self._stashed, 1.0) for row, share in rows.items())
            for rows in (layers, others)
        )
        covered = max(layers.values(), default=0.0)
        left *= 1 - (1 - covered) * (1 - kept)
        return (1 - left) * self._stashed * self._scale(configuration)

    def _shares(self, configuration: Configuration) -> tuple[dict[ClusterFacts, float], dict[ClusterFacts, float]]:
        """Give the recomputed share of each planned cluster: of layers, and of the others."""
        planned = [(self._space.rows[plan.cluster_id], plan) for plan in configuration.plans]
        shares = {row: plan.applies_to(row.frequency) / row.frequency for row, plan in planned}
        return (
            {row: share for row, share in shares.items() if row.is_layer},
            {row: share for row, share in shares.items() if not row.is_layer},
        )

    def _scale(self, configuration: Configuration) -> float:
        """The batch size in units of the script's own, which the plan table was made at."""
        own, batch_size = self._space.own_batch_size, self._space.batch_size_of(configuration)
        return 1.0 if own is None or batch_size is None else batch_size / own


def _stashed_bytes(facts: Facts) -> float:
    """Activations at the script's own batch size: the engine's figure, or at the least what the plan table frees."""
    if facts.split is not None and facts.split.activations:
        return float(facts.split.activations)
    layers = max((row.saving_bytes for row in facts.clusters if row.is_layer), default=0)
    return float(max(layers, sum(row.saving_bytes for row in facts.clusters if not row.is_layer), 1))


def _line(plain: list[tuple[float, float]], stashed_bytes: float) -> tuple[float, float]:
    """Fit peak = fixed + slope * scale to measured peaks without plans, given as (scale, bytes)."""
    if len({scale for scale, _ in plain}) > 1:
        slope, intercept = statistics.linear_regression(*zip(*plain, strict=True))
        if slope > 0:
            return max(intercept, 0.0), slope
    if not plain:
        return 0.0, stashed_bytes
    # One point can't tell the two apart: take what is stashed for the slope, and all else as fixed.
    scale, peak = plain[0]
    slope = min(stashed_bytes, peak / scale)
    return peak - slope * scale, slope
