"""An audit: the script as it stands is measured, and then what it keeps is counted and timed over a few steps more."""

from __future__ import annotations

import gc
import itertools
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ...metering.trial_meter import Window
from ...records.audit import Audit, AuditedCompile, Counted, IdleSetting
from ...records.outcome import Measured, Outcome, OutOfMemory
from ...records.run import Audited
from ..describing.root_inputs import RootCall
from ..device import now_s
from ..hooks.compilation import keep_out
from ..hooks.samples import tensors_of
from ..hooks.saving import SavingHooks, SavingWatch
from ..hooks.watch import unpack
from ..measuring.saved_tensors import RegionTimes, SavedTensors
from .measure import MeasureMode

_TIMED_STEPS = 3


class AuditMode(MeasureMode):
    """Measures the baseline, the request's one configuration, and then looks at what the script does by itself.

    One step counts what is saved, three more are timed. Where the script compiles, as many follow without that, which
    come last as they may need more memory.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._hooks = SavingHooks(SavingWatch())
        self._counts: list[tuple[SavedTensors, Counted]] = []
        self._looking: Iterator[int] | None = None
        self._steps = self._steps_left = 0
        self._step_s = 0.0
        self._began_s = 0.0
        self._compiled: AuditedCompile | None = None
        self._is_written = False

    def installed(self) -> None:
        """Patch what checkpoints and offloading are made of, before the script gets hold of it."""
        told = [name for name, member in vars(SavingWatch).items() if callable(member)]
        watches = [getattr(watch, name) for watch in (SavingWatch, SavedTensors, RegionTimes) for name in told]
        for function in (self._hooks._pack, unpack, *watches):
            keep_out(function)
        self._hooks.install()

    def ready(self) -> None:
        """Begin the trial, unless it is over."""
        if self._looking is None:
            super().ready()

    def inputs(self, call: RootCall) -> None:
        """Leave out what a root is called with: it is kept by whoever made it."""
        self._hooks.watch.leave_out(tensors_of((call.arguments, call.keywords)))

    def backward_begins(self, loss: Any) -> None:
        """Take stock."""
        del loss
        self._hooks.watch.backward_begins()

    def backward_done(self) -> None:
        """Pass it on."""
        self._hooks.watch.backward_done()

    def step(self, window: Window) -> None:
        """Measure a step, or count it."""
        if self._looking is None:
            super().step(window)
            return
        self._steps_left -= 1
        if not self._steps_left:
            self._step_s = (now_s() - self._began_s) / self._steps
            self._go_on()

    def trial_done(self) -> None:
        """Go on to what the script does by itself."""
        self._looking = self._look()
        self._go_on()

    def script_over(self) -> None:
        """The script was too short for all of it: leave what there is."""
        if self._looking is None or self._is_written:
            return
        self._process.note("the script ended before all of it was seen: with a few more steps its audit is whole")
        if self._compiled is not None:
            self._compiled = replace(self._compiled, reason="the script ended before")
        self._write()

    def failed(self, outcome: Outcome) -> None:
        """Write what was seen; a failure while the script ran without compiling says what the compiling is for."""
        if not self._counts or self._is_written or isinstance(outcome, Measured):
            return
        if self._compiled is None:
            self._process.note(f"the script failed before all of it was seen: {outcome.cause}")
        else:
            reason = "it does not fit the memory" if isinstance(outcome, OutOfMemory) else f"it failed: {outcome.cause}"
            self._compiled = replace(self._compiled, reason=reason)
        self._write()

    def _look(self) -> Iterator[int]:
        """Look at the script in stages; yields the steps of each, whose mean time is ``_step_s`` then."""
        yield from self._count_and_time()
        self._compiled = _compiled()
        if self._compiled is not None:
            torch.compiler.set_stance("force_eager")
            yield 1
            yield from self._count_and_time()

    def _count_and_time(self) -> Iterator[int]:
        self._hooks.watch = saved = SavedTensors(self._device, self._lasting())
        self._hooks.begin()
        yield 1
        if not saved.saw_backward:
            self._process.note("the script's backward was not seen: what is kept as it begins is not known")
        if saved.problem:
            self._process.note(f"a hook failed, and not all was counted: {saved.problem}")
        counted = saved.counted()
        self._counts.append((saved, counted))
        self._hooks.watch = times = RegionTimes()
        yield _TIMED_STEPS
        recompute_s, hooks_s = times.recompute_s / _TIMED_STEPS, times.hooks_s / _TIMED_STEPS
        self._counts[-1] = saved, replace(counted, step_s=self._step_s, recompute_s=recompute_s, hooks_s=hooks_s)

    def _go_on(self) -> None:
        assert self._looking is not None
        self._steps = self._steps_left = next(self._looking, 0)
        if not self._steps:
            self._write()
            self._process.end()
        self._began_s = now_s()

    @property
    def _device(self) -> str:
        return "cpu" if self._process.device is None else "cuda"

    def _lasting(self) -> Iterable[torch.Tensor]:
        modules = list(self._script.roots.modules())
        groups = itertools.chain.from_iterable(optimizer.param_groups for optimizer in self._script.steps.optimizers)
        return itertools.chain(
            (tensor for module in modules for tensor in (*module.parameters(), *module.buffers())),
            (tensor for group in groups for tensor in group["params"]),
        )

    def _write(self) -> None:
        self._is_written = True
        if self._process.rank != 0 or not self._counts:
            return
        if self._compiled is not None and len(self._counts) > 1:
            self._compiled = replace(self._compiled, eager=self._counts[-1][1])
        # Graphs have no modules: the step without them says where things are.
        saved, _ = self._counts[-1]
        measurement = self._baseline.measurement
        regions = saved.regions()
        audit = Audit(
            counted=self._counts[0][1],
            regions=regions,
            holders=saved.holders(),
            blocks=saved.blocks(),
            idle=() if any(one.freed_bytes for one in regions) else tuple(_idle({*map(id, saved.modules())})),
            compiled=self._compiled,
            peaks=None if measurement is None else measurement.peaks,
            split=self._baseline.split,
            device=self._device,
            notes=tuple(self._process.notes),
        )
        self._process.write(Audited(audit, process=os.getpid()))


def _compiled() -> AuditedCompile | None:
    utils: Any = sys.modules.get("torch._dynamo.utils")
    graphs = 0 if utils is None else utils.counters["stats"]["unique_graphs"]
    if not graphs:
        return None
    return AuditedCompile(graphs, sum(utils.counters["graph_break"].values()))


def _idle(trained: set[int]) -> Iterator[IdleSetting]:
    """Yield what asks for checkpointing in vain; ``trained`` has the numbers of the modules called in training."""
    modules = [one for one in gc.get_objects() if issubclass(type(one), nn.Module)]
    called = {id(part) for one in modules if id(one) in trained for part in one.modules()}
    asking = {
        "gradient_checkpointing": [one for one in modules if getattr(one, "gradient_checkpointing", False) is True],
        "CheckpointWrapper": [one for one in modules if type(one).__name__ == "CheckpointWrapper"],
    }
    for name, found in asking.items():
        if not found:
            continue
        if not any(id(one) in called for one in found):
            reason = "they are no part of what is trained"
        elif not any(one.training for one in found):
            reason = "they are in evaluation mode"
        else:
            reason = "their forward does not look at it, or nothing that they are called with requires a gradient"
        yield IdleSetting(name, len(found), reason)
