"""What every discovery reports, whatever the engine: the script's batch, roots, optimizers, precision, environment."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..records import (
    ActivationGraph,
    BatchControl,
    Calibration,
    ClusterFacts,
    Configuration,
    Facts,
    Measurement,
    MemorySplit,
    OptimizerFacts,
    PrecisionFacts,
    RootFacts,
)
from .engines.port import Engine
from .environment import describe_environment
from .hooks import batch_size

if TYPE_CHECKING:
    from .session import Session

__all__ = ["Baseline", "Description", "PlanTable", "memory_split", "optimizer_facts", "storage_bytes"]


@dataclass(frozen=True)
class Baseline:
    """What measuring the script as it stands has brought, as far as it came."""

    measurement: Measurement | None = None
    split: MemorySplit | None = None
    optimizers: tuple[OptimizerFacts, ...] = ()

    @property
    def batch_size(self) -> int | None:
        """The usual batch."""
        return None if self.measurement is None else self.measurement.batch_size


@dataclass(frozen=True)
class PlanTable:
    """What an engine found: the rows, the values that the symbols in their formulas had, and what can be simulated."""

    clusters: tuple[ClusterFacts, ...]
    dimensions: dict[str, int]
    graphs: tuple[ActivationGraph, ...] = ()
    calibration: Calibration | None = None
    notes: tuple[str, ...] = ()


class Description(ABC):
    """Collects what discovery reports, over a few steps under the engine."""

    def __init__(self, session: Session, engine: Engine, baseline: Baseline) -> None:
        self._session = session
        self._engine = engine
        self._baseline = baseline
        self._autocast: str | None = None

    def see_call(self, root: nn.Module, tensors: list[torch.Tensor], dimension: int) -> None:
        """A root is called in training with these tensors; ``dimension`` is the one of the batch."""
        del root, dimension
        self._note_autocast(tensors)

    def backward_begins(self) -> None:  # noqa: B027  (not every engine has to know)
        """The script begins its backward."""

    def backward_done(self) -> None:  # noqa: B027  (not every engine has to know)
        """The script's backward has returned."""

    @abstractmethod
    def step_done(self) -> bool:
        """A step under the engine has ended; True when everything has been seen."""

    @abstractmethod
    def plan_table(self, modules: list[nn.Module], batch: int | None) -> PlanTable:
        """What can be planned.

        Args:
            modules: the roots.
            batch: the script's usual batch size.
        """

    def facts(self) -> Facts:
        """The facts so far."""
        session, engine, baseline = self._session, self._engine, self._baseline
        measured = baseline.measurement
        saved = engine.saved_bytes()
        modules = list(session.roots.modules())
        observed, control = self._batch_control()
        table = self.plan_table(modules, observed)
        problem = engine.problem()
        notes = [*session.notes, *table.notes]
        if problem is not None:
            notes.append(problem.cause)
        return Facts(
            baseline=Configuration(batch_size=None if control.how == "none" else observed),
            batch_size=observed,
            batch_control=control,
            clusters=table.clusters,
            dimensions=table.dimensions,
            split=None if baseline.split is None else replace(baseline.split, activations=saved),
            roots=tuple(self._root_facts(modules)),
            optimizers=baseline.optimizers,
            precision=self._precision(modules),
            environment=describe_environment(session.device),
            calls_per_step=1.0 if measured is None else measured.calls_per_step,
            memory_matrix=() if measured is None else measured.memory_matrix,
            script_sha256=hashlib.sha256(Path(session.request.script).read_bytes()).hexdigest(),
            notes=tuple(dict.fromkeys(notes)),
            graphs=table.graphs,
            calibration=table.calibration,
            fork_refusal=session.fork_refusal,
        )

    def _batch_control(self) -> tuple[int | None, BatchControl]:
        """The script's own batch size as observed, and how it can be set."""
        session = self._session
        observed = self._baseline.batch_size
        given = session.request.batch_control
        if given is not None:
            return observed, given
        if batch_size.asked:
            return observed, BatchControl("function")
        feeding = session.loaders.training_loaders()
        resizable = tuple(loader.ordinal for loader in feeding if loader.resizable)
        if resizable:
            return observed, BatchControl("loaders", loaders=resizable, sites=session.loaders.training_sites())
        if feeding:
            return observed, BatchControl("none", reason=f"the DataLoader cannot be resized: {feeding[0].reason}")
        reason = (
            "no DataLoader feeds training; pass the script's batch size option as {batch_size}, "
            "as in `-- --batch-size={batch_size}`, or let the script ask autotune.batch_size()"
        )
        return observed, BatchControl("none", reason=reason)

    def _root_facts(self, modules: list[nn.Module]) -> Iterable[RootFacts]:
        for module in modules:
            root = self._session.roots.roots[id(module)]
            parameters = list(module.parameters())
            yield RootFacts(
                name=root.name,
                num_parameters=sum(parameter.numel() for parameter in parameters),
                num_trainable=sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
                num_graphs=self._engine.num_compiled,
                applied_by=root.applied_by,
                wrapped_by=root.wrapped_by,
            )

    def _precision(self, modules: list[nn.Module]) -> PrecisionFacts | None:
        types = Counter(str(p.dtype).removeprefix("torch.") for module in modules for p in module.parameters())
        if not types:
            return None
        return PrecisionFacts(types.most_common(1)[0][0], self._autocast, self._session.step_hooks.grad_scaler)

    def _note_autocast(self, tensors: list[torch.Tensor]) -> None:
        device = tensors[0].device.type if tensors else "cpu"
        if torch.is_autocast_enabled(device):
            self._autocast = str(torch.get_autocast_dtype(device)).removeprefix("torch.")


def memory_split(modules: Iterable[nn.Module], optimizers: Iterable[torch.optim.Optimizer]) -> MemorySplit:
    """What the memory holds between optimizer step and ``zero_grad``, each storage counted once; no activations."""
    modules, optimizers = list(modules), list(optimizers)
    parameters: list[torch.Tensor] = [parameter for module in modules for parameter in module.parameters()]
    for optimizer in optimizers:
        parameters += [parameter for group in optimizer.param_groups for parameter in group["params"]]
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    state = [value for optimizer in optimizers for entry in optimizer.state.values() for value in _tensors(entry)]
    buffers = [buffer for module in modules for buffer in module.buffers()]
    return MemorySplit(
        parameters=storage_bytes(parameters),
        gradients=storage_bytes(gradients),
        optimizer_state=storage_bytes(state),
        buffers=storage_bytes(buffers),
    )


def _tensors(entry: Any) -> Iterable[torch.Tensor]:
    values = entry.values() if isinstance(entry, dict) else ()
    return (value for value in values if isinstance(value, torch.Tensor))


def storage_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of the storages behind tensors, each counted once."""
    sizes: dict[int, int] = {}
    for tensor in tensors:
        for part in (tensor._indices(), tensor._values()) if tensor.layout is torch.sparse_coo else (tensor,):
            try:
                storage = part.untyped_storage()
            except (NotImplementedError, RuntimeError):
                # Other layouts (compressed rows, oneDNN) have no storage to look at: about as much as their elements.
                sizes[id(part)] = part.numel() * part.element_size()
            else:
                sizes[storage._cdata] = storage.nbytes()
    return sum(sizes.values())


def optimizer_facts(optimizer: torch.optim.Optimizer) -> OptimizerFacts:
    """An optimizer's class, and the settings of its first group as text."""
    group = optimizer.param_groups[0] if optimizer.param_groups else {}
    settings = {
        name: str(value)
        for name, value in group.items()
        if isinstance(value, (bool, int, float, str, tuple, list, type(None))) and name != "params"
    }
    return OptimizerFacts(type(optimizer).__name__, settings)
