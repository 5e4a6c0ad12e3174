"""Simulated peaks of a script's configurations, each simulated once."""

from __future__ import annotations

from dataclasses import replace

from ...errors import PredictionError
from ...predict.prediction import Predictor
from ...records.configuration import Configuration
from ...records.facts import Facts
from ..candidates import Candidates
from ..space import Space


class Predictions:
    """A script's simulations, each made once; none where its facts cannot be simulated.

    Attributes:
        works: Whether the configurations of the space can be simulated, going by some from all over it.
        indices: The candidates simulated so far, in that order: a set with an order, as keys.
    """

    def __init__(self, facts: Facts, space: Space, candidates: Candidates) -> None:
        self._engine, self._candidates = space.engine, candidates
        self._known: dict[Configuration, float | None] = {}
        self._predictor: Predictor | None
        try:
            self._predictor = Predictor(facts)
        except PredictionError:
            self._predictor = None
        self.indices: dict[int, None] = {}
        self.works = self._predictor is not None and self.of(space.baseline) is not None
        self.works = self.works and None not in [self.at(index) for index in candidates.spread]

    def of(self, configuration: Configuration) -> float | None:
        """Simulate a configuration, which takes milliseconds, or recall that; None where it cannot be simulated."""
        if self._predictor is None:
            return None
        planned = replace(configuration, engine=self._engine)
        if planned not in self._known:
            try:
                self._known[planned] = float(self._predictor.predict(planned).peak_bytes)
            except PredictionError:
                self._known[planned] = None
        return self._known[planned]

    def at(self, index: int) -> float | None:
        """The same of a candidate."""
        self.indices[index] = None
        return self.of(self._candidates.configuration(index))
