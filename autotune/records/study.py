"""A study: what was asked, the trials so far, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .configuration import Configuration
from .engines import Engine
from .environment import Environment
from .facts import Facts
from .objective import Objective
from .outcome import Measured, Outcome
from .proof import Proof
from .run import Measuring

__all__ = ["Comparison", "Repeat", "StudyRecord", "StudySpec", "Trial", "TrialState", "Verdict"]

TrialState = Literal["running", "finished"]


@dataclass(frozen=True)
class StudySpec:
    """Everything a study was asked for, so that it can be resumed from the database alone.

    ``script``, ``working_directory`` and ``python`` are absolute paths. ``arguments`` may hold ``{batch_size}``.
    ``own_batch_size`` is the script's own size for that placeholder. ``batch_sizes`` is the inclusive range to search,
    None for the default around the script's own. ``memory_limit_bytes`` None means what the device has; it is what
    runs may use, ``objective`` what is looked for within it.
    ``start_timeout_s`` is the time a run has until its first training step ends, ``trial_timeout_s`` the time each
    trial has from then on. ``max_trials`` counts search trials, failed ones included. ``plans_first`` are tried before
    anything else: each an entry as in ``mem_opt.json``, a plan or a comma-joined combination. ``choices`` are names of
    the engine's that may be tried both ways.
    """

    script: str
    arguments: tuple[str, ...] = ()
    working_directory: str = "."
    python: str = ""
    engine: Engine = "aot"
    memory_limit_bytes: int | None = None
    objective: Objective = field(default_factory=Objective)
    time_budget_s: float = 600.0
    max_trials: int = 60
    own_batch_size: int | None = None
    batch_sizes: tuple[int, int] | None = None
    devices: tuple[int, ...] = ()
    sampler: Literal["model", "tpe", "gp", "nsga2", "random"] = "model"
    seed: int = 0
    start_timeout_s: float = 300.0
    trial_timeout_s: float = 120.0
    finalist_rounds: int = 3
    plans_first: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    measuring: Measuring = field(default_factory=Measuring)

    @property
    def leaves_untouched(self) -> bool:
        """Whether all that it may try is the script as it stands, but for its batch size."""
        return self.engine == "eager" and not self.choices


@dataclass(frozen=True)
class Trial:
    """One trial of a study. ``number`` is Optuna's; the outcome is None while it runs.

    Times are seconds since the epoch. ``run_directory`` holds the run's logs; ``recovered`` says that its owner died
    and the configuration was enqueued again under another number.
    """

    number: int
    configuration: Configuration
    state: TrialState
    outcome: Outcome | None = None
    environment: Environment | None = None
    started_at: float = 0.0
    finished_at: float | None = None
    run_directory: str = ""
    recovered: bool = False

    @property
    def measured(self) -> Measured | None:
        """The outcome if it is a measurement."""
        return self.outcome if isinstance(self.outcome, Measured) else None


@dataclass(frozen=True)
class Repeat:
    """A finalist, or the baseline beside it, measured again in a fresh process: round by round, interleaved.

    ``final`` numbers the finals of a study: what one process measured in turns, in one go, on one machine. Only rounds
    of one final are compared with each other.
    """

    configuration: Configuration
    round: int
    outcome: Outcome
    environment: Environment | None = None
    run_directory: str = ""
    final: int = 1


@dataclass(frozen=True)
class Comparison:
    """A finalist against the baseline over the interleaved rounds.

    ``speedup`` is the ratio of the medians of samples/s, ``speedup_low`` and ``speedup_high`` its spread over the
    rounds; ``peak_ratio`` and its spread are those of peaks, as the rounds came to them, where ``peak_bytes`` is the
    highest. ``p_value`` is one-sided, of a rank test; ``effect`` is the share of pairs (finalist round, baseline
    round) in which the finalist was better, 0.5 meaning no difference: faster, or smaller where the objective is
    memory. There ``slowdown_p_value`` is that of a rank test for no more of a slowdown than the objective allows.
    """

    configuration: Configuration
    samples_per_s: float
    baseline_samples_per_s: float
    speedup: float
    speedup_low: float
    speedup_high: float
    p_value: float
    effect: float
    peak_bytes: int
    baseline_peak_bytes: int
    peak_ratio: float = 1.0
    peak_ratio_low: float = 1.0
    peak_ratio_high: float = 1.0
    slowdown_p_value: float | None = None


@dataclass(frozen=True)
class Verdict:
    """The answer. ``winner`` is the configuration to run; with ``baseline_best`` it is the baseline itself.

    ``nothing_fits``: no configuration tried, the baseline included, stays under the limit, or the objective's target.
    ``reason`` is one sentence for the screen; ``stop_reason`` says why the search ended. ``proofs`` are the winner's,
    and those of configurations that were better but may not win because theirs failed.
    """

    kind_of_answer: Literal["winner", "baseline_best", "baseline_does_not_fit", "nothing_fits", "undecided"]
    winner: Configuration | None
    reason: str
    stop_reason: str
    memory_limit_bytes: int
    comparisons: tuple[Comparison, ...] = ()
    proofs: tuple[Proof, ...] = ()


@dataclass(frozen=True)
class StudyRecord:
    """A study as it stands in the database: what reports, exports and the command line read."""

    name: str
    spec: StudySpec
    created_at: float
    autotune: str
    facts: Facts | None = None
    trials: tuple[Trial, ...] = ()
    repeats: tuple[Repeat, ...] = ()
    verdict: Verdict | None = None
    bundles: tuple[str, ...] = ()

    @property
    def baseline(self) -> Trial | None:
        """The measured trial of the script as it stands."""
        if self.facts is None:
            return None
        key = self.facts.baseline.key
        return next((trial for trial in self.trials if trial.configuration.key == key and trial.measured), None)
