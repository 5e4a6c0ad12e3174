"""The conductor inside a training process: from the hooks' events to trials, results and the end of the script."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import multiprocessing
import multiprocessing.util
import os
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import nn

from ..records import (
    STARTER_RANK,
    BatchControl,
    Configuration,
    Described,
    Ended,
    Fallback,
    InvalidPlan,
    Measured,
    MemoryPhase,
    MemorySplit,
    NoTrainingStep,
    OptimizerFacts,
    Outcome,
    OutOfMemory,
    Phase,
    PhaseMemory,
    Request,
    Result,
    ScriptError,
)
from .describe import GraphDescription
from .engines.aot import AotEngine
from .engines.inductor import InductorEngine
from .engines.ortmodule import OrtModuleEngine
from .engines.ortmodule_describe import OrtModuleDescription
from .engines.port import Engine
from .environment import describe_environment
from .facts import Description, memory_split, optimizer_facts
from .failure import ends_with, failure_of
from .hooks.compilation import watch_compile
from .hooks.loaders import LoaderHooks
from .hooks.roots import RootHooks
from .hooks.samples import SampleCounter, Window, tensors_of
from .hooks.steps import StepHooks
from .matrix import MemoryMatrix
from .meters import cuda_device, device_uuid, is_capturing, limit_memory, release_memory, uses_cuda
from .results import ProgressFile, append_line
from .trial import TrialMeter
from .verify import Verification

__all__ = ["Session"]

FailureOutcome = OutOfMemory | ScriptError | Fallback | InvalidPlan

# Steps of a memory matrix. The second one's first row closes the first step, whose optimizer's step is in its peak.
_MATRIX_STEPS = 2
# With fewer measured steps than this a script that ends early gives no figure.
_FEWEST_STEPS = 3
_CAPTURED = "the script captures its training step in a CUDA graph; what a graph replays is not seen, so not counted"


class Session:
    """One training process of a run.

    ``index`` is the configuration under way. Results are written as each trial ends; after the last one every hook
    raises ``SystemExit`` until the script is gone. ``status`` is the exit status that goes with it: 3 where a launched
    script cannot have what its bundle says.
    """

    def __init__(self, request: Request, directory: Path, *, is_child: bool = False) -> None:
        self._is_child = is_child
        self.request = request
        self.directory = directory
        self.index = 0
        self.steps = 0
        self.notes: list[str] = []
        self.has_result = False
        self.status = 0
        self.baseline_calls_per_step = 1.0
        self.observed_batch_size: int | None = None
        self.split: MemorySplit | None = None
        self.optimizers: tuple[OptimizerFacts, ...] = ()
        self._process: int | None = None
        self.device: int | None = None
        self.memory_matrix: tuple[PhaseMemory, ...] = ()
        self._progress: ProgressFile | None = None
        self._rank, self._num_processes = 0, 1
        self._meter: TrialMeter | None = None
        # The trial's outcome, once it was measured and while its memory matrix is taken.
        self._outcome: Outcome | None = None
        self._matrix: MemoryMatrix | None = None
        self._graphs_before_step = 0
        self._calls_before: tuple[Counter[Any], int] | None = None
        self._calls_in_step: Counter[Any] | None = None
        self._finished = 0
        self._memory_limited = False
        self._description: Description | None = None
        self._verification = Verification(request.verifying, directory) if request.mode == "verify" else None
        self._engine = _engine_of(request)
        batch_size = request.configurations[0].batch_size
        control = request.batch_control
        self.loaders = LoaderHooks(batch_size, control or BatchControl("none"), self.note)
        self._samples = SampleCounter(self.loaders, batch_size)
        self.roots = RootHooks(
            engine=self._engine,
            training_call=self._training_call,
            evaluation_call=self._evaluation_call,
            call_done=lambda: self._take_memory("post_forward"),
            note=self.note,
        )
        self.step_hooks = StepHooks(
            phase=self._enter_phase,
            backward_done=self._backward_done,
            step_done=self._step_done,
            parameters=lambda: (parameter for module in self.roots.modules() for parameter in module.parameters()),
            failed=self._hook_failed,
            hands_off=self._is_capturing,
        )

    def install(self) -> None:
        """Patch torch; called once per process, when the script has imported it."""
        if self._engine is not None:
            self._engine.use(self.configuration)
        self.roots.install()
        watch_compile(self._engine, self.roots.shim, self.note, [*self.roots.entries(), *self.step_hooks.entries()])
        self.loaders.install()
        self.step_hooks.install()

    @property
    def configuration(self) -> Configuration:
        """The configuration under way."""
        return self.request.configurations[self.index]

    @property
    def phase(self) -> Phase:
        """Where this process is in its training step."""
        return self._progress.phase if self._progress is not None else "start"

    @property
    def has_trained(self) -> bool:
        """Whether this process, and not only one that it was forked from, made a training call."""
        return self._process == os.getpid()

    def note(self, text: str) -> None:
        """Keep a line for the outcome; each once, and not without end."""
        if text not in self.notes and len(self.notes) < 50:
            self.notes.append(text)

    # -- events of the hooks

    def _is_capturing(self) -> bool:
        """Whether the script captures a CUDA graph, which nothing of ours may disturb."""
        capturing = is_capturing()
        if capturing:
            self.note(_CAPTURED)
        return capturing

    def _training_call(self, root: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        if self._is_capturing():
            return
        if self._finished:
            self._end()
        self._make_ready(itertools.chain(root.parameters(), tensors_of((arguments, keywords))))
        if self._engine is not None:
            self._engine.begin_call()
        dimension = self._samples.training_call(arguments, keywords)
        if self._description is not None and dimension is not None:
            self._description.see_call(root, tensors_of((arguments, keywords)), dimension)
        self._enter_phase("forward")
        self._take_memory("pre_forward")

    def _evaluation_call(self) -> None:
        if self._finished:
            self._end()
        self.loaders.evaluation_call()

    def _enter_phase(self, phase: Any) -> None:
        if self._description is not None and phase == "backward":
            self._description.backward_begins()
        if self._progress is not None:
            self._progress.update(phase=phase)
        if phase == "backward":
            self._take_memory("pre_backward")

    def _take_memory(self, phase: MemoryPhase) -> None:
        # A backward inside a backward belongs to it: the script's own checkpoint.
        if self._matrix is not None and torch._C._current_graph_task_id() == -1:
            self._matrix.take(phase)

    def _backward_done(self, loss: Any) -> None:
        self._take_memory("post_backward")
        self._samples.backward_done()
        if self._description is not None:
            self._description.backward_done()
        first = loss[0] if isinstance(loss, (list, tuple)) and loss else loss
        if not isinstance(first, torch.Tensor) or first.numel() != 1:
            return
        if self._verification is not None:
            self._verification.add_loss(first)
        elif self._meter is not None:
            # A copy, as a loss may be a part of something large. Larger outputs would add to the peak.
            self._meter.loss = first.detach().clone()

    def _step_done(self) -> None:
        if self._finished:
            self._end()
        window = self._samples.close()
        # Where no root call was seen the model is called past nn.Module.__call__: steps are still steps.
        self._make_ready()
        self.steps += 1
        if self._progress is not None:
            # Also where: a model that moves itself to a device in its first forward was on the CPU before.
            self._progress.update(steps=self.steps, device=device_uuid(self.device))
        if self.request.mode == "launch":
            self._check_launch(window.batch_size)
        elif self._verification is not None:
            self._verify_step(self._verification, window)
        elif self._description is not None:
            self._describe_step()
        else:
            self._measure_step(window)

    # -- trials

    def _make_ready(self, tensors: Iterable[torch.Tensor] = ()) -> None:
        """Before the first training call of a process, and of each trial; ``tensors`` are the call's."""
        if self._process != os.getpid():
            self.device = cuda_device(tensors)
            self._start_process()
        if self._meter is None and self._description is None and self.request.mode in ("measure", "discover"):
            self._limit_memory()
            self._meter = TrialMeter(self.request.measuring, fixed_length=self._num_processes > 1, device=self.device)
            self._meter.begin()

    def _start_process(self) -> None:
        """Learn the rank at the first training call (torch.distributed is up by then), also after a fork."""
        self._process = os.getpid()
        if self.request.mode != "launch" and (multiprocessing.parent_process() is not None or self._is_child):
            # Nobody says here how the script ended. Processes that multiprocessing forked leave without running atexit.
            multiprocessing.util.Finalize(None, self._child_ended, exitpriority=0)
            atexit.register(self._child_ended)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            self._rank, self._num_processes = torch.distributed.get_rank(), torch.distributed.get_world_size()
        if self.request.mode != "launch":
            self._progress = ProgressFile(self.directory, self._rank, self._num_processes, device_uuid(self.device))
        if self._verification is not None:
            self._limit_memory()
            self._verification.begin(self._rank)

    def _limit_memory(self) -> None:
        """Let torch's allocator enforce a limit below the card's size; on CPU the controller watches."""
        limit = self.request.memory_limit_bytes
        if limit is None or self._memory_limited or not uses_cuda():
            return
        self._memory_limited = True
        before = self.request.free_bytes.get(device_uuid(self.device))
        limit_memory(limit, self.device, free_before=before, num_processes=self._num_processes)

    def _measure_step(self, window: Window) -> None:
        assert self._meter is not None
        if self._matrix is not None:
            self._matrix.step += 1
            if self._matrix.step == self._matrix.first_step + _MATRIX_STEPS:
                self._finish_trial()
            return
        graphs = self._engine.num_compiled if self._engine is not None else 0
        compiled, self._graphs_before_step = graphs != self._graphs_before_step, graphs
        failure = self._engine_failure() if self._meter.steps == 0 else self._engine_stopped(window)
        if failure is not None:
            self.finish_with(failure)
            self._end("the configuration could not be applied")
        if not self._meter.measured_steps:
            self._take_stock()
        if self._meter.step(window, compiled=compiled):
            self._take_stock()
            self._outcome = self._measured()
            if self.request.memory_matrix and isinstance(self._outcome, Measured):
                self._matrix = MemoryMatrix(self.roots.modules, step=self.steps, rank=self._rank)
            else:
                self._finish_trial()

    def _take_stock(self) -> None:
        """Keep figures of the models and optimizers: when the script has ended, they are gone."""
        self.split = memory_split(self.roots.modules(), self.step_hooks.optimizers)
        self.optimizers = tuple(map(optimizer_facts, self.step_hooks.optimizers))

    def _engine_failure(self) -> Fallback | InvalidPlan | None:
        """Whether the engine ran what was asked for."""
        problem = self._engine.problem() if self._engine is not None else None
        if problem is None:
            return None
        cls: type[Fallback | InvalidPlan] = InvalidPlan if problem.kind == "invalid_plan" else Fallback
        return cls(cause=problem.cause, advice=problem.advice)

    def _engine_stopped(self, window: Window) -> Outcome | None:
        """Whether a later step ran without the engine: Dynamo gives up on a function that it compiles too often.

        That shows where no graph ran at all; or where Dynamo gave up on something in this step, and a graph ran less
        often than in the step before. Fewer runs alone say nothing: not every step needs every part of a model.
        """
        engine = self._engine
        calls = engine.forward_calls() if engine is not None and engine.active else None
        if engine is None or calls is None:
            return None
        given_up = engine.frames_given_up()
        before, self._calls_before = self._calls_before, (calls, given_up)
        if before is None:
            return None
        earlier, self._calls_in_step = self._calls_in_step, calls - before[0]
        fewer = earlier is not None and bool(earlier - self._calls_in_step) and given_up > before[1]
        if not window.calls or (self._calls_in_step and not fewer):
            return None
        assert self._meter is not None
        cause = f"after {self._meter.steps} steps Dynamo gave up on the model, which it had to compile anew too often"
        return Fallback(cause=cause, advice="TORCH_LOGS=recompiles says why; --engine eager searches batch sizes only.")

    def _batch_failure(self, observed: int | None) -> Outcome | None:
        """Whether batches had the size that was asked for; the usual batch counts, an epoch's last may be smaller."""
        wanted = self.configuration.batch_size
        if wanted is None or observed is None or observed == wanted:
            return None
        cause = f"batch size {wanted} was asked for, but the batches of the training steps hold {observed} samples"
        return Fallback(cause=cause, advice="`autotune discover SCRIPT` says how the batch size is set.")

    def _finish_trial(self) -> None:
        """Write the measurement and go on to the next configuration, or end the run."""
        outcome = self._trial_outcome()
        self.finish_with(outcome)
        if not isinstance(outcome, Measured):
            self._end("the trial failed")
        if self.request.mode == "discover" and self._engine is not None:
            self._begin_description()
        elif self.index + 1 < len(self.request.configurations):
            self._switch()
        else:
            self._end()

    def _trial_outcome(self) -> Outcome:
        """What was measured, with the memory matrix as far as it was taken."""
        outcome = self._outcome or self._measured()
        if self._matrix is not None and isinstance(outcome, Measured):
            self.memory_matrix = self._matrix.rows
            outcome = Measured(replace(outcome.measurement, memory_matrix=self.memory_matrix))
        self._outcome = self._matrix = None
        return outcome

    def _measured(self) -> Outcome:
        meter = self._meter
        assert meter is not None
        engine = self._engine if self._engine is not None and self._engine.active else None
        if engine is not None and engine.ran_unchanged():
            cause = "no step of the trial used the parts of the model that the plans change"
            return Fallback(cause=cause, advice="Those parts ran earlier only; plans for others can be measured.")
        saved = engine.saved_bytes() if engine is not None else None
        assert self.split is not None
        split = replace(self.split, activations=saved)
        measurement = meter.measurement(
            num_processes=self._num_processes, split=split, saved_bytes=saved, notes=self.notes
        )
        self.observed_batch_size = measurement.batch_size
        self.baseline_calls_per_step = measurement.calls_per_step
        return self._batch_failure(measurement.batch_size) or Measured(measurement)

    def finish_with(self, outcome: Outcome) -> None:
        """Write the outcome of the configuration under way."""
        environment = describe_environment(self.device)
        append_line(
            self.directory,
            Result(self.index, outcome, environment, process=os.getpid(), rank=self._rank),
        )
        self.has_result = True

    def _switch(self) -> None:
        """Go on with the next configuration at this step boundary, or end the run where that is not possible."""
        self.index += 1
        self.has_result = False
        refusal = self._engine.use(self.configuration) if self._engine is not None else None
        if refusal is not None:
            self._end(reason=f"cannot go on to {self.configuration} in this process: {refusal}")
        # Caches go before the controller attributes its samples to the next trial.
        release_memory(self.device)
        self._meter = None
        self._calls_before = self._calls_in_step = None
        if self._progress is not None:
            self._progress.update(index=self.index)

    # -- discovery

    def _begin_description(self) -> None:
        assert self._engine is not None
        assert self._meter is not None
        self._description = _ENGINES[self._engine.name][1](self, self._engine)
        for text in self._engine.describe():
            self.note(text)
        self._engine.use(Configuration(engine=self._engine.name))

    def _describe_step(self) -> None:
        assert self._description is not None
        if self._description.step_done():
            self.describe()
            self._end()

    def describe(self) -> None:
        """Write the facts, with what is known so far."""
        assert self._description is not None
        self._description.written = True
        if self._rank == 0:
            append_line(self.directory, Described(self._description.facts(), process=os.getpid()))

    # -- verifying

    def _verify_step(self, verification: Verification, window: Window) -> None:
        failure = (self._engine_failure() or self._batch_failure(window.batch_size)) if self.steps == 1 else None
        if failure is not None:
            self.finish_with(failure)
            self._end("the configuration could not be applied")
        if verification.step(self.roots.modules(), self.step_hooks.optimizers):
            self._write_comparison(verification)
            self._end()

    def _write_comparison(self, verification: Verification) -> None:
        is_compiled = self._engine is not None and self._engine.is_compiled
        append_line(self.directory, verification.result(os.getpid(), is_compiled=is_compiled))
        self.has_result = True

    # -- launching

    def _check_launch(self, observed_batch_size: int | None) -> None:
        """After the first step of a launched script: refuse to go on with anything but what the bundle says."""
        if self.steps > 1:
            return
        failure = self._engine_failure() or self._batch_failure(observed_batch_size)
        if failure is not None and not isinstance(failure, Measured):
            sys.stderr.write(f"autotune: the bundle cannot be applied to this script: {failure.cause}\n")
            sys.stderr.write("  next: `autotune run` on this script writes a bundle for it\n")
            sys.stderr.flush()
            self.status = 3
            self._finished = 1
            self._end()

    # -- the end

    def script_ended(self, status: object = None) -> None:
        """The script ran to its end before the run was done: keep what was measured, or say why there is nothing.

        Args:
            status: what it gave to ``sys.exit``: a number, a message, or nothing.
        """
        if self._finished:
            return
        meter = self._meter
        if not self.has_result and not self._others_trained():
            if self._verification is not None and self._verification.steps:
                self._write_comparison(self._verification)
            elif self._outcome is not None:
                self.finish_with(self._trial_outcome())
            elif meter is not None and meter.measured_steps >= _FEWEST_STEPS:
                self.note(f"the script ended after {meter.measured_steps} measured steps")
                self.finish_with(self._measured())
            else:
                self.finish_with(self._no_training_step(status))
        if self.request.mode == "discover" and self._engine is not None and self.has_result and self.has_trained:
            self._describe_early()
        self._write_end("the script ended")

    def _child_ended(self) -> None:
        """A process that the script started comes to its end."""
        error = ends_with()
        if error is None:
            self.script_ended()
        else:
            self.write_failure(self.failure(error))

    def _no_training_step(self, status: object) -> NoTrainingStep:
        needed = self.request.measuring.min_warmup_steps + 2 + self.request.measuring.min_steps
        if self.steps:
            cause = f"the script ended after {self.steps} training steps"
            advice = f"A trial needs about {needed} optimizer steps: give the script more data or more epochs."
            if _CAPTURED in self.notes:
                cause, advice = f"{cause}: {_CAPTURED}", "Run the script without its CUDA graph to tune it."
        elif status not in (None, 0):
            cause = f"the script exited with status {status!r} before its first training step"
            advice = "Its last lines say why; the script's own arguments go after `--`."
        else:
            cause = "no training step ran"
            advice = "A training step is a backward through a torch.nn.Module, and an optimizer's step."
        return NoTrainingStep(cause=cause, advice=advice, steps_seen=self.steps)

    def _describe_early(self) -> None:
        """The script was too short for the steps under the engine: leave the facts that there are."""
        if self._description is None:
            self._begin_description()
        self.note("the script ended before its graphs could be described: with a few more steps it gets plans")
        self.describe()

    def _others_trained(self) -> bool:
        own = f"progress-{os.getpid()}"
        return not self.has_trained and any(path.name != own for path in self.directory.glob("progress-*"))

    def failure(self, error: BaseException, cause: str | None = None) -> FailureOutcome:
        """What to call the exception that ended the script: its own, or one of the engine that it cannot run under.

        Args:
            error: the exception.
            cause: what to say instead of the exception's type and text.
        """
        if self._engine is not None and self._engine.active and self._engine.raised(error):
            self._engine.refuse(f"the script cannot run under this engine: {type(error).__name__}: {error}"[:500])
            refused = self._engine_failure()
            assert refused is not None
            return refused
        return failure_of(error, phase=self.phase, limit_bytes=self.request.memory_limit_bytes, cause=cause)

    def write_failure(self, outcome: FailureOutcome) -> None:
        """What ended the script before its run was done: as an outcome, or as the last word if it has one already."""
        if self._finished:
            return
        is_described = self._description is None or self._description.written
        if not is_described and outcome == self._engine_failure():
            # The script as it stands was measured: without plans there are still batch sizes to search.
            self.describe()
        if not self.has_result:
            if self._others_trained():
                self._rank = STARTER_RANK
            self.finish_with(outcome if self._outcome is None else self._trial_outcome())
        self._write_end(outcome.cause)

    def _hook_failed(self, error: Exception) -> None:
        """A hook inside the script's own step failed: the run ends with that; a launched script goes on."""
        cause = f"autotune itself failed in a training step: {type(error).__name__}: {error}"
        if cause not in self.notes:
            sys.stderr.write(f"{cause}\n")
            traceback.print_exception(error)
        self.note(cause)
        if self.request.mode == "launch":
            return
        try:
            self.write_failure(Fallback(cause=cause, advice="Please report this, with the last lines of stderr.log."))
        except Exception as second:
            # A full disk, say: what is left is stderr.log.
            sys.stderr.write(f"autotune could not write this down: {type(second).__name__}: {second}\n")
            self._finished += 1
        self._end(cause)

    def _write_end(self, reason: str) -> None:
        self._finished += 1
        append_line(self.directory, Ended(process=os.getpid(), rank=self._rank, reason=reason))

    def _end(self, reason: str = "done") -> NoReturn:
        if not self._finished:
            self._write_end(reason)
        else:
            self._finished += 1
        if self._finished > 3:
            # The script swallows SystemExit at every step; nothing is left to lose.
            for child in multiprocessing.active_children():
                child.terminate()
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):
                    stream.flush()
            os._exit(self.status)
        # Clean in the main thread, in processes made by spawn and by fork, and in threads: those pass over SystemExit
        # itself without a word, but not over a class derived from it.
        raise SystemExit(self.status)


# Each engine, and how it describes a script.
_ENGINES: dict[str, tuple[type[Engine], Callable[[Session, Any], Description]]] = {
    AotEngine.name: (AotEngine, GraphDescription),
    InductorEngine.name: (InductorEngine, GraphDescription),
    OrtModuleEngine.name: (OrtModuleEngine, OrtModuleDescription),
}


def _engine_of(request: Request) -> Engine | None:
    """The one engine that a run may need beside the plain script, or None."""
    described = {request.describe_engine} if request.mode == "discover" else set()
    names = described | {configuration.engine for configuration in request.configurations} - {"eager"}
    assert len(names) <= 1, f"a run has one engine, not {names}"
    return _ENGINES[names.pop()][0]() if names else None
