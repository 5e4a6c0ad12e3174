"""What does not change in a study: all that its cost model and its search go by, beside the trials."""

from __future__ import annotations

from ...records import Facts
from ...verdict.aim import Aim
from ..candidates import Candidates
from ..space import Space
from .features import CandidateFeatures
from .simulated import Predictions

__all__ = ["Ground"]


class Ground:
    """What may be tried, what discovery found, the aim, and the simulations.

    ``least_steps`` are the optimizer steps that a trial takes at the least.
    """

    def __init__(self, space: Space, facts: Facts, aim: Aim, *, least_steps: int = 1) -> None:
        self.space, self.facts, self.aim = space, facts, aim
        self.least_steps = least_steps
        self.candidates = Candidates(space)
        self.features = CandidateFeatures(space, facts, self.candidates)
        self.predictions = Predictions(facts, space, self.candidates)
