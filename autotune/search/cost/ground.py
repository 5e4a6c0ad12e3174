"""The ground of a study, which does not change: all that its cost model and its search go by, beside the trials."""

from __future__ import annotations

from ...records.facts import Facts
from ...verdict.aim import Aim
from ..candidates import Candidates
from ..space import Space
from .features import Features, Featuring
from .simulated import Predictions


class Ground:
    """The space of a study, its candidates, the facts of discovery, the aim, and the simulations.

    ``least_steps`` are the optimizer steps that a trial takes at the least.
    """

    def __init__(self, space: Space, facts: Facts, aim: Aim, *, least_steps: int = 1) -> None:
        self.space, self.facts, self.aim = space, facts, aim
        self.least_steps = least_steps
        self.candidates = Candidates(space)
        self.predictions = Predictions(facts, space, self.candidates)
        self._features: dict[float, tuple[Featuring, Features]] = {}

    def features(self, step_time_s: float) -> tuple[Featuring, Features]:
        """Return what makes features, and those of all candidates, where a step of the script takes so long.

        They are kept until it is another one: making them takes a while.
        """
        if step_time_s not in self._features:
            featuring = Featuring(self.space, self.facts, step_time_s)
            self._features = {step_time_s: (featuring, featuring.of_values(self.candidates.values))}
        return self._features[step_time_s]
