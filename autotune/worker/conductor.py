"""The conductor inside a training process: from the hooks' events to the mode of the run, and to the script's end."""

from __future__ import annotations

import atexit
import itertools
import multiprocessing.util
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any

import torch
from torch import nn

from ..records.facts import BatchControl
from ..records.outcome import Fallback, InvalidPlan, NoTrainingStep, OutOfMemory, Phase, ScriptError
from ..records.run import STARTER_RANK, Result
from ..records.shortage import OUT_OF_MEMORY_STATUS, shortage_text
from .absent.recorder import CannotFollowError
from .applied import AppliedConfiguration
from .describing.root_inputs import RootCall
from .device import uses_cuda
from .failure import (
    BY_ITSELF,
    EXIT_ADVICE,
    ON_THE_GPU,
    ends_with,
    exit_words,
    failure_of,
    let_children_end,
    ran_out_of_memory,
)
from .hooks.compilation import watch_compile
from .hooks.hooked_script import HookedScript
from .hooks.loaders import LoaderHooks
from .hooks.roots import RootHooks
from .hooks.samples import SampleCounter, shapes_of, tensors_of
from .hooks.steps import StepHooks
from .modes.audit import AuditMode
from .modes.base import Mode
from .modes.discover import DiscoverMode
from .modes.launch import LaunchMode
from .modes.locate import LocateMode
from .modes.measure import MeasureMode
from .modes.trace import TraceMode
from .modes.verify import VerifyMode
from .process import TrainingProcess

FailureOutcome = OutOfMemory | ScriptError | Fallback | InvalidPlan

_MODES: dict[str, type[Mode]] = {
    "audit": AuditMode,
    "discover": DiscoverMode,
    "measure": MeasureMode,
    "verify": VerifyMode,
    "launch": LaunchMode,
    "locate": LocateMode,
    "trace": TraceMode,
}
_CAPTURED = "the script captures its training step in a CUDA graph; what a graph replays is not seen, so not counted"


class Conductor:
    """Installs the hooks, and leads one training process through its run; ``is_child``: the script has started it.

    After the last result every hook raises ``SystemExit``, until the script is gone.
    """

    def __init__(self, process: TrainingProcess, *, is_child: bool = False) -> None:
        self._is_child = is_child
        self.process, request = process, process.request
        self._applied = AppliedConfiguration(process)
        control = request.batch_control or BatchControl("none")
        loaders = LoaderHooks(request.batch_size, control, process.note, is_stale=request.allow_stale)
        self._samples = SampleCounter(loaders, request.batch_size)
        roots = RootHooks(
            engine=self._applied.engine,
            training_call=self._training_call,
            evaluation_call=self._evaluation_call,
            call_done=lambda: self._mode.memory("post_forward"),
            inner_call=self._inner_call,
            around=self._applied.around,
            is_optimized=self._is_optimized,
            note=process.note,
            trains_in_evaluation_mode=control.in_evaluation_mode,
        )
        steps = StepHooks(
            phase=self._enter_phase,
            backward_begins=self._backward_begins,
            before_step=self._applied.choices.before_step,
            backward_done=self._backward_done,
            step_done=self._step_done,
            parameters=lambda: (parameter for module in roots.modules() for parameter in module.parameters()),
            failed=self._hook_failed,
            hands_off=self._is_capturing,
        )
        self._script = HookedScript(roots, steps, loaders)
        self._mode = _MODES[request.mode](process, self._script, self._applied)

    def install(self) -> None:
        """Patch torch; called once per process, when the script has imported it."""
        script = self._script
        self._applied.install()
        script.roots.install()
        watch_compile(
            self._applied.engine,
            script.roots.shim,
            self.process.note,
            [*script.roots.entries(), *script.steps.entries()],
            leave_out_search=None if self.process.request.kernel_search else self.process.leave_out_search,
        )
        script.loaders.install()
        script.steps.install()
        self._mode.installed()
        if self._is_child and self.process.request.mode == "launch":
            self._tell_shortage()
        elif self._is_child:
            self._when_child_ends(self._child_never_trained)
        else:
            self._mode.script_begins()

    def _is_capturing(self) -> bool:
        # Asked first, as a wait for the device would end the capture.
        capturing = uses_cuda() and torch.cuda.is_current_stream_capturing()
        if capturing:
            self.process.note(_CAPTURED)
        return capturing

    def _training_call(self, root: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        if self._is_capturing():
            return
        if self.process.has_ended:
            self.process.end()
        self._make_ready(itertools.chain(root.parameters(), tensors_of((arguments, keywords))))
        if self._applied.engine is not None:
            self._applied.engine.begin_call(shapes_of((arguments, keywords)))
        dimension = self._samples.training_call(arguments, keywords)
        samples, number = self._samples.call_samples, self._samples.batch_number
        self._mode.inputs(RootCall(root, arguments, keywords, dimension or 0, samples, number))
        self._enter_phase("forward")
        self._mode.memory("pre_forward")

    def _is_optimized(self, module: nn.Module) -> bool:
        return self._script.steps.optimizes(module)

    def _inner_call(self, module: nn.Module, inputs: Any) -> None:
        self._mode.inner_inputs(module, inputs)

    def _evaluation_call(self) -> None:
        if self.process.has_ended:
            self.process.end()
        self._script.loaders.evaluation_call()

    def _enter_phase(self, phase: Phase) -> None:
        self.process.progressed(phase=phase)

    def _backward_begins(self, loss: Any) -> None:
        self._mode.backward_begins(loss)
        self._enter_phase("backward")
        self._mode.memory("pre_backward")

    def _backward_done(self, loss: Any) -> None:
        self._mode.memory("post_backward")
        self._samples.backward_done()
        self._mode.backward_done()
        first = loss[0] if isinstance(loss, (list, tuple)) and loss else loss
        # Larger outputs would add to the peak.
        if isinstance(first, torch.Tensor) and first.numel() == 1:
            self._mode.loss(first)

    def _step_done(self) -> None:
        process = self.process
        if process.has_ended:
            process.end()
        window = self._samples.close()
        # Where no root call was seen the model is called past nn.Module.__call__: steps are still steps.
        self._make_ready(self._optimized())
        if not process.steps:
            self._script.roots.first_step_done()
        process.steps += 1
        process.progressed(steps=process.steps)
        self._mode.step(window)

    def _optimized(self) -> Iterator[torch.Tensor]:
        """Return the tensors that the script's optimizers change."""
        for optimizer in self._script.steps.optimizers:
            for group in optimizer.param_groups:
                yield from group["params"]

    def _make_ready(self, tensors: Iterable[torch.Tensor]) -> None:
        """Prepare the process, and each trial, at its first training call; ``tensors`` are the call's."""
        self.process.find_device(tensors)
        if not self.process.has_trained:
            self._when_child_ends(self._child_ended)
            self.process.begin()
            self._mode.process_began()
        self._mode.ready()

    def _hook_failed(self, error: Exception) -> None:
        """End the run, as a hook inside the script's own step failed; a launched script goes on."""
        cause = f"autotune itself failed in a training step: {type(error).__name__}: {error}"
        if cause not in self.process.notes:
            sys.stderr.write(f"{cause}\n")
            traceback.print_exception(error)
        self.process.note(cause)
        if self.process.request.mode == "launch":
            return
        try:
            self.write_failure(Fallback(cause=cause, advice="Please report this, with the end of its log."))
        except Exception as second:
            # A full disk, say: what is left is stderr.log.
            sys.stderr.write(f"autotune could not write this down: {type(second).__name__}: {second}\n")
            self.process.close()
        self.process.end(cause)

    def script_ended(self, status: object = None) -> None:
        """Keep what was measured, or say why there is nothing; ``status`` is what the script gave to ``sys.exit``."""
        process = self.process
        if process.has_ended:
            return
        is_heard = process.has_result or process.others_trained()
        counts = status in (None, 0) or self._mode.counts_if_failed
        unheard = not is_heard and not (counts and self._mode.ended_early())
        # What came after others in this process had only the steps that they left: it is tried again in its own.
        if unheard and process.index == 0:
            process.finish_with(self._no_training_step(status))
        if process.has_result and process.has_trained:
            self._mode.script_over()
        process.write_end("the script ended")

    def launch_status(self, error: BaseException) -> int:
        """Return the exit status of a launched script that ``error`` has ended; tell the batch if memory ran out."""
        if not ran_out_of_memory(error):
            return 1
        batch, epoch = self._script.loaders.batch_under_way() or (None, 0)
        sys.stderr.write(shortage_text(batch, epoch, measured=self.process.request.measured_batch))
        return OUT_OF_MEMORY_STATUS

    def script_raised(self, error: BaseException) -> None:
        """Write the exception that ended the script before the run was done."""
        self.write_failure(self._failure(error))

    def write_failure(self, outcome: FailureOutcome) -> None:
        """Write the last line, and the outcome of the configuration under way unless that has one."""
        process = self.process
        if process.has_ended:
            return
        try:
            self._mode.failed(outcome)
        except Exception as error:
            sys.stderr.write(f"autotune could not write down what was found: {type(error).__name__}: {error}\n")
        if not process.has_result:
            if process.others_trained() or process.others_failed():
                process.rank = STARTER_RANK
            process.finish_with(self._mode.measured() or outcome)
        process.write_end(outcome.cause)

    def _failure(self, error: BaseException) -> FailureOutcome:
        """Return the script's own failure, or the refusal of the engine that it cannot run under."""
        engine = self._applied.engine
        if engine is not None and engine.active and engine.raised(error):
            engine.refusal = f"the script cannot run under this engine: {type(error).__name__}: {error}"[:500]
            refused = self._applied.problem()
            assert refused is not None
            return refused
        return self._failure_in(error, self.process.phase)

    def _failure_in(self, error: BaseException, phase: Phase) -> FailureOutcome:
        if isinstance(error, CannotFollowError):
            return Fallback(cause=str(error), advice=ON_THE_GPU)
        request = self.process.request
        as_it_stands = request.mode in ("discover", "audit", "locate", "trace")
        setting = None if as_it_stands else self.process.configuration
        limit_bytes, control = request.memory_limit_bytes, request.batch_control
        by_itself = ON_THE_GPU if request.mode == "trace" else BY_ITSELF
        return failure_of(
            error, phase=phase, limit_bytes=limit_bytes, setting=setting, control=control, by_itself=by_itself
        )

    def _tell_shortage(self) -> None:
        """Have Python tell the batch, too, where an error ends a process that a launched script has started."""
        show = sys.excepthook

        def told(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            show(kind, error, trace)
            self.launch_status(error)

        sys.excepthook = told

    def _when_child_ends(self, act: Callable[[], None]) -> None:
        """Have ``act`` called as a process ends that the script has started."""
        if self.process.request.mode == "launch":
            return
        if multiprocessing.parent_process() is not None or self._is_child:
            # Processes that multiprocessing forked leave without running atexit.
            multiprocessing.util.Finalize(None, act, exitpriority=0)
            atexit.register(act)

    def _child_never_trained(self) -> None:
        error = ends_with()
        if error is not None and not self.process.has_trained:
            let_children_end()
            failure = self._failure_in(error, "start")
            self.process.write(Result(0, failure, None, process=os.getpid(), rank=STARTER_RANK))

    def _child_ended(self) -> None:
        error = ends_with()
        if error is None:
            self.script_ended()
        else:
            let_children_end()
            self.script_raised(error)

    def _no_training_step(self, status: object) -> NoTrainingStep:
        steps = self.process.steps
        seen = f"after {steps} training step{'' if steps == 1 else 's'}" if steps else "before its first training step"
        if steps and _CAPTURED in self.process.notes:
            cause, advice = f"the script ended {seen}: {_CAPTURED}", "Run the script without its CUDA graph to tune it."
        elif status not in (None, 0):
            cause, advice = f"{exit_words(status)} {seen}", EXIT_ADVICE
        elif steps:
            cause = f"the script ended {seen}"
            least = self._mode.least_steps
            advice = f"A trial needs about {least} optimizer steps: give the script more data or more epochs."
        else:
            cause = "no training step ran"
            advice = "A training step is a backward through a torch.nn.Module, and an optimizer's step."
        return NoTrainingStep(cause=cause, advice=advice, steps_seen=steps)
