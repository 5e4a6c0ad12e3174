"""A bundle applied to a model in the caller's own process; see ``autotune.apply``."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import BundleError, UsageError
from ..export.bundle import Bundle, read_bundle
from ..records.choices import made_choices
from ..records.engines import ENGINES, Engine
from .source import is_hosted, requested_batch_size

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from ..worker.own_loop import PlannedModel


@dataclass(frozen=True)
class Applied:
    """The changes that ``autotune.apply`` has made to a model.

    ``batch_size`` is the micro-batch of the bundle's figures, None where it is not known. ``accumulation`` is the
    number of micro-batches of an optimizer step. The loop has to keep both. ``plans``, ``level`` and ``choices`` are
    what runs, ``recomputed`` says in words what is recomputed. ``notes`` name the differences from the place where
    the bundle was measured. ``is_overruled``: autotune runs this process itself, its own configuration is what runs,
    and nothing was applied. ``batch_size`` is then that configuration's.
    """

    bundle: Path
    engine: Engine
    plans: tuple[str, ...]
    level: int
    choices: tuple[str, ...]
    recomputed: str
    batch_size: int | None
    accumulation: float
    notes: tuple[str, ...] = ()
    is_overruled: bool = False
    _planned: PlannedModel | None = field(default=None, repr=False, compare=False)

    @property
    def is_confirmed(self) -> bool:
        """Return whether a first backward has shown that the model runs as the bundle says."""
        return self._planned is not None and self._planned.is_confirmed

    def optimizer(self, optimizer: Optimizer) -> Optimizer:
        """Give an optimizer what the bundle says of optimizers (``fused``, ``foreach``), right before it steps.

        Needed where ``choices`` has one of these; it changes nothing elsewhere. Gives the same optimizer back. Its
        first step raises a BundleError where it cannot have that. After ``remove`` it changes nothing.
        """
        if self._planned is not None:
            self._planned.optimizer(optimizer)
        return optimizer

    def remove(self) -> None:
        """Have the model run, and optimizers step, as they did before; a second call does nothing."""
        if self._planned is not None:
            self._planned.remove()

    def __str__(self) -> str:
        if self.is_overruled:
            return "Nothing was applied: autotune runs this process, and its own setting is what runs."
        does = f"recomputes {self.recomputed}" if self.recomputed else "recomputes nothing"
        batch = f"; the bundle's batch size is {self.batch_size}" if self.batch_size else ""
        accumulated = f" with an accumulation of {self.accumulation:g}" if batch and self.accumulation != 1 else ""
        chosen = f", {' '.join(self.choices)}" if self.choices else ""
        lines = [f"In training the model {does} under engine {self.engine}{chosen}{batch}{accumulated}.", *self.notes]
        return "\n".join(lines)


def apply(model: nn.Module, bundle: str | os.PathLike[str], *, allow_stale: bool = False) -> Applied:
    """Apply a bundle to a model; see ``autotune.apply``."""
    if not isinstance(bundle, str | os.PathLike):
        raise UsageError(
            f"autotune.apply takes a model and then a bundle's folder, not a {type(bundle).__name__}",
            hint='autotune.apply(model, "bundle/")',
        )
    read = read_bundle(Path(bundle))
    _check_engine(read)
    stack = read.stack
    applied = Applied(
        bundle=read.directory,
        engine=stack.engine,
        plans=stack.plans,
        level=stack.level,
        choices=stack.choices,
        recomputed=stack.recomputed or read.configuration.recomputed,
        batch_size=stack.batch_size,
        accumulation=stack.accumulation_set or stack.accumulation,
    )
    if is_hosted():
        size = None if stack.batch_size is None else requested_batch_size(stack.batch_size)
        applied = replace(applied, batch_size=size, is_overruled=True)
        sys.stderr.write(f"autotune: {applied}\n")
        return applied
    from ..worker.own_loop import PlannedModel

    notes = _notes(read)
    planned = PlannedModel(
        model,
        read.configuration,
        _note,
        expected=stack.fingerprint,
        batch_size=stack.batch_size,
        allow_stale=allow_stale,
    )
    return replace(applied, notes=(*(f"{one.said}." for one in planned.stale), *notes), _planned=planned)


def _note(note: str) -> None:
    sys.stderr.write(f"autotune: note: {note}\n")


def _check_engine(bundle: Bundle) -> None:
    engine = bundle.stack.engine
    if ENGINES[engine].target == "model":
        raise BundleError(
            f"the bundle {str(bundle.directory)!r} is of an ONNX model, not of a module of torch",
            hint=f"{bundle.directory}/session.py opens the session that it describes",
        )
    if engine == "ortmodule":
        raise BundleError(
            "engine 'ortmodule' replaces the model by ONNX Runtime's module, which is not possible for a model that "
            "exists already",
            hint=f"autotune launch {bundle.directory} SCRIPT; {bundle.directory}/README.txt says how to do it by hand",
        )


def _notes(bundle: Bundle) -> tuple[str, ...]:
    """Return what is otherwise here than in the bundle; BundleError where a choice of it can no longer be made."""
    stack, notes = bundle.stack, []
    chosen = {name for choice in made_choices(stack.engine, stack.choices) for name in choice.variables}
    for name, value in bundle.environment.items():
        if os.environ.get(name) == value or name.startswith("ORTMODULE_"):  # of an engine that is not at work
            continue
        here = f"{name} is {os.environ[name]!r}" if name in os.environ else f"{name} is not set"
        if name in chosen:
            raise BundleError(
                f"the bundle says {name}={value}, which is read when a process starts, and here {here}",
                hint=f"start Python in a shell with it: . {bundle.directory}/env.sh",
            )
        notes.append(f"The bundle was measured with {name}={value}, and here {here}: speed and peak may differ.")
    return tuple(notes)
