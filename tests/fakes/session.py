"""One `autotune run` on fakes."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from autotune import pipeline
from autotune.records.fingerprint import script_sha256
from autotune.records.study import StudySpec
from autotune.store.claims import Owner
from autotune.tuning.budget import Interruption
from tests.fakes.landscape import ENVIRONMENT, Cluster, Landscape
from tests.fakes.launcher import FakeLauncher
from tests.fakes.store import InMemoryDatabase, InMemoryStore
from tests.fakes.watcher import FakeWatcher

# One cheap plan and one dear one; batch sizes are bound by memory.
CLUSTERS = (Cluster("Block+", 4, 0.8, 0.3, is_layer=True), Cluster("gelu+", 4, 0.2, 0.01))
# Sets of plans that one run measures before anything else.
TOGETHER = ("gelu+:1:-1", "Block+:1:2", "Block+:1:-1")
SOMEBODY_DEAD = dataclasses.replace(Owner.current(), process_start=1)


def new_landscape(**changes):
    return Landscape(clusters=CLUSTERS, noise_cv=0.001, chance=random.Random(0), **changes)


@dataclass
class Session:
    """One `autotune run` of a study; several on one ``database`` are one after the other."""

    folder: Path
    landscape: Landscape = field(default_factory=new_landscape)
    database: InMemoryDatabase = field(default_factory=InMemoryDatabase)
    owner: Owner = field(default_factory=Owner.current)
    changes: dict = field(default_factory=dict)
    before: object = lambda run: None
    outcome_of: object = None
    is_exact: object = lambda configuration: True
    compile_refusal: str = "there is no compiler here"

    def __post_init__(self):
        self.folder.mkdir(exist_ok=True)
        self.script = self.folder / "train.py"
        if not self.script.exists():
            self.script.write_text("import torch\n")
        usual = {"max_trials": 6, "memory_limit_bytes": self.landscape.limit_bytes}
        self.spec = StudySpec(script=str(self.script), **{**usual, **self.changes})
        self.facts = dataclasses.replace(
            self.landscape.facts,
            script_sha256=script_sha256(str(self.script)),
            fork_refusal="",
            compile_refusal=self.compile_refusal,
        )
        self.interruption = Interruption()
        self.watcher = FakeWatcher()
        self.store = InMemoryStore(self.database, owner=self.owner)
        self.study = self.store.open("a study") if "a study" in self.store else self.store.create("a study", self.spec)
        self.launcher = FakeLauncher(
            self.outcome_of or self.landscape.measure,
            environment=ENVIRONMENT,
            facts=self.facts,
            root=self.folder / "runs",
            before=self.before,
            is_exact=self.is_exact,
        )

    def tune(self, study=None):
        return pipeline.tune(
            study or self.study,
            launcher=self.launcher,
            watcher=self.watcher,
            interruption=self.interruption,
            runs=self.folder / "runs",
        )

    def again(self, **changes):
        """The next session on the same database."""
        return dataclasses.replace(self, **changes)

    @property
    def searched(self):
        """The configurations of the search's runs, without discovery and finalists."""
        repetitions = len(self.watcher.repetitions)
        measured = [run for run in self.launcher.runs if run.request.mode == "measure"]
        runs = measured[:-repetitions] if repetitions else measured
        return [configuration.key for run in runs for configuration in run.request.configurations]


def states(session):
    return Counter(trial.state for trial in session.study.optuna.get_trials(deepcopy=False))
