"""``stack.json``: the full optimizer stack of a bundle, everything needed to run the winner."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from .configuration import SizedPlans
from .engines import ENGINES, Engine
from .environment import Environment
from .facts import AccumulationControl, BatchControl, OptimizerFacts, PrecisionFacts
from .figures import Figures
from .fingerprint import Fingerprint, ModelPrint, SourceFile
from .gate import Reading
from .look_ahead import SeenBatch
from .proof import Proof

STACK_VERSION = 2


@dataclass(frozen=True)
class GlobalBatch:
    """The batch of an optimizer step: ``accumulation`` micro-batches of ``micro_batch`` samples in each process."""

    micro_batch: int
    accumulation: float
    num_processes: int = 1
    steps_per_epoch: float | None = None  # None where no DataLoader says how long an epoch is

    @property
    def samples(self) -> float:
        """Return the samples of all processes together."""
        return self.micro_batch * self.accumulation * self.num_processes


@dataclass(frozen=True)
class StackLayer:
    """A layer around the model or its optimizer; where it does not apply, ``reason`` says why."""

    name: str
    applies: bool
    settings: dict[str, str] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True)
class Stack:
    """The contents of ``stack.json``.

    ``reading`` is what each repetition measured of the setting, or its only trial, ``script_reading`` the same of the
    script as it stands. A gate holds later measurements against them, and later graphs against ``graph``, which is None
    where the script's could not be simulated. ``files``, ``models`` and ``occurrences`` are those of ``Fingerprint``,
    empty in older bundles.
    """

    version: int
    autotune: str
    study: str
    engine: Engine
    level: int
    plans: tuple[str, ...]
    batch_size: int | None  # the micro-batch; None if it is not known
    script_batch_size: int | None
    batch_control: BatchControl
    accumulation: float  # the micro-batches per step that were seen with this setting
    accumulation_for_same_global_batch: float | None  # None where no whole number keeps it
    optimizers: tuple[OptimizerFacts, ...]
    precision: PrecisionFacts | None
    variables: dict[str, str]  # to be set, all from the list that `autotune launch` accepts
    environment: Environment
    figures: Figures | None
    baseline_figures: Figures | None
    memory_limit_bytes: int
    script_name: str
    script_sha256: str
    arguments: tuple[str, ...]
    verdict: str
    module: str = ""
    recomputed: str = ""  # by plans and level, in words
    proof: Proof | None = None
    choices: tuple[str, ...] = ()
    layers: tuple[StackLayer, ...] = ()  # in the order in which they are put together, the engine first
    accumulation_set: int = 0  # 0 where it stays the script's
    accumulation_control: AccumulationControl | None = None
    global_batch: GlobalBatch | None = None
    script_global_batch: GlobalBatch | None = None
    reading: Reading | None = None
    script_reading: Reading | None = None
    max_error: float = 0.0  # as of `StudySpec`; 0 where the model is not converted
    files: tuple[SourceFile, ...] = ()
    cautions: tuple[str, ...] = ()  # what the script would do wrong with the setting's batch size
    models: tuple[ModelPrint, ...] = ()
    occurrences: dict[str, int] = field(default_factory=dict)
    look_ahead: int = 0  # as of `StudySpec`: how the figures were measured
    measured_batch: SeenBatch | None = None  # the largest of those that were read ahead
    sized: tuple[SizedPlans, ...] = ()  # as of `Configuration`

    @property
    def fingerprint(self) -> Fingerprint:
        """Return what the bundle was made of; older ones have a hash in the place of ``files``."""
        is_script = ENGINES[self.engine].target == "script" and not self.module
        # The hash of a launcher goes by where it is installed.
        is_launcher = is_script and Path(self.script_name).suffix != ".py"
        script = () if is_launcher else (SourceFile(self.script_name, self.script_sha256),)
        return Fingerprint(self.files or script, self.environment.torch, self.models, self.occurrences)
