"""A study: what was asked, the trials so far, and the verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from typing import Literal

from .configuration import Configuration
from .engines import Engine, EngineProperties
from .environment import Environment
from .facts import Facts
from .figures import Figures
from .fingerprint import script_sha256, script_title
from .launchers import started_processes
from .look_ahead import READING_S
from .measurement import Measurement
from .measuring import Measuring
from .outcome import Outcome
from .proof import Proof
from .units import format_bytes, format_share

Stage = Literal["discovery", "search", "confirmation", "proof", "compiled"]


@dataclass(frozen=True)
class StageTime:
    """The runs of one stage and their seconds, added up; runs of several devices at once count each."""

    stage: Stage
    runs: int = 0
    forked: int = 0  # out of a fork server; the others are fresh processes
    start_s: float = 0.0  # up to the first training call, or all of a run without one
    compile_s: float = 0.0  # of warm-ups, in steps in which something was traced or compiled
    warmup_s: float = 0.0  # the rest of warm-ups
    measure_s: float = 0.0  # of steps that count, or of all steps of a proof
    describe_s: float = 0.0  # of discovery, after the measurement
    rest_s: float = 0.0  # waiting for a node, failed trials, switches between trials, the end

    @property
    def total_s(self) -> float:
        """Return all of it."""
        return self.start_s + self.compile_s + self.warmup_s + self.measure_s + self.describe_s + self.rest_s

    def __add__(self, other: StageTime) -> StageTime:
        assert self.stage == other.stage
        added = {one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(self)[1:]}
        return replace(self, **added)


@dataclass(frozen=True)
class TimeSpent:
    """The time from a study's beginning to its verdict, over all sessions; ``between_s`` of it without any run."""

    total_s: float = 0.0
    between_s: float = 0.0
    stages: tuple[StageTime, ...] = ()

    def __add__(self, other: TimeSpent) -> TimeSpent:
        stages = {one.stage: one for one in self.stages}
        for one in other.stages:
            stages[one.stage] = stages.get(one.stage, StageTime(one.stage)) + one
        return TimeSpent(self.total_s + other.total_s, self.between_s + other.between_s, tuple(stages.values()))


LIKELY = 0.8
"""The least chance of fitting at which something is called likely to: a judgement."""


@dataclass(frozen=True)
class Fit:
    """A configuration with what is expected of it, and its chance to fit."""

    configuration: Configuration
    samples_per_s: float
    rate_sd: float  # a standard deviation, as a share
    peak_bytes: int
    peak_sd: float  # a standard deviation, as a share
    is_measured: bool = False  # the script as it is, with the figures of discovery
    chance: float = 1.0

    @property
    def peak_interval(self) -> tuple[int, int]:
        """Return the 95 % interval of the expected peak, in bytes."""
        reach = 1.96 * self.peak_sd * self.peak_bytes
        return max(0, int(self.peak_bytes - reach)), int(self.peak_bytes + reach)


def format_chance(chance: float) -> str:
    """Write a chance as a percentage; what was not measured is never certain."""
    return f"{min(max(chance, 0.01), 0.99):.0%}"


Goal = Literal["throughput", "memory"]


@dataclass(frozen=True)
class Objective:
    """The criterion by which one setting is a better answer than another: most samples per second, or the lowest peak.

    Where the script as it stands does not fit, the fastest setting found takes its place.
    """

    goal: Goal = "throughput"
    max_slowdown: float = 0.03  # of goal `memory`: the largest loss of samples/s to the script, as a share
    target_memory_bytes: int | None = None  # of goal `throughput`: the answer's limit, below that of runs

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


Found = Literal["win", "no_better", "futile", "unresolved", "open", "failed"]
"""What repetitions show of a finalist. ``no_better`` is shown; ``futile``: unlikely to be shown better by more
repetitions; ``unresolved``: all repetitions were measured and do not tell, or they scatter by whole factors; ``open``:
more repetitions may tell; ``failed``: a repetition failed, thrashed or passed the limit.
"""


@dataclass(frozen=True)
class StudySpec:
    """Everything a study was asked for, so that it can be resumed from the database alone."""

    script: str  # an absolute path, as are `working_directory` and `python`
    arguments: tuple[str, ...] = ()  # may hold `{batch_size}`, and `{accumulation:4}` with the script's own number
    working_directory: str = "."
    python: str = ""
    module: str = ""  # the script's name where `python -m` runs it
    engine: Engine = "aot"
    memory_limit_bytes: int | None = None  # of runs; None for what the device has
    objective: Objective = field(default_factory=Objective)
    time_budget_s: float = 600.0
    max_trials: int = 60  # of the search, failed ones included
    own_batch_size: int | None = None  # the script's own size for the placeholder `{batch_size}`
    batch_sizes: tuple[int, int] | None = None  # the inclusive range to search; None for one around the script's own
    devices: tuple[int, ...] = ()  # GPUs of this machine; none are named where the script chooses by itself
    gpus_per_run: int | None = None  # None for as many as processes start; 0 on a cluster for none
    sampler: Sampler = "model"
    seed: int = 0
    start_timeout_s: float = EngineProperties.start_timeout_s  # of a run until its first training step ends
    trial_timeout_s: float = EngineProperties.trial_timeout_s  # of each trial from then on
    finalist_repetitions: int = 14  # the most repetitions of a confirmation
    plans_first: tuple[str, ...] = ()  # tried before anything else; entries as in `mem_opt.json`
    choices: tuple[str, ...] = ()  # may be tried both ways
    keep_global_batch: bool = False  # only batch sizes that divide the script's global batch; the accumulation follows
    measuring: Measuring = field(default_factory=Measuring)
    leaves_files: bool = False  # files that runs change are not put back
    look_ahead: int = 0  # so many batches are read ahead, to measure with what an epoch holds
    max_error: float = 0.05  # of outputs of a converted model, in units of an output's largest value

    @property
    def title(self) -> str:
        """Return what people call the script: a module's name, or a path."""
        return script_title(self.script, self.module, self.arguments)

    @property
    def trial_deadline_s(self) -> float:
        """Return the seconds of each trial from its first step on; reading an epoch ahead comes on top."""
        return self.trial_timeout_s + (READING_S if self.look_ahead else 0.0)

    @property
    def least_steps(self) -> int:
        """Return the least optimizer steps that a trial usually takes."""
        return self.measuring.least_steps_in_cycles if self.look_ahead else self.measuring.least_steps

    @property
    def gpus_of_run(self) -> int:
        """Return how many of the named devices each run has."""
        if self.gpus_per_run is not None:
            return max(1, self.gpus_per_run)
        return started_processes(self.script, self.module, self.arguments) or max(1, len(self.devices))

    @property
    def devices_of_runs(self) -> tuple[tuple[int, ...], ...]:
        """Return the devices of each run that may be made at once; no devices where the script chooses by itself."""
        if not self.devices:
            return ((),)
        size = self.gpus_of_run
        return tuple(self.devices[first : first + size] for first in range(0, len(self.devices), size))

    def script_sha256(self) -> str:
        """Return the hash of the script as it is now."""
        return script_sha256(self.script, self.arguments, self.working_directory)


@dataclass(frozen=True)
class Trial:
    """One trial of a study."""

    number: int  # Optuna's; people see those of `StudyRecord.shown`
    configuration: Configuration
    state: TrialState
    outcome: Outcome | None = None  # None while it runs
    environment: Environment | None = None
    started_at: float = 0.0  # in seconds since the epoch, as is `finished_at`
    finished_at: float | None = None
    run_directory: str = ""
    recovered: bool = False  # given back before it was measured, and enqueued again

    @property
    def measured(self) -> Measurement | None:
        """Return what was measured; None while it runs, and where it failed."""
        return None if self.outcome is None else self.outcome.measurement

    @property
    def samples_per_s(self) -> float:
        """Return the measured samples/s, 0.0 if there are none."""
        return 0.0 if self.measured is None else self.measured.samples_per_s

    @property
    def peak_bytes(self) -> int | None:
        """Return the measured peak that a limit is held against, if there is one."""
        return None if self.measured is None else self.measured.peaks.fit_bytes


@dataclass(frozen=True)
class Repeat:
    """A finalist or the baseline, measured again in a process of its own, in a repetition of a confirmation."""

    configuration: Configuration
    repetition: int
    outcome: Outcome
    environment: Environment | None = None
    run_directory: str = ""
    # Only repetitions of one confirmation are compared: it is measured in turns, in one go, on one machine.
    confirmation: int = 1


@dataclass(frozen=True)
class Comparison:
    """A finalist against the baseline, compared within each repetition that has both of them."""

    configuration: Configuration
    speedup: float  # the geometric mean of the ratios within repetitions
    speedup_low: float | None  # by the test of the confirmation (`verdict/sequential.py`); None before repetitions tell
    speedup_high: float | None
    figures: Figures | None = None  # of all repetitions in which it was measured; None without any
    baseline_figures: Figures | None = None
    peak_ratio: float = 1.0  # of peaks, as `speedup` of speeds
    peak_ratio_low: float | None = None
    peak_ratio_high: float | None = None
    repetitions: int = 0
    found: Found = "open"  # by the objective
    found_fast: Found | None = None  # where the objective is memory: `win` if it is no slower than allowed

    @property
    def is_win(self) -> bool:
        """Return whether the repetitions show that it is better, and no slower than may be."""
        return self.found == "win" and self.found_fast in (None, "win")

    @property
    def is_open(self) -> bool:
        """Return whether more repetitions may still tell."""
        return not self.is_lost and "open" in (self.found, self.found_fast)

    @property
    def is_lost(self) -> bool:
        """Return whether it cannot win any more, or is unlikely to."""
        lost = ("no_better", "futile", "unresolved", "failed")
        return self.found in lost or self.found_fast in lost


@dataclass(frozen=True)
class CompiledRun:
    """One run of the answer's setting under an engine that compiles, at the end of a study that was not allowed it.

    ``choice`` would have allowed it. ``configuration`` is the ``answer`` with those of its plans that the engine knows
    by the same names. Where memory may not suffice, all blocks are recomputed in place of the others.
    """

    choice: str
    answer: Configuration
    configuration: Configuration
    outcome: Outcome


# Reasons for an answer: by its repetitions, by trials, and where there is none. The empty code was stored before codes.
_ByRepetitions = Literal["winner", "no_better", "futile", "unresolved", "too_slow", "unreliable", "unconfirmed"]
_ByTrials = Literal["nothing_better", "fits_instead", "nothing_fits", "disturbed", "machine_too_busy", "only_baseline"]
_None = Literal["not_counted", "baseline_not_measured", "nothing_measured", ""]
# What else bears on an answer.
_OfBaseline = Literal["baseline_does_not_fit", "baseline_failed", "epochs_wait", "loss_not_finite"]
_OfMachine = Literal["allocator_idle", "gpu_throttled", "machine_busy"]
_OfOthers = Literal[
    "batch_size_stays",
    "better_unconfirmed",
    "kernels_not_searched",
    "may_not_fit_again",
    "not_equivalent",
    "plans_not_searched",
    "ranks_differ",
]
RemarkCode = Literal[_ByRepetitions, _ByTrials, _None, _OfBaseline, _OfMachine, _OfOthers]


@dataclass(frozen=True)
class Remark:
    """A sentence or two of an answer; ``code`` tells programs what it says (docs/reference/outcomes.md)."""

    code: RemarkCode
    text: str


AnswerKind = Literal["winner", "baseline_best", "baseline_does_not_fit", "nothing_fits", "undecided"]


@dataclass(frozen=True)
class Verdict:
    """The answer. ``winner`` is the configuration to run; with ``baseline_best`` it is the baseline itself.

    ``nothing_fits``: no configuration tried, the baseline included, stays under the limit, or the objective's target.
    """

    kind_of_answer: AnswerKind
    winner: Configuration | None
    reason: Remark
    stop_reason: str  # why the search ended
    memory_limit_bytes: int
    comparisons: tuple[Comparison, ...] = ()
    proofs: tuple[Proof, ...] = ()  # the winner's, and those of configurations that may not win because theirs failed
    needed_s: float | None = None  # the time budget that confirms and proves the winner; None where it is done
    spent: TimeSpent | None = None
    compiled: CompiledRun | None = None
    remarks: tuple[Remark, ...] = ()  # on what else bears on the answer, such as a busy machine
    is_drowned: bool = False  # other programs may have slowed the best down below the script, so it is not the winner

    @property
    def sentences(self) -> str:
        """Return the reason, and what else bears on it."""
        return " ".join(one.text for one in (self.reason, *self.remarks))


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
        """Return the measured trial of the script as it stands."""
        if self.facts is None:
            return None
        key = self.facts.baseline.key
        return next((trial for trial in self.trials if trial.configuration.key == key and trial.measured), None)

    @property
    def shown(self) -> tuple[Trial, ...]:
        """Number the trials as people see them: one after the other as they ended, those that still run last.

        Left out is what was given back because its run did not reach it: Optuna numbers that anew when it is asked
        again.
        """
        own = [trial for trial in self.trials if not trial.recovered]
        own.sort(key=lambda one: (one.outcome is None, one.finished_at or math.inf, one.number))
        return tuple(replace(trial, number=number) for number, trial in enumerate(own))

    def shown_number(self, number: int) -> int:
        """Return the number by which people know the trial that has this one with Optuna."""
        key = next(trial.configuration.key for trial in self.trials if trial.number == number)
        return next(trial.number for trial in self.shown if trial.configuration.key == key)
