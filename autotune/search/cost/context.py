"""The ground of a study: all that its cost model and its search go by beside the trials; it does not change."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from ...errors import PredictionError
from ...predict.prediction import Predictor
from ...records.configuration import Configuration
from ...records.facts import Facts
from ...verdict.aim import Aim
from ..candidates import Candidates
from ..space import Space
from .features import Features, Featuring


class Predictions:
    """A script's simulations, each made once; none where its facts cannot be simulated.

    Attributes:
        works: Whether some configurations from all over the space can be simulated.
        indices: The candidates simulated so far, in that order, as keys.
    """

    def __init__(self, facts: Facts, space: Space, candidates: Candidates) -> None:
        self._engine, self._candidates = space.engine, candidates
        self._known: dict[Configuration, float | None] = {}
        self._predictor: Predictor | None = None
        with suppress(PredictionError):
            self._predictor = Predictor(facts)
        self.indices: dict[int, None] = {}
        self.works = self.of(space.baseline) is not None and None not in [self.at(one) for one in candidates.spread]

    def of(self, configuration: Configuration) -> float | None:
        """Simulate a configuration, which takes milliseconds, or recall that; None where it cannot be simulated."""
        if self._predictor is None:
            return None
        planned = replace(configuration, engine=self._engine)
        if planned not in self._known:
            self._known[planned] = None
            with suppress(PredictionError):
                self._known[planned] = float(self._predictor.predict(planned).peak_bytes)
        return self._known[planned]

    def at(self, index: int) -> float | None:
        """Do the same for a candidate."""
        self.indices[index] = None
        return self.of(self._candidates.configuration(index))


class SearchContext:
    """The ground of a study, of whose trials each takes ``least_steps`` optimizer steps at the least."""

    def __init__(self, space: Space, facts: Facts, aim: Aim, *, least_steps: int = 1) -> None:
        self.space, self.facts, self.aim = space, facts, aim
        self.least_steps = least_steps
        self.candidates = Candidates(space)
        self.predictions = Predictions(facts, space, self.candidates)
        self._features: dict[float, tuple[Featuring, Features]] = {}

    def features(self, step_time_s: float) -> tuple[Featuring, Features]:
        """Return what makes features, and those of all candidates; both are kept until the step time changes."""
        if step_time_s not in self._features:
            featuring = Featuring(self.space, self.facts, step_time_s)
            self._features = {step_time_s: (featuring, featuring.of_values(self.candidates.values))}
        return self._features[step_time_s]
