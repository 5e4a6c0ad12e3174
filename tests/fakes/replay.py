"""A whole study on a synthetic landscape, with a real Optuna study in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

import optuna

from autotune.records.outcome import Measured
from autotune.records.study import Objective, StudySpec, Trial
from autotune.search import optuna_trials
from autotune.search.search import Search
from autotune.search.space import Space, build_space
from autotune.verdict.aim import Aim
from autotune.verdict.finalists import finalists
from tests.fakes.landscape import ENVIRONMENT, Landscape

SPEC = StudySpec(script="train.py", seed=1)


def new_study():
    return optuna.create_study(directions=["maximize", "minimize"])


@dataclass
class Replay:
    """A study on a landscape: runs what is asked, as the pipeline does."""

    landscape: Landscape
    spec: StudySpec = SPEC
    optuna: optuna.Study = field(default_factory=new_study)
    runs: list = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)

    def __post_init__(self):
        self.space: Space = build_space(self.landscape.facts, self.spec)
        self.search = self.new_search()
        self.finish(self.search.add_baseline(self.measure(self.landscape.baseline)), self.landscape.baseline)

    def new_search(self):
        return Search(
            self.optuna, self.space, self.landscape.facts, self.spec, self.landscape.limit_bytes, history=self.trials
        )

    def measure(self, configuration):
        self.outcome = self.landscape.measure(configuration)
        return self.outcome

    def finish(self, number, configuration):
        self.trials.append(Trial(number, configuration, "finished", self.outcome))

    def run(self, asked):
        """Measure a run's trials in order; the first failure ends it."""
        self.runs.append([one.configuration for one in asked])
        for position, one in enumerate(asked):
            self.search.tell(one.number, self.measure(one.configuration), ENVIRONMENT)
            self.finish(one.number, one.configuration)
            if not isinstance(self.outcome, Measured):
                for unreached in asked[position + 1 :]:
                    optuna_trials.set_free(self.optuna, unreached.number)
                return

    def to_the_end(self):
        while asked := self.search.ask():
            self.run(asked)
        return self

    @property
    def keys(self):
        return [trial.configuration.key for trial in self.trials]

    @property
    def found(self):
        """The true rate of the winner, as a share of the best there is."""
        chosen = finalists(self.trials, self.landscape.facts, Aim(Objective(), self.landscape.limit_bytes)) or (
            self.landscape.baseline,
        )
        best = self.landscape.best(self.space.configurations())
        return max(self.landscape.samples_per_s(configuration) for configuration in chosen) / best
