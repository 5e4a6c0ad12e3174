"""The protocol between the controller and a run: ``request.json`` in, ``results.jsonl`` out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from .allocations import Traced
from .audit import Audit
from .cards import Card
from .configuration import Configuration
from .environment import Environment
from .facts import AccumulationControl, BatchControl, Facts, Located, Preload
from .fingerprint import Fingerprint
from .look_ahead import SeenBatch
from .measuring import Measuring
from .memory_changes import WorkerChange
from .outcome import Outcome
from .proof import Differences

FOLLOWED_TEST = "AUTOTUNE_TEST"
"""The variable that has the name of the test, where the script is a pytest that a run in mode ``trace`` follows."""

PROTOCOL_VERSION = 1
Searched = Literal["plans", "batch_sizes", "choices"]

STARTER_RANK = -1
"""In the place of a rank: a process that started those that train (``mp.spawn``), and none of them itself."""

ALL_BLOCKS = -1
"""In the place of a number of blocks: as many as the model has."""


@dataclass(frozen=True)
class Verifying:
    """The rules of a run in mode ``verify``, which is compared with other runs from the same fixed seeds.

    Generated code keeps the script's casts, so that it rounds alike whatever is fused, unless ``as_exported``.
    """

    steps: int = 3
    references: tuple[str, ...] = ()  # folders of earlier runs with `is_reference`
    is_reference: bool = False  # keeps its values for later runs
    as_exported: bool = False
    is_nudged: bool = False  # the last bit of the model's parameters is changed first
    without_regions: bool = False  # the script's own checkpoints, and hooks on saved tensors, do nothing


@dataclass(frozen=True)
class Request:
    """``request.json``: one run.

    Modes: ``measure`` measures the configurations one after the other. ``discover`` measures the first (the baseline)
    and then describes the script under ``describe_engine``. ``audit`` measures it and then counts what the script's own
    checkpointing does. ``launch`` applies the only configuration and lets the script run to its end, without measuring.
    ``verify`` applies it for a few steps with fixed seeds and compares what they compute with other runs. ``locate``
    sees in one step of the script as it is which modules its blocks are. ``trace`` records what the script allocates on
    the ``card``, which is not there, in its first optimizer steps.

    With ``allow_stale`` a launch goes on where something differs from the ``expected`` fingerprint of its bundle, which
    ``is_stale`` says is known before it starts. The launcher fills in ``free_bytes``, ``usable_bytes``, ``caches`` and
    ``kept_in``.
    """

    mode: Literal["measure", "discover", "launch", "verify", "audit", "locate", "trace"]
    script: str  # an absolute path
    arguments: tuple[str, ...]  # with their placeholders filled in
    configurations: tuple[Configuration, ...]
    measuring: Measuring = field(default_factory=Measuring)
    batch_control: BatchControl | None = None
    module: str = ""  # the script's name where `python -m` runs it
    script_sha256: str = ""  # for the facts
    describe_engine: Literal["aot", "inductor", "ortmodule", "onnxruntime"] = "aot"
    verifying: Verifying = Verifying()
    memory_limit_bytes: int | None = None
    memory_matrix: bool = False  # two more steps of each trial, unmeasured, with the memory at each phase
    may_fork: bool = False  # the main process may come from a fork server that has imported torch and `preload`
    kernel_search: bool = True  # False: a compiler searches for no kernels, whatever the script asks of it
    preload: Preload = field(default_factory=Preload)
    server: str = ""  # runs with one name share a fork server
    free_bytes: dict[str, int] = field(default_factory=dict)  # of each GPU before the run, by torch's UUID
    usable_bytes: dict[str, int] = field(default_factory=dict)  # of each GPU for processes
    ends_at: float | None = None  # of the study's time budget, by `time.monotonic`; None for no budget
    searches: tuple[Searched, ...] = ()  # what the study does in the time that the description leaves
    caches: dict[str, str] = field(default_factory=dict)  # variables that name the run's compile caches
    kept_in: str = ""  # the folder for files that the script changes; empty where none are kept
    accumulation_control: AccumulationControl | None = None
    choices: tuple[str, ...] = ()  # those that a study was allowed, for discovery to look at
    max_error: float = 0.0  # of outputs that a choice may have
    expected: Fingerprint | None = None  # of a launched bundle; None where nothing is to be compared
    allow_stale: bool = False
    is_stale: bool = False
    measured_batch: SeenBatch | None = (
        None  # the largest that a launched bundle was measured with, if it was read ahead
    )
    card: Card | None = None  # that a run in mode `trace` takes for its GPU
    checkpointed_blocks: int = 0  # of those that repeat in the model such a run checkpoints the first; or ALL_BLOCKS
    change: WorkerChange = ""  # that such a run makes in the script
    look_ahead: int = 0  # such a run reads so many batches of the training loader, and follows some that differ
    tells_places: bool = False  # such a run names the module and the line of each allocation
    written: str = ""  # an exported file to apply as its user would; empty for none
    protocol: int = PROTOCOL_VERSION

    @property
    def least_steps(self) -> int:
        """Return the least optimizer steps that a trial usually takes."""
        return self.measuring.least_steps_in_cycles if self.look_ahead else self.measuring.least_steps

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
class Described:
    """A line of ``results.jsonl``: the facts of a discovery run; as far as they are known, until the last such line."""

    kind: ClassVar[str] = "described"
    facts: Facts
    process: int
    rank: int = 0
    may_take_s: float | None = None  # all of the description, from the first of these lines on; None in the last


@dataclass(frozen=True)
class Audited:
    """A line of ``results.jsonl``: what a run in mode ``audit`` has seen."""

    kind: ClassVar[str] = "audited"
    audit: Audit
    process: int
    rank: int = 0


@dataclass(frozen=True)
class Compared:
    """A line of ``results.jsonl``: a run in mode ``verify`` has done its steps."""

    kind: ClassVar[str] = "compared"
    steps: int
    differences: tuple[Differences, ...]  # from each of `request.verifying.references`
    process: int
    rank: int = 0
    sampled_one_in: int = 1  # the sizes of differences are those of every n-th element
    is_compiled: bool = False  # code was generated: plans decide what it fuses, and so how it rounds
    lost_gradients: tuple[str, ...] = ()  # of parameters that have one in a reference, in the same step
    regions_off: int = 0  # what a run `without_regions` has switched off
    cut: dict[str, tuple[str, ...]] = field(default_factory=dict)  # by region: see `RegionProof.cut`


@dataclass(frozen=True)
class Ended:
    """The last line of a process: it measured all it was asked to, or says in ``reason`` why the rest was left."""

    kind: ClassVar[str] = "ended"
    process: int
    rank: int
    reason: str


Line = Result | Described | Audited | Compared | Located | Traced | Ended
