"""Facts that discovery found out about a script or an ONNX model."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from .arrivals import Arrivals
from .configuration import Configuration
from .engines import ENGINES, Target
from .environment import Environment
from .fingerprint import ModelPrint, SourceFile
from .graph import ActivationGraph, Calibration, StepTrace
from .inference import InferenceFacts
from .look_ahead import LookAhead
from .matrix import PhaseMemory
from .measurement import MemorySplit
from .outcome import Measured, Outcome


@dataclass(frozen=True)
class LocatedBlocks:
    """The modules of a class that repeat in the model, as ``model.modules()`` numbers those of the class, from 0."""

    class_name: str
    number: int  # of modules of the class
    called: tuple[int, ...]  # those that repeat, in the order of their first call in training
    has_statistics: bool = False  # a norm with running statistics is inside
    checkpoints: bool = False  # a switch of their library recomputes them (`gradient_checkpointing_enable`)
    skips: bool = False  # the switch counts these alone, and can recompute every n-th (`every_n_layers`)


@dataclass(frozen=True)
class Located:
    """A line of ``results.jsonl``: what a run in mode ``locate`` has seen in the script's first training step."""

    kind: ClassVar[str] = "located"
    roots: tuple[str, ...]  # the classes of the modules that the script calls
    blocks: tuple[LocatedBlocks, ...]
    process: int
    rank: int = 0
    caches: bool = False  # a module keeps keys and values, which a block that is run again would add to once more
    trainer_arguments: tuple[str, ...] | None = None  # fields of transformers' `TrainingArguments`
    transformers: str = ""

    def blocks_of(self, class_name: str) -> LocatedBlocks | None:
        """Return those of a class; None where none of it repeats."""
        return next((one for one in self.blocks if one.class_name == class_name), None)


@dataclass(frozen=True)
class Preload:
    """Installed modules that a script imports before it trains, in its order; what those import in turn is left out.

    ``modules`` are imported after torch, but for the first one where it ``brings_torch``: the script imports torch by
    importing that. ``before_torch`` are the packages that the script has imported by then, which are none of them.
    """

    modules: tuple[str, ...] = ()
    before_torch: tuple[str, ...] = ()
    brings_torch: bool = False

    def up_to(self, refused: Collection[str]) -> Preload:
        """Leave out the first of the modules that is refused and all after it, as those may depend on what it does."""
        kept = tuple(itertools.takewhile(lambda name: name not in refused, self.modules))
        return replace(self, modules=kept) if kept else Preload()


@dataclass(frozen=True)
class ClusterFacts:
    """One row of the plan table: a cluster that can be recomputed."""

    cluster_id: str
    strategy: int
    frequency: int  # of occurrences
    saving_bytes: int  # of all occurrences, at the batch size of discovery; rows are not additive
    saving_formula: str  # the same, as an expression of `batch` and the other dimensions
    recompute_time_s: float  # measured, in one training step
    calls_per_step: float = 1.0  # above one the graph serves several calls of a step
    is_layer: bool = False  # a whole repeated block, named by its class
    is_indivisible: bool = False  # the engine recomputes all of its occurrences or none
    excludes: tuple[str, ...] = ()  # clusters that the engine does not recompute together with this one
    note: str = ""


@dataclass(frozen=True)
class OutsideFacts:
    """Modules of a class, ``number`` of them, that ran outside of any graph: no plan reaches what they keep."""

    name: str
    number: int
    saved_bytes: int  # by autograd in one training call, at the batch size of discovery


# Names of options for a batch size: `--batch-size`, `--train_batch_size`, `--bs`, `--train_bsz`.
_BATCH_NAME = re.compile(r"batch|(?:^|[-_])m?bsz?(?:[-_]|$)", re.IGNORECASE)
# And of that for evaluation: `--per_device_eval_batch_size`.
_EVALUATION_NAME = re.compile(r"(?:^|[-_])(?:eval|val|valid|validation|test|infer|sample)(?:[-_]|$)", re.IGNORECASE)


@dataclass(frozen=True)
class BatchControl:
    """The way to set the script's batch size.

    ``arguments``: the script's arguments hold ``{batch_size}``. ``function``: the script asks
    ``autotune.batch_size()``. ``loaders``: the DataLoaders with these ordinals, in order of construction, are resized,
    and all that are made at one of ``sites``, as a loader made anew each epoch. ``inputs``: the batch size is that of
    the inputs that a model is fed. ``none``: it cannot be set, for the reason in ``reason``. ``arrivals`` are what
    batches of the script's own size bring to its models: a size that was set must bring more, or less. ``options`` are
    those of the script's command line that had such a number as their value, with that; all whole numbers where the
    script's own size is not known. ``in_evaluation_mode``: the models that take the batches train in that mode.
    """

    how: Literal["arguments", "function", "loaders", "inputs", "none"]
    loaders: tuple[int, ...] = ()
    sites: tuple[str, ...] = ()
    reason: str = ""
    arrivals: Arrivals | None = None
    options: dict[str, int] = field(default_factory=dict)
    in_evaluation_mode: bool = False

    @property
    def can_set(self) -> bool:
        """Return whether there is a way to set it."""
        return self.how != "none"

    def option(self, number: int | None) -> str:
        """Return the option for the batch size with its placeholder, ``--bs={batch_size:16}``; empty if none is clear.

        Its value is the script's own ``number``. Any will do where samples could not be counted, or where a batch holds
        one item, which may be a whole batch.
        """
        named = [
            name
            for name, value in self.options.items()
            if number in (None, 1, value) and _BATCH_NAME.search(name) and not _EVALUATION_NAME.search(name)
        ]
        return f"{named[0]}={{batch_size:{self.options[named[0]]}}}" if len(named) == 1 else ""

    def advice_to_pass(self, number: int | None) -> str:
        """Say how to pass the script another batch size than its own ``number``; empty where that is done."""
        if self.how in ("arguments", "function"):
            return ""
        if own := self.option(number):
            return f"Pass the batch size as an option instead, behind `--`: `{own}`."
        option = f"`--batch-size={{batch_size:{number or 32}}}`"
        meant = "" if number else ", where 32 stands for the script's own number"
        ways = f"as {option}{meant}, or let the script ask `autotune.batch_size()`"
        return f"Pass the batch size as an option behind `--`, {ways}."


@dataclass(frozen=True)
class AccumulationControl:
    """The way to set the number of micro-batches per optimizer step.

    ``arguments``: the script's arguments hold ``{accumulation:4}``. ``transformers``, ``lightning``, ``accelerate``: it
    is set in the object of that library by which the script trains. ``none``: it cannot be set.
    """

    how: Literal["arguments", "transformers", "lightning", "accelerate", "none"]
    steps: int | None = None  # the script's own number; None where it is not known or no whole number
    reason: str = ""  # why it cannot be set

    @property
    def can_set(self) -> bool:
        """Return whether there is a way to set it."""
        return self.how != "none"


@dataclass(frozen=True)
class EpochFacts:
    """An epoch of the DataLoader that fed training, in one process. ``drops_last``: only whole batches are trained."""

    samples: int
    drops_last: bool

    def batches(self, batch_size: int) -> int:
        """Return how many batches of a size there are."""
        return self.samples // batch_size if self.drops_last else -(-self.samples // batch_size)


@dataclass(frozen=True)
class StepsFacts:
    """The number of optimizer steps of the script at its own batch size, as far as discovery saw."""

    in_pass: float | None = None  # of one pass over the training data, by the length of its DataLoader
    in_all: int | None = None  # where the script came to its own end

    def largest_batch(self, own: int) -> float:
        """Return the largest batch with an optimizer step in a pass, by the script's own size; infinity if unknown."""
        return math.inf if self.in_pass is None else own * self.in_pass


@dataclass(frozen=True)
class RootFacts:
    """A root module: called by the script itself, with gradients on, to train it."""

    name: str
    num_parameters: int
    num_trainable: int
    num_graphs: int
    applied_by: str = ""
    wrapped_by: tuple[str, ...] = ()  # classes of the script's wrappers, outermost first: `DistributedDataParallel`


@dataclass(frozen=True)
class OptimizerFacts:
    """An optimizer as found in the script, with the defaults of its first parameter group that JSON can hold."""

    name: str
    settings: dict[str, str]

    def leaves_open(self, keyword: str) -> bool:
        """Return whether it has ``foreach`` or ``fused``, and the script says nothing about either."""
        own = (self.settings.get(name, "None") for name in ("foreach", "fused"))
        return keyword in self.settings and all(value == "None" for value in own)


@dataclass(frozen=True)
class ShardingFacts:
    """The modules that the script shards with ``fully_shard``.

    ``gathered_twice`` of the ``modules`` give their parameters back after the forward and gather them again for the
    backward. ``has_policy``: the script gives one of them a mixed precision policy.
    """

    modules: int
    gathered_twice: int
    has_policy: bool


@dataclass(frozen=True)
class PrecisionFacts:
    """Precision as found in the script, observed at the root calls."""

    parameters: str
    autocast: str | None = None
    grad_scaler: bool = False

    @property
    def dtype(self) -> str:
        """Return the parameters' type and, behind a slash, autocast's."""
        return "/".join(filter(None, (self.parameters, self.autocast)))


@dataclass(frozen=True)
class Facts:
    """The record that discovery leaves: what can be planned, what a sample is, and where it was measured."""

    baseline: Configuration  # the script as it stands, at its own batch size
    batch_size: int | None  # as observed; None where no samples were seen
    batch_control: BatchControl
    clusters: tuple[ClusterFacts, ...]
    dimensions: dict[str, int]  # the values of the formulas' symbols in discovery
    split: MemorySplit | None
    roots: tuple[RootFacts, ...]
    optimizers: tuple[OptimizerFacts, ...]
    precision: PrecisionFacts | None
    environment: Environment
    calls_per_step: float
    script_sha256: str
    memory_matrix: tuple[PhaseMemory, ...] = ()  # the baseline's
    notes: tuple[str, ...] = ()  # said on screen: what could not be controlled, seen or counted
    graphs: tuple[ActivationGraph, ...] = ()  # in execution order; empty where one of them cannot be simulated
    calibration: Calibration | None = None  # where the figures of graphs and traces hold
    # Why no trial may be forked from one with torch imported, and why Inductor cannot compile; empty where they may.
    fork_refusal: str = "it was discovered before this was looked at"
    compile_refusal: str = "it was discovered before this was looked at"
    preload: Preload = field(default_factory=Preload)  # what else a forked trial may have imported
    per_sample: dict[str, float] = field(default_factory=dict)  # the most per sample of dimensions beside `batch`
    undescribed: Outcome | None = None  # what ended the description early, or forbids it; None where there is one
    accumulation_control: AccumulationControl = AccumulationControl("none", reason="it was not looked at in discovery")
    epoch: EpochFacts | None = None  # None where no DataLoader says how long one is
    steps: StepsFacts = StepsFacts()
    outside: tuple[OutsideFacts, ...] = ()  # modules that no plan reaches
    traces: tuple[StepTrace, ...] = ()  # what a step ran of the graphs, each unlike the others
    inference: InferenceFacts | None = None  # of an ONNX model
    files: tuple[SourceFile, ...] = ()  # the script's own, itself first
    models: tuple[ModelPrint, ...] = ()  # what its roots are made of
    ahead: LookAhead | None = None  # None where no batch was read ahead
    sharding: ShardingFacts | None = None  # None where nothing is sharded

    @property
    def tokens_per_sample(self) -> float | None:
        """Return how many tokens a sample has in the script's batches, padding included; None if that is not known.

        Where batches differ in size, it is the mean of those that were read ahead.
        """
        arrivals = self.batch_control.arrivals
        tokens = next((one for one in arrivals.arrived if one.is_tokens), None) if arrivals else None
        if tokens is None:
            return None
        if tokens.shape:
            return tokens.shape[1]
        return self.ahead.mean_length if self.ahead is not None and self.ahead.has_larger else None

    @property
    def knows_plans(self) -> bool:
        """Return whether it was found out what can be recomputed; that may be nothing."""
        return bool(self.clusters) or self.undescribed is None or isinstance(self.undescribed, Measured)

    @property
    def target(self) -> Target:
        """Return what was discovered."""
        return ENGINES[self.baseline.engine].target

    def cluster(self, cluster_id: str) -> ClusterFacts | None:
        """Return the row of ``cluster_id``, or None."""
        return next((row for row in self.clusters if row.cluster_id == cluster_id), None)
