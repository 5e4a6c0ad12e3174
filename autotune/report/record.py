"""The record of a study that a report shows: frozen, versioned, and shared by terminal, page, trackers and ``--json``.

A report is passed on, so the folders of the machine that ran the study are left out. Every string in it prints (see
``records.printable``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..records.configuration import Configuration
from ..records.engines import Engine, Target
from ..records.environment import DeviceConditions, Environment
from ..records.facts import (
    AccumulationControl,
    BatchControl,
    ClusterFacts,
    EpochFacts,
    OptimizerFacts,
    OutsideFacts,
    PrecisionFacts,
    RootFacts,
    ShardingFacts,
)
from ..records.figures import Figures
from ..records.graph import Calibration
from ..records.inference import InferenceFacts
from ..records.look_ahead import LookAhead
from ..records.matrix import PhaseMemory
from ..records.measurement import MemorySplit
from ..records.outcome import Outcome
from ..records.proof import Proof
from ..records.stack import GlobalBatch
from ..records.study import AnswerKind, Comparison, Remark, StudySpec, TimeSpent
from ..verdict.gain import Gain

REPORT_VERSION = 6


@dataclass(frozen=True, kw_only=True)
class DescribedScript:
    """The facts that discovery alone knows of a script, see ``Facts``; before it has ended they are None or empty."""

    environment: Environment | None = None
    split: MemorySplit | None = None
    memory_matrix: tuple[PhaseMemory, ...] = ()
    plans: tuple[ClusterFacts, ...] = ()  # the clusters that can be recomputed
    outside: tuple[OutsideFacts, ...] = ()  # modules that no plan reaches
    dimensions: dict[str, int]
    batch_size: int | None = None  # the script's own
    tokens_per_sample: float | None = None  # in the script's batches, padding included; None if that is not known
    batch_control: BatchControl | None = None
    accumulation_control: AccumulationControl | None = None
    epoch: EpochFacts | None = None
    ahead: LookAhead | None = None  # None where no batch was read ahead
    roots: tuple[RootFacts, ...] = ()
    optimizers: tuple[OptimizerFacts, ...] = ()
    precision: PrecisionFacts | None = None
    sharding: ShardingFacts | None = None  # None where nothing is sharded
    notes: tuple[str, ...] = ()
    calibration: Calibration | None = None
    fork_refusal: str = ""
    per_sample: dict[str, float]
    undescribed: Outcome | None = None
    target: Target = "script"
    inference: InferenceFacts | None = None


@dataclass(frozen=True)
class ReportedStudy:
    """The identity of a study; ``created_at`` in seconds since the epoch, ``script`` without its folder."""

    name: str
    created_at: float
    autotune: str
    script: str


@dataclass(frozen=True)
class ReportedAnswer:
    """The verdict, and the runs that it rests on."""

    answer: AnswerKind
    reason: Remark
    stop_reason: str
    is_confirmed: bool  # measured in repetitions and proven, or the script itself
    proof: Proof | None
    measured_in: Literal["repetitions", "trials"]
    num_measured: int
    num_contended: int  # of the measured runs, while other programs were busy
    remarks: tuple[Remark, ...] = ()

    @property
    def sentences(self) -> str:
        """Return the reason, and what else bears on it."""
        return " ".join(one.text for one in (self.reason, *self.remarks))


@dataclass(frozen=True)
class Launch:
    """The command that runs the answer, and its parts; ``bundle`` and ``command`` are None if nothing was exported."""

    bundle: str | None
    script: str
    arguments: tuple[str, ...]
    command: str | None


@dataclass(frozen=True, kw_only=True)
class ReportedSetting(Figures):
    """The script as it is, or the answer, with what was measured of it.

    ``text`` is the exact setting, ``recomputed`` says in words what it recomputes. ``accumulation`` is the number of
    micro-batches per step, ``accumulation_for_same_global_batch`` the one that would keep the script's global batch,
    None where no whole number does.
    """

    configuration: Configuration
    text: str
    recomputed: str
    sized: str  # what smaller batches recompute, in words; empty for the same
    batch_size: int | None
    accumulation: float
    accumulation_for_same_global_batch: float | None
    peak_bytes: int | None


@dataclass(frozen=True)
class ReportedCompiled:
    """The answer's setting in one run compiled, see ``records.CompiledRun``."""

    choice: str
    setting: str
    words: str  # the setting in words
    outcome: str  # `measured` or the kind of a failure
    cause: str  # of a failure
    figures: Figures | None
    gain: float | None  # of `verdict.compiled_gain`


@dataclass(frozen=True)
class GlobalBatches:
    """The batches of an optimizer step in the script as it is, and in the answer; None where no batch size is known."""

    before: GlobalBatch | None
    after: GlobalBatch | None


@dataclass(frozen=True, kw_only=True)
class Finalist(Comparison):
    """A finalist against the script; ``text`` is its setting."""

    text: str


@dataclass(frozen=True)
class Point:
    """One trial."""

    number: int
    configuration: str
    engine: Engine
    level: int
    batch_size: int | None
    plans: tuple[str, ...]
    is_baseline: bool
    is_winner: bool
    outcome: str  # `measured`, the kind of a failure, or the trial's state before it has one
    cause: str = ""
    advice: str = ""
    figures: Figures | None = None
    needed_bytes: int | None = None  # None where a failure did not tell
    foreseen_bytes: int | None = None  # None where discovery does not foresee the peak
    fits: bool = False  # it may be the answer as far as memory goes
    on_front: bool = False  # no other trial was as fast with no more memory
    thrashed: bool = False
    diverged: bool = False
    notes: tuple[str, ...] = ()
    conditions: DeviceConditions | None = None  # of the GPU meanwhile
    started_at: float = 0.0  # in seconds since the epoch
    took_s: float | None = None

    @property
    def samples_per_s(self) -> float | None:
        """Return samples per second; None where the trial was not measured."""
        return None if self.figures is None else self.figures.samples_per_s

    @property
    def peak_bytes(self) -> int | None:
        """Return the peak that a limit is held against; None where it was not measured."""
        return None if self.figures is None else self.figures.peaks.fit_bytes

    @property
    def may_win(self) -> bool:
        """Return whether nothing that was seen stands against it as the answer."""
        return self.fits and not self.thrashed and not self.diverged


@dataclass(frozen=True)
class StepMemory:
    """The memory of a step of the script as it is, or of the answer, in bytes at as many moments."""

    name: str
    parameters: int  # all the time, buffers among them
    optimizer_state: int  # all the time
    rest: int  # all the time: what the measured peak has on top of what is simulated
    gradients: tuple[int, ...]
    block_names: tuple[str, ...]
    blocks: tuple[tuple[int, ...], ...]  # what repeated blocks have handed to the backward
    outside: tuple[int, ...]  # the same of what is in no block
    passing: tuple[int, ...]  # what operators hold while they run
    num_forward: int  # moments before the backward

    @property
    def totals(self) -> tuple[int, ...]:
        """Return all of it, moment by moment."""
        always = self.parameters + self.optimizer_state + self.rest
        return tuple(
            always + sum(held) for held in zip(self.gradients, self.outside, self.passing, *self.blocks, strict=True)
        )


PartKind = Literal["model", "graph", "block", "outside", "operator", "others"]


@dataclass(frozen=True, kw_only=True)
class ModelPart:
    """A part of the script's model, or several alike in one.

    ``kind``: the whole ``model``, a graph of several, a repeated block by the ``name`` of its class, what is outside of
    blocks, all operators of one kind by its name, or ``others``, which are too small for parts of their own.
    """

    kind: PartKind
    name: str
    kept_bytes: int  # handed to the backward in the script as it is
    planned_bytes: int | None  # in the answer at the script's batch size; None without one
    num_operators: int  # those that make a tensor of their own
    num_recomputed: int  # those that the backward runs again
    number: int = 1  # so many parts, of the `of` ones of this name beside it
    first: int = 1  # the number of the first of these
    last: int = 1
    of: int = 1
    parts: tuple[ModelPart, ...] = ()  # they add up to it; none of operators, of others, and of what keeps nothing


@dataclass(frozen=True)
class ModelTree:
    """The script's model by what its parts hand to the backward in a training call."""

    whole: ModelPart
    batch_size: int | None  # the script's
    planned_bytes_at_own_batch: int | None  # of the answer; None where nothing tells


@dataclass(frozen=True, kw_only=True)
class Report(DescribedScript):
    """A study at any stage of it; what is not known yet is None or empty."""

    version: int = REPORT_VERSION
    study: ReportedStudy
    verdict: ReportedAnswer | None
    launch: Launch
    limit_bytes: int | None  # what trials may use
    target_bytes: int | None  # what the answer may use, where that is less
    baseline: ReportedSetting | None
    winner: ReportedSetting | None
    gain: Gain | None
    global_batch: GlobalBatches
    cautions: tuple[str, ...]  # what the script would do wrong with the winner's batch size
    finalists: tuple[Finalist, ...]
    points: tuple[Point, ...]
    steps: tuple[StepMemory, ...]  # over a step; empty where graphs cannot be simulated
    model: ModelTree | None  # None where graphs cannot be simulated
    settings: StudySpec  # without folders and arguments
    spent: TimeSpent | None = None
    compiled: ReportedCompiled | None = None  # what compiling the answer came to, though it was not allowed


def winner_word(report: Report) -> str:
    """Return the word for the answer's setting: ``winner``, or ``best so far`` while nothing confirmed it."""
    return "winner" if report.verdict is None or report.verdict.is_confirmed else "best so far"
