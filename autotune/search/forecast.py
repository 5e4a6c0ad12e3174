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

# Allocators round up and CPU's figure is the resident set, so peaks may grow faster than simulated bytes; not by more.
_SLOPES = (0.9, 1.5)
# Peaks closer together than this share tell nothing about a slope.
_SPREAD = 0.1


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
        # The script untouched may stand in for the engine, until that is measured.
        own = [one for one in simulated if one[0].engine == space.engine] or simulated
        pairs = [(float(expected), peak) for _, expected, peak in own]
        self._slope = _slope(pairs)
        self._offset = statistics.median([peak - self._slope * expected for expected, peak in pairs] or [0.0])
        self.is_calibrated = bool(pairs)

    def peak_bytes(self, configuration: Configuration) -> float | None:
        """Expect this peak; None where it cannot be simulated, or nothing was measured to compare with."""
        prediction = self._predictions.of(configuration) if self.is_calibrated else None
        return None if prediction is None else self._offset + self._slope * prediction.peak_bytes

    def recompute_time_s(self, configuration: Configuration) -> float | None:
        """Expect this much recompute in a step; None where it cannot be simulated."""
        prediction = self._predictions.of(configuration) if self.is_calibrated else None
        return None if prediction is None else prediction.recompute_time_s * self._space.scale(configuration)


def _slope(pairs: list[tuple[float, float]]) -> float:
    expected = [one for one, _ in pairs]
    if not pairs or max(expected) - min(expected) < _SPREAD * max(expected):
        return 1.0
    slope = statistics.linear_regression(*zip(*pairs, strict=True)).slope
    least, most = _SLOPES
    return min(max(slope, least), most)
