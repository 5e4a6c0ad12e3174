"""What discovery found out about a script."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .configuration import Configuration
from .environment import Environment
from .graph import ActivationGraph, Calibration
from .matrix import PhaseMemory
from .measurement import MemorySplit

__all__ = ["BatchControl", "ClusterFacts", "Facts", "OptimizerFacts", "PrecisionFacts", "RootFacts"]


@dataclass(frozen=True)
class ClusterFacts:
    """One row of the plan table: a cluster that can be recomputed.

    ``saving_bytes`` is what strategy ``strategy`` on all ``frequency`` occurrences no longer stashes, at the batch
    size of discovery; rows are not additive. ``saving_formula`` is the same as an expression of ``batch`` and the
    other dimensions. ``recompute_time_s`` is the measured time of the recomputed operators in one training step.
    ``calls_per_step`` above one: the graph serves several calls of a step. ``is_layer``: the cluster is a whole
    repeated block, named by its class. ``is_indivisible``: the engine recomputes all of its occurrences or none.
    ``excludes`` are clusters that the engine does not recompute together with this one.
    """

    cluster_id: str
    strategy: int
    frequency: int
    saving_bytes: int
    saving_formula: str
    recompute_time_s: float
    calls_per_step: float = 1.0
    is_layer: bool = False
    is_indivisible: bool = False
    excludes: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class BatchControl:
    """How the script's batch size can be set.

    ``arguments``: ``{batch_size}`` in its arguments; ``function``: it asks ``autotune.batch_size()``; ``loaders``:
    the DataLoaders with these ordinals, in order of construction, are resized, and all that are made at one of
    ``sites`` (a loader made anew each epoch); ``none``: it cannot, see ``reason``.
    """

    how: Literal["arguments", "function", "loaders", "none"]
    loaders: tuple[int, ...] = ()
    sites: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class RootFacts:
    """A root module: called by the script itself, in training mode, with gradients on.

    ``wrapped_by`` are the classes that the script has put around it, outermost first: ``DistributedDataParallel``.
    """

    name: str
    num_parameters: int
    num_trainable: int
    num_graphs: int
    applied_by: str = ""
    wrapped_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class OptimizerFacts:
    """An optimizer as found in the script, with the defaults of its first parameter group that JSON can hold."""

    name: str
    settings: dict[str, str]

    def leaves_open(self, keyword: str) -> bool:
        """Whether it has ``foreach`` or ``fused``, and the script says nothing about either."""
        own = (self.settings.get(name, "None") for name in ("foreach", "fused"))
        return keyword in self.settings and all(value == "None" for value in own)


@dataclass(frozen=True)
class PrecisionFacts:
    """Precision as found in the script, observed at the root calls."""

    parameters: str
    autocast: str | None = None
    grad_scaler: bool = False

    @property
    def dtype(self) -> str:
        """The parameters' type and, behind a slash, autocast's."""
        return "/".join(filter(None, (self.parameters, self.autocast)))


@dataclass(frozen=True)
class Facts:
    """The record that discovery leaves: what can be planned, what a sample is, and where it was measured.

    ``baseline`` is the script as it stands. ``dimensions`` maps the symbols of the formulas to their values in
    discovery. ``memory_matrix`` is the baseline's. ``notes`` are said on screen: what could not be controlled, seen or
    counted. ``graphs`` are the activation graphs in execution order, empty where one of them cannot be simulated;
    ``calibration`` says where their figures hold. ``fork_refusal`` is why no trial may be forked from one that has
    imported torch already; empty where they may.
    """

    baseline: Configuration
    batch_size: int | None
    batch_control: BatchControl
    clusters: tuple[ClusterFacts, ...]
    dimensions: dict[str, int]
    split: MemorySplit | None
    roots: tuple[RootFacts, ...]
    optimizers: tuple[OptimizerFacts, ...]
    precision: PrecisionFacts | None
    environment: Environment
    calls_per_step: float
    script_sha256: str
    memory_matrix: tuple[PhaseMemory, ...] = ()
    notes: tuple[str, ...] = ()
    graphs: tuple[ActivationGraph, ...] = ()
    calibration: Calibration | None = None
    fork_refusal: str = "it was discovered before this was looked at"

    def cluster(self, cluster_id: str) -> ClusterFacts | None:
        """The row of ``cluster_id``, or None."""
        return next((row for row in self.clusters if row.cluster_id == cluster_id), None)
