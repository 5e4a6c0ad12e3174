"""A study: what was asked, the trials so far, and the verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from typing import Literal

from .configuration import Configuration
from .engines import Engine, EngineProperties
from .environment import Environment
from .facts import Facts
from .fingerprint import script_sha256, script_title
from .measurement import Figures
from .outcome import Measured, Outcome
from .proof import Proof
from .run import Measuring
from .units import format_bytes, format_share

Stage = Literal["discovery", "search", "rounds", "proof", "compiled"]


@dataclass(frozen=True)
class StageTime:
    """The runs of one stage, added up; runs of several devices at once count each. All times are in seconds.

    ``forked`` of the ``runs`` came out of a fork server, the others are fresh processes. ``start_s`` is up to the first
    training call: the process, the imports, what the script prepares; also all of a run that came to no training call.
    ``compile_s`` is the part of warm-ups in whose steps something was traced or compiled, ``warmup_s`` is the rest of
    them, ``measure_s`` the steps that count, or all steps of a proof. ``describe_s`` is what discovery takes after the
    measurement. ``rest_s`` is what is left: waiting for a node, failed trials, switches between trials, the end.
    """

    stage: Stage
    runs: int = 0
    forked: int = 0
    start_s: float = 0.0
    compile_s: float = 0.0
    warmup_s: float = 0.0
    measure_s: float = 0.0
    describe_s: float = 0.0
    rest_s: float = 0.0

    @property
    def total_s(self) -> float:
        """All of it."""
        return self.start_s + self.compile_s + self.warmup_s + self.measure_s + self.describe_s + self.rest_s

    def __add__(self, other: StageTime) -> StageTime:
        """Both together, of one stage."""
        assert self.stage == other.stage
        added = {one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(self)[1:]}
        return replace(self, **added)


@dataclass(frozen=True)
class TimeSpent:
    """The time from the beginning of a study to its verdict, over all of its sessions that came to one.

    ``between_s`` of the ``total_s`` no run was at work: the search decides, the database is written.
    """

    total_s: float = 0.0
    between_s: float = 0.0
    stages: tuple[StageTime, ...] = ()

    def __add__(self, other: TimeSpent) -> TimeSpent:
        """Both together."""
        stages = {one.stage: one for one in self.stages}
        for one in other.stages:
            stages[one.stage] = stages.get(one.stage, StageTime(one.stage)) + one
        return TimeSpent(self.total_s + other.total_s, self.between_s + other.between_s, tuple(stages.values()))


LIKELY = 0.8
"""The least chance of fitting at which something is called likely to: a judgement."""


@dataclass(frozen=True)
class Fit:
    """A configuration that may fit, with what is expected of it.

    ``rate_sd`` and ``peak_sd`` are standard deviations of what is expected, as shares. ``chance`` is that of fitting.
    ``is_measured``: it is the script as it is, and the figures are those of discovery.
    """

    configuration: Configuration
    samples_per_s: float
    rate_sd: float
    peak_bytes: int
    peak_sd: float
    is_measured: bool = False
    chance: float = 1.0

    @property
    def peak_interval(self) -> tuple[int, int]:
        """Return what the peak should lie between, in bytes, in 95 of 100 cases."""
        reach = 1.96 * self.peak_sd * self.peak_bytes
        return max(0, int(self.peak_bytes - reach)), int(self.peak_bytes + reach)


def format_chance(chance: float) -> str:
    """Write a chance as a percentage; what was not measured is never certain."""
    return f"{min(max(chance, 0.01), 0.99):.0%}"


Goal = Literal["throughput", "memory"]


@dataclass(frozen=True)
class Objective:
    """The criterion by which one setting is a better answer than another.

    ``throughput``: the most samples per second, within ``target_memory_bytes`` where there is such a target. Runs may
    use all of the memory limit even so. ``memory``: the lowest peak at no more than ``max_slowdown``, a share, fewer
    samples per second than the script as it stands. Where the script does not fit, the fastest setting found takes its
    place.
    """

    goal: Goal = "throughput"
    max_slowdown: float = 0.03
    target_memory_bytes: int | None = None

    def __str__(self) -> str:
        if self.goal == "memory":
            return f"least memory at no more than {format_share(self.max_slowdown)} fewer samples/s"
        target = self.target_memory_bytes
        return "most samples/s" + ("" if target is None else f" within {format_bytes(target)}")

    def limit_bytes(self, memory_limit_bytes: int) -> int:
        """Return what an answer may peak at: the target, or as much as a run may use."""
        return min(memory_limit_bytes, self.target_memory_bytes or memory_limit_bytes)


Sampler = Literal["model", "tpe", "random"]
TrialState = Literal["running", "finished"]


Found = Literal["win", "no_better", "hopeless", "unresolved", "open", "failed"]
"""What rounds show of a finalist. ``no_better`` is shown; ``hopeless``: unlikely to be shown better by more rounds;
``unresolved``: all rounds were measured and do not tell, or they scatter by whole factors; ``open``: more rounds may
tell; ``failed``: a round failed, thrashed or passed the limit.
"""


@dataclass(frozen=True)
class StudySpec:
    """Everything a study was asked for, so that it can be resumed from the database alone.

    ``script``, ``working_directory`` and ``python`` are absolute paths; ``module`` is the script's name where it is run
    as ``python -m`` runs it. ``arguments`` may hold ``{batch_size}`` and ``{accumulation:4}``, with the script's own
    number.
    ``own_batch_size`` is the script's own size for that placeholder. ``batch_sizes`` is the inclusive range to search,
    None for the default around the script's own; ``keep_global_batch`` leaves those that divide the script's global
    batch, and has the accumulation follow. ``memory_limit_bytes`` None means what the device has; it is what
    runs may use, ``objective`` what is looked for within it.
    ``start_timeout_s`` is the time a run has until its first training step ends, ``trial_timeout_s`` the time each
    trial has from then on. ``max_trials`` counts search trials, failed ones included. ``plans_first`` are tried before
    anything else: each an entry as in ``mem_opt.json``, a plan or a comma-joined combination. ``choices`` are names of
    the engine's that may be tried both ways. ``finalist_rounds`` is how often finalists are measured again at most.
    ``leaves_files``: files that runs change are not put back. ``max_error`` is how far outputs of a model that is
    converted may be from its own, in units of the largest value of that output.
    """

    script: str
    arguments: tuple[str, ...] = ()
    working_directory: str = "."
    python: str = ""
    module: str = ""
    engine: Engine = "aot"
    memory_limit_bytes: int | None = None
    objective: Objective = field(default_factory=Objective)
    time_budget_s: float = 600.0
    max_trials: int = 60
    own_batch_size: int | None = None
    batch_sizes: tuple[int, int] | None = None
    devices: tuple[int, ...] = ()
    sampler: Sampler = "model"
    seed: int = 0
    start_timeout_s: float = EngineProperties.start_timeout_s
    trial_timeout_s: float = EngineProperties.trial_timeout_s
    finalist_rounds: int = 14
    plans_first: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    keep_global_batch: bool = False
    measuring: Measuring = field(default_factory=Measuring)
    leaves_files: bool = False
    max_error: float = 0.05

    @property
    def title(self) -> str:
        """Return what people call the script: a module's name, or a path."""
        return script_title(self.script, self.module, self.arguments)

    def script_sha256(self) -> str:
        """The hash of the script as it is now."""
        return script_sha256(self.script, self.arguments, self.working_directory)


@dataclass(frozen=True)
class Trial:
    """One trial of a study; the outcome is None while it runs.

    ``number`` is Optuna's; people see those of ``StudyRecord.shown``. Times are seconds since the epoch.
    ``run_directory`` holds the run's logs; ``recovered`` says that it was given back before it was measured and the
    configuration was enqueued again under another number.
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
    """A finalist, or the baseline beside it, measured again in a process of its own: round by round, interleaved.

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
    """A finalist against the baseline, compared within each round that has both of them.

    ``figures`` and ``baseline_figures`` are of all rounds in which each was measured; None where none was, and in
    studies of older versions. ``speedup`` is the geometric mean of the ratios within rounds. It lies between
    ``speedup_low`` and ``speedup_high`` by the test of the final (``verdict/sequential.py``); both are None before
    rounds tell anything. ``peak_ratio`` and its bounds say the same of peaks. ``found`` is what the rounds show of what
    the objective goes by. Where that is memory, ``found_fast`` is what they show of the speed: ``win`` where it is no
    slower than allowed.
    """

    configuration: Configuration
    speedup: float
    speedup_low: float | None
    speedup_high: float | None
    figures: Figures | None = None
    baseline_figures: Figures | None = None
    peak_ratio: float = 1.0
    peak_ratio_low: float | None = None
    peak_ratio_high: float | None = None
    rounds: int = 0
    found: Found = "open"
    found_fast: Found | None = None

    @property
    def is_win(self) -> bool:
        """Return whether the rounds show that it is better, and no slower than may be."""
        return self.found == "win" and self.found_fast in (None, "win")

    @property
    def is_open(self) -> bool:
        """Return whether more rounds may still tell."""
        return not self.is_lost and "open" in (self.found, self.found_fast)

    @property
    def is_lost(self) -> bool:
        """Return whether it cannot win any more, or is unlikely to."""
        lost = ("no_better", "hopeless", "unresolved", "failed")
        return self.found in lost or self.found_fast in lost


@dataclass(frozen=True)
class CompiledRun:
    """One run of the answer's setting under an engine that compiles, at the end of a study that was not allowed it.

    ``choice`` is the choice that would have allowed it. ``answer`` is the setting that was the answer then.
    ``configuration`` is that setting with those of its plans that the engine knows by the same names. Where memory may
    not suffice, all blocks are recomputed in place of the others.
    """

    choice: str
    answer: Configuration
    configuration: Configuration
    outcome: Outcome


AnswerKind = Literal["winner", "baseline_best", "baseline_does_not_fit", "nothing_fits", "undecided"]


@dataclass(frozen=True)
class Verdict:
    """The answer. ``winner`` is the configuration to run; with ``baseline_best`` it is the baseline itself.

    ``nothing_fits``: no configuration tried, the baseline included, stays under the limit, or the objective's target.
    ``reason`` is one sentence for the screen, ``remarks`` say what else bears on it, such as a busy machine, and
    ``sentences`` are all of these. ``is_drowned``: other programs may have slowed the best down below the script, so it
    is not the winner. ``stop_reason`` says why the search ended. ``proofs`` are the winner's, and those of
    configurations that were better but may not win because theirs failed. ``needed_s`` is the time budget that a later
    session needs to confirm and prove the winner, None where nothing of that is left to do. ``spent`` is what the
    answer took. ``compiled`` is what its setting came to compiled; None where that was not tried.
    """

    kind_of_answer: AnswerKind
    winner: Configuration | None
    reason: str
    stop_reason: str
    memory_limit_bytes: int
    comparisons: tuple[Comparison, ...] = ()
    proofs: tuple[Proof, ...] = ()
    needed_s: float | None = None
    spent: TimeSpent | None = None
    compiled: CompiledRun | None = None
    remarks: tuple[str, ...] = ()
    is_drowned: bool = False

    @property
    def sentences(self) -> str:
        """The reason, and what else bears on it."""
        return " ".join((self.reason, *self.remarks))


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

    @property
    def shown(self) -> tuple[Trial, ...]:
        """The trials as people see them: numbered one after the other as they ended, those that still run last.

        Optuna's numbers skip: it numbers a trial when it is asked for, and what a run does not reach is given back and
        asked for again. Here what was given back is left out.
        """
        own = [trial for trial in self.trials if not trial.recovered]
        own.sort(key=lambda one: (one.outcome is None, one.finished_at or math.inf, one.number))
        return tuple(replace(trial, number=number) for number, trial in enumerate(own))

    def shown_number(self, number: int) -> int:
        """The number by which people know the trial that has this one with Optuna."""
        key = next(trial.configuration.key for trial in self.trials if trial.number == number)
        return next(trial.number for trial in self.shown if trial.configuration.key == key)
