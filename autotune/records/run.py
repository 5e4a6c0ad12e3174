"""The protocol between the controller and a run: ``request.json`` in, ``results.jsonl`` out."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from .audit import Audit
from .configuration import Configuration
from .environment import Environment
from .facts import AccumulationControl, BatchControl, Facts, Located, Preload
from .fingerprint import Fingerprint
from .outcome import Outcome
from .proof import Differences

PROTOCOL_VERSION = 1
# What a description brings is of use in trials, so it may take this share of the time that a study has left.
MOST_OF_BUDGET_TO_DESCRIBE = 1 / 3

STARTER_RANK = -1
"""In the place of a rank: a process that started those that train (``mp.spawn``), and none of them itself."""

# For how many measurements at full length a study's time has to be enough. A judgement.
_TRIALS_IN_A_STUDY = 30


@dataclass(frozen=True)
class GpuMeasuring:
    """Further rules for a GPU, whose clocks are high after it has idled, and fall as it takes power and becomes warm.

    Steps count once they have run for ``warmup_s`` since the last one that compiled, or once
    ``Measuring.max_warmup_steps`` of them have compiled after step times had settled. Then a trial is measured for
    ``measure_s`` at least, and for ``steps`` within ``Measuring.max_measure_s``. A trial that cannot be the answer may
    end before, but not before it is warm.
    """

    warmup_s: float = 1.0
    measure_s: float = 3.0
    steps: int = 20


@dataclass(frozen=True)
class Measuring:
    """The rules that tell when a trial is warm and when it has been measured enough.

    Warm-up ends after ``min_warmup_steps`` once no graph was compiled in a step and the last two steps differ by less
    than 20 %, at the latest after ``max_warmup_steps``. Measuring takes at least ``min_steps`` and ``min_measure_s``.
    It ends when the 95 % confidence interval of the median step is narrower than ``interval_ratio`` of it, from
    ``fine_steps`` steps on than ``rough_interval_ratio``. It ends at the latest after ``max_steps`` or, once
    ``min_steps`` are in, ``max_measure_s``. A trial that cannot be the answer ends once that interval, of three steps
    at least, says that it stays below ``rate_to_beat`` samples/s.
    """

    min_warmup_steps: int = 2
    max_warmup_steps: int = 12
    min_steps: int = 5
    max_steps: int = 60
    interval_ratio: float = 0.01
    rough_interval_ratio: float = 0.03
    fine_steps: int = 24
    min_measure_s: float = 0.5
    max_measure_s: float = 10.0
    rate_to_beat: float | None = None
    on_gpu: GpuMeasuring = GpuMeasuring()

    @property
    def least_steps(self) -> int:
        """Return the least optimizer steps that a trial usually takes: two of them show that the warm-up is over."""
        return self.min_warmup_steps + 2 + self.min_steps

    def paced(self, time_budget_s: float) -> Measuring:
        """Return the rules of a study with so much time: no trial is measured for longer than a thirtieth of it.

        A final has half a dozen measurements and more, so with longer ones a short study would confirm nothing.
        """
        return replace(self, max_measure_s=min(self.max_measure_s, time_budget_s / _TRIALS_IN_A_STUDY))


@dataclass(frozen=True)
class Verifying:
    """The rules of a run in mode ``verify``, whose ``steps`` optimizer steps are compared with those of other runs.

    All these runs have the same fixed seeds. ``references`` are the folders of earlier runs with ``is_reference``,
    which keep their values for that. Generated code keeps the script's casts, so that it rounds alike whatever is
    fused, unless ``as_exported``. ``is_nudged``: the last bit of the model's parameters is changed first.
    """

    steps: int = 3
    references: tuple[str, ...] = ()
    is_reference: bool = False
    as_exported: bool = False
    is_nudged: bool = False


@dataclass(frozen=True)
class Request:
    """``request.json``: one run.

    Modes: ``measure`` measures the configurations one after the other. ``discover`` measures the first (the baseline)
    and then describes the script under ``describe_engine``. ``audit`` measures it and then counts what the script's own
    checkpointing does. ``launch`` applies the only configuration and lets the script run to its end, without measuring.
    ``verify`` applies it for a few steps with fixed seeds and compares what they compute with other runs. ``locate``
    sees in one step of the script as it is which modules its blocks are.

    ``script`` is an absolute path; ``module`` is its name where ``python -m`` runs it, ``script_sha256`` is for the
    facts. ``arguments`` have their placeholders filled in. ``memory_matrix`` asks for two more steps of each trial,
    unmeasured, with the memory at each phase. Without ``kernel_search`` a compiler does not search for the fastest
    kernels, whatever the script asks of it. ``may_fork``: the main process may come from a fork server that has
    imported torch and what ``preload`` names; runs with the same ``server`` share one.

    The launcher fills in ``free_bytes`` and ``usable_bytes``, what each GPU had free before the run and has for
    processes, by the UUID that torch gives it. It fills in ``caches``, the variables that name the run's compile
    caches, and ``kept_in``, the folder where files that the script changes are kept aside; empty if they are not.
    ``ends_at`` is when the study's time budget is spent, by ``time.monotonic``; None for no budget.

    ``choices`` are those that a study was allowed, for discovery to look at, with outputs no further off than
    ``max_error``. ``expected`` is the fingerprint of a launched bundle, None where nothing is to be compared; with
    ``allow_stale`` the run goes on where something differs, which ``is_stale`` says is known before it starts.
    ``written`` is the path of a file that was exported, which is applied as its user would; empty for none.
    """

    mode: Literal["measure", "discover", "launch", "verify", "audit", "locate"]
    script: str
    arguments: tuple[str, ...]
    configurations: tuple[Configuration, ...]
    measuring: Measuring = Measuring()
    batch_control: BatchControl | None = None
    module: str = ""
    script_sha256: str = ""
    describe_engine: Literal["aot", "inductor", "ortmodule", "onnxruntime"] = "aot"
    verifying: Verifying = Verifying()
    memory_limit_bytes: int | None = None
    memory_matrix: bool = False
    may_fork: bool = False
    kernel_search: bool = True
    preload: Preload = field(default_factory=Preload)
    server: str = ""
    free_bytes: dict[str, int] = field(default_factory=dict)
    usable_bytes: dict[str, int] = field(default_factory=dict)
    ends_at: float | None = None
    caches: dict[str, str] = field(default_factory=dict)
    kept_in: str = ""
    accumulation_control: AccumulationControl | None = None
    choices: tuple[str, ...] = ()
    max_error: float = 0.0
    expected: Fingerprint | None = None
    allow_stale: bool = False
    is_stale: bool = False
    written: str = ""
    protocol: int = PROTOCOL_VERSION

    @property
    def accumulation(self) -> int | None:
        """Return what the run sets the script's accumulation to; None where it stays what it is."""
        return self.configurations[0].accumulation or None

    @property
    def batch_size(self) -> int | None:
        """Return what the run sets the script's batch size to; None where it cannot, or nobody knows the size yet."""
        can_set = self.batch_control is None or self.batch_control.can_set
        return self.configurations[0].batch_size if can_set else None


@dataclass(frozen=True)
class Result:
    """A line of ``results.jsonl``: the outcome of ``request.configurations[index]``, from one training process.

    The ``rank`` is ``STARTER_RANK`` for a process that only started the others, and for one that failed before it
    trained. The first of their words counts where no process that trained has left one.
    """

    kind: ClassVar[str] = "result"
    index: int
    outcome: Outcome
    environment: Environment | None
    process: int
    rank: int = 0


@dataclass(frozen=True)
class DescriptionPace:
    """The pace of a description under way, in seconds: its first step, which traces the graphs, and all other steps."""

    first_s: float
    rest_s: float


@dataclass(frozen=True)
class Described:
    """A line of ``results.jsonl``: the facts of a discovery run.

    Before the description is done they hold what was measured. ``may_take_s`` is then the time that all of it may take,
    in seconds since the first of these lines; ``pace`` is None until a second step is over. The last line has neither.
    """

    kind: ClassVar[str] = "described"
    facts: Facts
    process: int
    rank: int = 0
    may_take_s: float | None = None
    pace: DescriptionPace | None = None


@dataclass(frozen=True)
class Audited:
    """A line of ``results.jsonl``: what a run in mode ``audit`` has seen."""

    kind: ClassVar[str] = "audited"
    audit: Audit
    process: int
    rank: int = 0


@dataclass(frozen=True)
class Compared:
    """A line of ``results.jsonl``: a run in mode ``verify`` has done its steps.

    ``differences`` are those from each of ``request.verifying.references``; their sizes are those of every n-th element
    (``sampled_one_in``), where all would take too much room. ``is_compiled``: code was generated for the graphs that
    ran, and what it fuses, and so how it rounds, depends on the plans.
    """

    kind: ClassVar[str] = "compared"
    steps: int
    differences: tuple[Differences, ...]
    process: int
    rank: int = 0
    sampled_one_in: int = 1
    is_compiled: bool = False


@dataclass(frozen=True)
class Ended:
    """The last line of a process: it measured all it was asked to, or says in ``reason`` why the rest was left."""

    kind: ClassVar[str] = "ended"
    process: int
    rank: int
    reason: str


Line = Result | Described | Audited | Compared | Located | Ended
