"""Facts that discovery reports under every engine: the script's batch, roots, optimizers, precision, environment."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from ...records.arrivals import Arrivals, Arrived
from ...records.configuration import Configuration
from ...records.engines import ENGINES
from ...records.facts import (
    AccumulationControl,
    BatchControl,
    ClusterFacts,
    Facts,
    OptimizerFacts,
    OutsideFacts,
    PrecisionFacts,
    RootFacts,
    StepsFacts,
)
from ...records.graph import ActivationGraph, Calibration, StepTrace
from ...records.look_ahead import LookAhead
from ...records.measurement import Measurement, MemorySplit
from ...records.outcome import Fallback, Measured, Outcome, OutOfMemory
from ...records.run import Request
from ..engines.port import Engine, NothingRan
from ..environment import describe_environment, found_heap_libraries
from ..hooks import arguments, batch_size, training_libraries
from ..hooks.hooked_script import HookedScript
from ..hooks.loaders import LoaderHooks
from ..hooks.roots import Root
from ..process import TrainingProcess
from ..sharded_modules import sharding_facts
from .attention import Attention
from .fingerprint import model_print, own_files
from .root_inputs import RootCall, RootInputs

# What Triton generates code for (torch.utils._triton.has_triton, which would import Triton into the script).
_LEAST_CAPABILITY = 7


def compile_refusal(roots: Iterable[Root], device: int | None, undescribed: Outcome | None) -> str:
    """Return why Inductor cannot compile a script, or changes nothing; empty where it may.

    ``undescribed`` is why it could not be described: what torch cannot trace it cannot compile either.
    """
    own = next((root.name for root in roots if root.applied_by and root.applied_by not in ENGINES), "")
    if own:
        return f"the script compiles {own} itself"
    if isinstance(undescribed, Fallback):
        return undescribed.cause
    if device is None:
        # Of the compilers that autotune's own extension may take Inductor looks for these only.
        name = os.environ.get("CXX", "g++")
        return "" if shutil.which(name) else f"Inductor's code for CPUs needs a C++ compiler, and there is no {name!r}"
    if "triton" not in sys.modules and importlib.util.find_spec("triton") is None:
        return "Inductor's code for GPUs needs the package triton, which is not installed"
    major, minor = torch.cuda.get_device_capability(device)
    if major < _LEAST_CAPABILITY:
        return (
            f"Inductor's code for GPUs needs compute capability {_LEAST_CAPABILITY}.0, and this one has {major}.{minor}"
        )
    return ""


SCRIPT_OVER = "the script ended before its graphs could be described: with a few more steps it gets plans"


@dataclass(frozen=True)
class Baseline:
    """The measurements of the script as it stands, as far as measuring came."""

    measurement: Measurement | None = None
    split: MemorySplit | None = None
    optimizers: tuple[OptimizerFacts, ...] = ()
    attention: frozenset[Attention] = frozenset()
    arrived: tuple[Arrived, ...] = ()

    @property
    def batch_size(self) -> int | None:
        """Return the usual batch size."""
        return None if self.measurement is None else self.measurement.batch_size

    @property
    def micro_batches(self) -> float | None:
        """Return how many of them this process took per optimizer step; the measurement is its own part."""
        return None if self.measurement is None else replace(self.measurement, num_processes=1).micro_batches


@dataclass(frozen=True)
class PlanTable:
    """An engine's plans: the rows, the values of the symbols in the rows' formulas, and what can be simulated."""

    clusters: tuple[ClusterFacts, ...]
    dimensions: dict[str, int]
    graphs: tuple[ActivationGraph, ...] = ()
    calibration: Calibration | None = None
    notes: tuple[str, ...] = ()
    outside: tuple[OutsideFacts, ...] = ()
    traces: tuple[StepTrace, ...] = ()


@dataclass(eq=False)
class Description(ABC):
    """Collects what discovery reports, over a few steps under the engine that the script is described under."""

    process: TrainingProcess
    script: HookedScript
    engine: Engine
    baseline: Baseline
    inputs: RootInputs

    def see_call(self, call: RootCall) -> None:  # noqa: B027  (not every engine has to know)
        """Note that a root is about to be called in training; ``inputs`` has seen the call."""

    def see_inner_call(self, module: nn.Module, inputs: Any) -> None:  # noqa: B027  (not every engine has to know)
        """Note that a module inside of a root is called outside of its graphs."""

    def call_done(self) -> None:  # noqa: B027  (not every engine has to know)
        """Note that the script's call of a module has returned."""

    def backward_begins(self) -> None:  # noqa: B027  (not every engine has to know)
        """Note that the script begins its backward."""

    def backward_done(self) -> None:  # noqa: B027  (not every engine has to know)
        """Note that the script's backward has returned."""

    @abstractmethod
    def step_done(self) -> bool:
        """Note that a step under the engine has ended; True when everything has been seen."""

    @abstractmethod
    def plan_table(self, modules: list[nn.Module], batch: int | None) -> PlanTable:
        """Return what can be planned of these roots, at the script's usual batch size."""

    @property
    def knows_plans(self) -> bool:
        """Return whether there is a plan table already, before everything has been seen."""
        return False

    def facts_so_far(self) -> Facts:
        """Return the facts that are known before everything has been seen."""
        return self.facts() if self.knows_plans else self._facts(PlanTable((), {}), None)

    def facts(self, failure: Outcome | None = None, *, script_is_over: bool = False) -> Facts:
        """Return the facts, with what the graphs have shown; ``failure`` is what ended the description early.

        What ran out of memory has shown what could be recomputed. After any other failure no plan would be measured.
        """
        problem = self.engine.problem()
        if failure is not None and not isinstance(failure, OutOfMemory):
            return self._facts(PlanTable((), {}), failure)
        if failure is None and problem is not None:
            # What was not captured yet is no fault of the script's.
            is_early = script_is_over and isinstance(problem, NothingRan)
            failure = Fallback(SCRIPT_OVER) if is_early else Fallback(problem.cause, advice=problem.advice)
        try:
            observed, _ = self._batch_control()
            table = self.plan_table(list(self.script.roots.modules()), observed)
        except Exception as error:
            # The baseline and the batch sizes are worth a study of their own.
            cause = f"the plan table could not be made: {type(error).__name__}: {error}"
            return self._facts(PlanTable((), {}), failure or Fallback(cause, advice="Please report this."))
        return self._facts(table, failure, script_is_over=script_is_over)

    def _facts(self, table: PlanTable, undescribed: Outcome | None, *, script_is_over: bool = False) -> Facts:
        process, engine, baseline = self.process, self.engine, self.baseline
        measured = baseline.measurement
        saved = engine.saved_bytes()
        modules = list(self.script.roots.modules())
        observed, control = self._batch_control()
        accumulated = self._accumulation_control()
        if process.request.accumulation_control is not None and not accumulated.can_set:
            process.note(f"the accumulation is left alone: {accumulated.reason}")
        environment = describe_environment(process.device, trains_on_cpu=process.trains_on_cpu)
        heap = found_heap_libraries() if environment.device_kind == "cpu" else None
        said = () if undescribed is None or isinstance(undescribed, Measured) else (undescribed.cause,)
        notes = [note for note in (*process.notes, *table.notes) if note not in said]
        return Facts(
            baseline=Configuration(batch_size=observed or process.request.batch_size),
            batch_size=observed,
            batch_control=control,
            clusters=table.clusters,
            dimensions=table.dimensions,
            split=None if baseline.split is None else replace(baseline.split, activations=saved),
            roots=tuple(self._root_facts(modules)),
            optimizers=baseline.optimizers,
            precision=self._precision(modules),
            sharding=sharding_facts(modules),
            environment=replace(environment, heap_libraries=heap),
            calls_per_step=1.0 if measured is None else measured.calls_per_step,
            memory_matrix=() if measured is None else measured.memory_matrix,
            script_sha256=process.request.script_sha256,
            notes=tuple(dict.fromkeys(notes)),
            graphs=table.graphs,
            calibration=table.calibration,
            fork_refusal=process.fork_refusal,
            compile_refusal=compile_refusal(self.script.roots.roots.values(), process.device, undescribed),
            preload=process.preload,
            per_sample={name: share for name, share in self.inputs.per_sample.items() if name in table.dimensions},
            undescribed=undescribed,
            accumulation_control=accumulated,
            epoch=self.script.loaders.epoch(self.baseline.batch_size),
            steps=self._steps(script_is_over=script_is_over),
            outside=table.outside,
            traces=table.traces,
            files=own_files(),
            models=tuple(map(model_print, modules)),
            ahead=self._ahead(),
        )

    def _ahead(self) -> LookAhead | None:
        sample = self.script.loaders.sample
        return None if sample is None else sample.found()

    def _steps(self, *, script_is_over: bool) -> StepsFacts:
        """Return how many optimizer steps the script has, as far as its DataLoader or its end tells."""
        in_all = self.process.steps if script_is_over else None
        own, taken = self.baseline.batch_size, self.baseline.micro_batches
        epoch = self.script.loaders.epoch(own)
        if epoch is None or not own or taken is None:
            return StepsFacts(in_all=in_all)
        return StepsFacts(epoch.batches(own) / max(taken, 1.0), in_all)

    def _batch_control(self) -> tuple[int | None, BatchControl]:
        """Return the script's own batch size as observed, and how it can be set."""
        observed = self.baseline.batch_size
        return observed, batch_control_of(self.process.request, self.script, observed, self.baseline.arrived)

    def _accumulation_control(self) -> AccumulationControl:
        given, seen = self.process.request.accumulation_control, self.baseline.micro_batches
        if seen is None:
            return given or AccumulationControl("none", reason="the script's steps were not measured")
        return training_libraries.control(given, seen)

    def _root_facts(self, modules: list[nn.Module]) -> Iterable[RootFacts]:
        # Making a parametrization calls it, and a script may call a part of its model by itself.
        parts = {id(part) for module in modules for part in module.modules() if part is not module}
        for module in modules:
            root = self.script.roots.roots[id(module)]
            if id(module) in parts and not root.wrapped_by:
                continue
            parameters = list(module.parameters())
            yield RootFacts(
                name=root.name,
                num_parameters=sum(parameter.numel() for parameter in parameters),
                num_trainable=sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
                num_graphs=self.engine.num_compiled,
                applied_by=root.applied_by,
                wrapped_by=root.wrapped_by,
            )

    def _precision(self, modules: list[nn.Module]) -> PrecisionFacts | None:
        # Quantized weights are whole numbers, which nothing is computed in.
        parameters = [p for module in modules for p in module.parameters() if p.is_floating_point() or p.is_complex()]
        types = Counter(str(p.dtype).removeprefix("torch.") for p in parameters)
        if not types:
            return None
        return PrecisionFacts(types.most_common(1)[0][0], self.inputs.autocast, self.script.steps.grad_scaler)


def batch_control_of(
    request: Request, script: HookedScript, observed: int | None, arrived: tuple[Arrived, ...]
) -> BatchControl:
    """Return how the script's batch size can be set, with what ``observed`` samples of a batch bring to the models."""
    control = _batch_control_of(request, script.loaders)
    control = replace(control, in_evaluation_mode=script.roots.trains_in_evaluation_mode)
    options = arguments.seen or arguments.on_command_line(sys.argv[1:])
    if not observed and not control.can_set:
        return replace(control, options=dict(options))
    if not observed or control.arrivals is not None:
        return control
    numbers = {observed, *(one.shape[0] for one in arrived if one.shape)}
    options = {name: value for name, value in options.items() if value in numbers}
    return replace(control, arrivals=Arrivals(observed, arrived) if arrived else None, options=options)


def _batch_control_of(request: Request, loaders: LoaderHooks) -> BatchControl:
    """Return how a batch size can be set: as the request says, else as the script's DataLoaders allow."""
    if request.batch_control is not None and request.batch_control.can_set:
        return request.batch_control
    if batch_size.asked:
        return BatchControl("function")
    feeding = loaders.training_loaders()
    resizable = tuple(loader.ordinal for loader in feeding if not loader.reason)
    if resizable:
        return BatchControl("loaders", loaders=resizable, sites=loaders.training_sites())
    if feeding:
        return BatchControl("none", reason=f"the DataLoader cannot be resized: {feeding[0].reason}")
    return BatchControl("none", reason="no DataLoader feeds training")


def optimizer_facts(optimizer: torch.optim.Optimizer) -> OptimizerFacts:
    """Return an optimizer's class, and the settings of its first group as text."""
    group = optimizer.param_groups[0] if optimizer.param_groups else {}
    settings = {
        name: str(value)
        for name, value in group.items()
        if isinstance(value, (bool, int, float, str, tuple, list, type(None))) and name != "params"
    }
    return OptimizerFacts(type(optimizer).__name__, settings)
