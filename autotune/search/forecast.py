"""What simulation says of configurations, brought to the scale of what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import replace

from ..errors import PredictionError
from ..predict import Prediction, Predictor
from ..records import Configuration, Facts
from .space import Space

__all__ = ["Forecast", "Predictions"]

# How far from 1 the slope is expected to lie, as a standard deviation: allocators round up, and CPU's figure is the
# resident set. And how far a measured peak scatters, as a share of it.
_SLOPE_SD = 0.15
_PEAK_SD = 0.02


class Predictions:
    """A script's simulations, each made once; none where its facts cannot be simulated.

    Args:
        facts: What discovery found.
        space: Its engine is simulated, and stands for the script as it is too.
    """

    def __init__(self, facts: Facts, space: Space) -> None:
        self._engine = space.engine
        self._known: dict[Configuration, Prediction | None] = {}
        self._predictor: Predictor | None
        try:
            self._predictor = Predictor(facts)
        except PredictionError:
            self._predictor = None

    def of(self, configuration: Configuration) -> Prediction | None:
        """Simulate a configuration, or recall that; None where it cannot be simulated."""
        if self._predictor is None:
            return None
        planned = replace(configuration, engine=self._engine)
        if planned not in self._known:
            try:
                self._known[planned] = self._predictor.predict(planned)
            except PredictionError:
                self._known[planned] = None
        return self._known[planned]


class Forecast:
    """Peaks as they should be measured: simulated ones, with an offset and a slope fitted to the measured peaks.

    Args:
        predictions: The script's simulations.
        space: What may be tried.
        peaks: Configurations measured so far with their peaks in bytes.
    """

    def __init__(self, predictions: Predictions, space: Space, peaks: Iterable[tuple[Configuration, float]]) -> None:
        self._predictions, self._space = predictions, space
        simulated = [
            (configuration, prediction.peak_bytes, peak)
            for configuration, peak in peaks
            if (prediction := predictions.of(configuration)) is not None
        ]
        self.is_calibrated = bool(simulated)
        # The script untouched holds other bytes than the engine, but grows alike.
        groups = [
            [(float(expected), peak) for one, expected, peak in simulated if one.engine == engine]
            for engine in sorted({one.engine for one, _, _ in simulated}, key=lambda name: name == space.engine)
        ]
        self._slope = _slope(groups)
        # The engine's own, once it was measured.
        self._offset = (
            statistics.median([peak - self._slope * expected for expected, peak in groups[-1]]) if groups else 0.0
        )

    def peak_bytes(self, configuration: Configuration) -> float | None:
        """Expect this peak; None where it cannot be simulated, or nothing was measured to compare with."""
        prediction = self._predictions.of(configuration) if self.is_calibrated else None
        return None if prediction is None else self._offset + self._slope * prediction.peak_bytes

    def recompute_time_s(self, configuration: Configuration) -> float | None:
        """Expect this much recompute in a step; None where it cannot be simulated."""
        prediction = self._predictions.of(configuration) if self.is_calibrated else None
        return None if prediction is None else prediction.recompute_time_s * self._space.scale(configuration)


def _slope(groups: list[list[tuple[float, float]]]) -> float:
    """The common slope of groups of (simulated, measured) peaks that have an offset each.

    A least squares fit that begins at 1 and leaves it as far as the spread of the peaks outweighs their noise.
    """
    square = product = 0.0
    for group in groups:
        centre, height = (statistics.fmean(values) for values in zip(*group, strict=True))
        square += sum((expected - centre) ** 2 for expected, _ in group)
        product += sum((expected - centre) * (peak - height) for expected, peak in group)
    noise = _PEAK_SD * max((peak for group in groups for _, peak in group), default=0.0)
    trust = (noise / _SLOPE_SD) ** 2
    return (product + trust) / (square + trust) if trust else 1.0
