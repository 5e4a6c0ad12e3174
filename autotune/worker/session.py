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
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import nn

from ..records import (
    STARTER_RANK,
    BatchControl,
    Configuration,
    Ended,
    Fallback,
    InvalidPlan,
    NoTrainingStep,
    Outcome,
    OutOfMemory,
    Phase,
    Request,
    Result,
    ScriptError,
)
from .choices import MadeChoices
from .environment import describe_environment
from .failure import ends_with, failure_of
from .hooks.compilation import watch_compile
from .hooks.loaders import LoaderHooks
from .hooks.roots import RootHooks
from .hooks.samples import SampleCounter, tensors_of
from .hooks.steps import StepHooks
from .meters import cuda_device, device_uuid, is_capturing, limit_memory, outside_bytes, uses_cuda
from .modes import mode_of
from .registry import engine_of
from .results import ProgressFile, append_line

__all__ = ["Session"]

FailureOutcome = OutOfMemory | ScriptError | Fallback | InvalidPlan

_CAPTURED = "the script captures its training step in a CUDA graph; what a graph replays is not seen, so not counted"


class Session:
    """One training process of a run.

    ``index`` is the configuration under way. Results are written as each trial ends; after the last one every hook
    raises ``SystemExit`` until the script is gone. ``status`` is the exit status that goes with it: 3 where a launched
    script cannot have what its bundle says. ``fork_refusal`` is what ``Facts`` says of it.
    """

    def __init__(self, request: Request, directory: Path, *, is_child: bool = False, fork_refusal: str = "") -> None:
        self._is_child = is_child
        self.fork_refusal = "the script trains in processes that it starts" if is_child else fork_refusal
        self.request = request
        self.directory = directory
        self.index = 0
        self.steps = 0
        self.notes: list[str] = []
        self.has_result = False
        self.status = 0
        self._process: int | None = None
        self.device: int | None = None
        self._progress: ProgressFile | None = None
        self.rank, self.num_processes = 0, 1
        self._finished = 0
        self._memory_limited = False
        self.engine = engine_of(request)
        self.choices = MadeChoices(request.configurations[0], self.note)
        batch_size = request.configurations[0].batch_size
        control = request.batch_control
        self.loaders = LoaderHooks(batch_size, control or BatchControl("none"), self.note)
        self._samples = SampleCounter(self.loaders, batch_size)
        self.roots = RootHooks(
            engine=self.engine,
            training_call=self._training_call,
            evaluation_call=self._evaluation_call,
            call_done=lambda: self._mode.memory("post_forward"),
            around=self.choices.around,
            note=self.note,
        )
        self.step_hooks = StepHooks(
            phase=self._enter_phase,
            before_step=self.choices.before_step,
            backward_done=self._backward_done,
            step_done=self._step_done,
            parameters=lambda: (parameter for module in self.roots.modules() for parameter in module.parameters()),
            failed=self._hook_failed,
            hands_off=self._is_capturing,
        )
        self._mode = mode_of(self)

    def install(self) -> None:
        """Patch torch; called once per process, when the script has imported it."""
        if self.engine is not None:
            self.engine.use(self.configuration)
        self.choices.install()
        self.roots.install()
        watch_compile(self.engine, self.roots.shim, self.note, [*self.roots.entries(), *self.step_hooks.entries()])
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
            self.end()
        self._make_ready(itertools.chain(root.parameters(), tensors_of((arguments, keywords))))
        if self.engine is not None:
            self.engine.begin_call()
        dimension = self._samples.training_call(arguments, keywords)
        if dimension is not None:
            self._mode.inputs(root, tensors_of((arguments, keywords)), dimension)
        self._enter_phase("forward")
        self._mode.memory("pre_forward")

    def _evaluation_call(self) -> None:
        if self._finished:
            self.end()
        self.loaders.evaluation_call()

    def _enter_phase(self, phase: Any) -> None:
        if phase == "backward":
            self._mode.backward_began()
        self.progressed(phase=phase)
        if phase == "backward":
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
        if self._finished:
            self.end()
        window = self._samples.close()
        # Where no root call was seen the model is called past nn.Module.__call__: steps are still steps.
        groups = itertools.chain.from_iterable(optimizer.param_groups for optimizer in self.step_hooks.optimizers)
        self._make_ready(itertools.chain.from_iterable(group["params"] for group in groups))
        self.steps += 1
        self.progressed(steps=self.steps)
        self._mode.step(window)

    # -- for the modes

    def _make_ready(self, tensors: Iterable[torch.Tensor] = ()) -> None:
        """Before the first training call of a process, and of each trial; ``tensors`` are the call's."""
        if self._process != os.getpid():
            self.device = self._progress = None
        # A model may move itself to a device in its first forward. CUDA may also be awake without being trained on.
        if self.device is None and uses_cuda():
            self.device = cuda_device(tensors)
            self.progressed(device=device_uuid(self.device))
        if self._process != os.getpid():
            self._start_process()
        self._mode.ready()

    def _start_process(self) -> None:
        """Learn the rank at the first training call (torch.distributed is up by then), also after a fork."""
        self._process = os.getpid()
        if self.request.mode != "launch" and (multiprocessing.parent_process() is not None or self._is_child):
            # Nobody says here how the script ended. Processes that multiprocessing forked leave without running atexit.
            multiprocessing.util.Finalize(None, self._child_ended, exitpriority=0)
            atexit.register(self._child_ended)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            self.rank, self.num_processes = torch.distributed.get_rank(), torch.distributed.get_world_size()
        if self.request.mode != "launch":
            self._progress = ProgressFile(self.directory, self.rank, self.num_processes, device_uuid(self.device))
        self._mode.process_began()

    def limit_memory(self) -> None:
        """Let torch's allocator enforce a limit below the card's size; on CPU the controller watches."""
        limit = self.request.memory_limit_bytes
        if limit is None or self._memory_limited or self.device is None:
            return
        self._memory_limited = True
        limit_memory(limit, self.device, outside_bytes=self.outside_bytes() or 0)

    def outside_bytes(self) -> int | None:
        """What this process holds of its device outside torch's allocator; None where that cannot be told."""
        if self.device is None:
            return None
        before = self.request.free_bytes.get(device_uuid(self.device))
        return outside_bytes(self.device, free_before=before, num_processes=self.num_processes)

    def not_applied(self) -> Fallback | InvalidPlan | None:
        """Why what ran is not what was asked for; None if it is. To be asked after a training step."""
        problem = self.engine.problem() if self.engine is not None else None
        if problem is None:
            return self.choices.problem()
        cls: type[Fallback | InvalidPlan] = InvalidPlan if problem.kind == "invalid_plan" else Fallback
        return cls(cause=problem.cause, advice=problem.advice)

    def batch_failure(self, observed: int | None) -> Outcome | None:
        """Whether batches had the size that was asked for; the usual batch counts, an epoch's last may be smaller."""
        wanted = self.configuration.batch_size
        if wanted is None or observed is None or observed == wanted:
            return None
        cause = f"batch size {wanted} was asked for, but the batches of the training steps hold {observed} samples"
        return Fallback(cause=cause, advice="`autotune discover SCRIPT` says how the batch size is set.")

    def finish_with(self, outcome: Outcome) -> None:
        """Write the outcome of the configuration under way."""
        environment = describe_environment(self.device)
        append_line(
            self.directory,
            Result(self.index, outcome, environment, process=os.getpid(), rank=self.rank),
        )
        self.has_result = True

    def give_up(self, failure: Outcome) -> NoReturn:
        """End the run with the configuration under way, which could not be applied."""
        self.finish_with(failure)
        self.end("the configuration could not be applied")

    def use_next(self) -> str | None:
        """Go on with the next configuration at this step boundary; the engine's reason if it cannot."""
        self.index += 1
        self.has_result = False
        return None if self.engine is None else self.engine.use(self.configuration)

    def progressed(self, **changes: Any) -> None:
        """Tell the controller where this process is: fields of ``Progress``."""
        if self._progress is not None:
            self._progress.update(index=self.index, **changes)

    def refuse(self, status: int) -> NoReturn:
        """End a launched script with an exit status, which says that it was not trained."""
        self.status = status
        self._finished = 1
        self.end()

    # -- the end

    def script_ended(self, status: object = None) -> None:
        """The script ran to its end before the run was done: keep what was measured, or say why there is nothing.

        Args:
            status: what it gave to ``sys.exit``: a number, a message, or nothing.
        """
        if self._finished:
            return
        if not self.has_result and not self._others_trained() and not self._mode.ended_early():
            self.finish_with(self._no_training_step(status))
        if self.has_result and self.has_trained:
            self._mode.script_over()
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

    def _others_trained(self) -> bool:
        own = f"progress-{os.getpid()}"
        return not self.has_trained and any(path.name != own for path in self.directory.glob("progress-*"))

    def failure(self, error: BaseException, cause: str | None = None) -> FailureOutcome:
        """What to call the exception that ended the script: its own, or one of the engine that it cannot run under.

        Args:
            error: the exception.
            cause: what to say instead of the exception's type and text.
        """
        if self.engine is not None and self.engine.active and self.engine.raised(error):
            self.engine.refuse(f"the script cannot run under this engine: {type(error).__name__}: {error}"[:500])
            refused = self.not_applied()
            assert refused is not None
            return refused
        return failure_of(error, phase=self.phase, limit_bytes=self.request.memory_limit_bytes, cause=cause)

    def write_failure(self, outcome: FailureOutcome) -> None:
        """What ended the script before its run was done: as an outcome, or as the last word if it has one already."""
        if self._finished:
            return
        self._mode.failed(outcome)
        if not self.has_result:
            if self._others_trained():
                self.rank = STARTER_RANK
            self.finish_with(self._mode.measured() or outcome)
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
        self.end(cause)

    def _write_end(self, reason: str) -> None:
        self._finished += 1
        append_line(self.directory, Ended(process=os.getpid(), rank=self.rank, reason=reason))

    def end(self, reason: str = "done") -> NoReturn:
        """Leave the script by ``SystemExit``, from whichever hook this is."""
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
