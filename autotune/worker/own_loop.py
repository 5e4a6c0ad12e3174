"""One model of a user's own training loop under a bundle's configuration.

The model gets ``_compiled_call_impl``, which ``nn.Module.__call__`` looks at and which no deep copy, no pickle and no
``state_dict`` has. So the model stays the object that it is, and only its training calls go another way.
"""

from __future__ import annotations

import importlib
import itertools
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ..errors import BundleError
from ..records.choices import OptimizerChoice, made_choices
from ..records.configuration import Configuration
from ..records.fingerprint import Fingerprint
from ..records.stale import Mismatch, applied_text, mismatches
from .argument_checks import check_module
from .choices.made import MadeChoices
from .describing.fingerprint import model_print
from .engines.port import Engine
from .hooks.roots import PlannedCall, unwrap, wrappers
from .hooks.samples import shapes_of, tensors_of
from .plans.layers import Block, block_of
from .registry import engine_named

# What engines set in torch's configuration for the whole process, by the configuration's module.
_SET_BY_ENGINES = {
    "torch._dynamo.config": (
        "suppress_errors",
        "allow_unspec_int_on_nn_module",
        "skip_tensor_guards_with_matching_dict_tags",
        "reorderable_logging_functions",
    ),
    "torch._functorch.config": ("donated_buffer",),
}
_AGAIN = "`autotune run` on the script that trains this model writes a bundle for it"
_ALLOW = f"{_AGAIN}; allow_stale=True applies what still fits"


class PlannedModel:
    """Has a model's training calls run under a configuration until ``remove``.

    If something else ran, the first backward raises a BundleError at its end, before an optimizer has stepped, and
    leaves the model as it was. ``stale`` is what shows before a call.

    Raises:
        BundleError: the model cannot be run so, as is known without calling it.
    """

    def __init__(
        self,
        model: nn.Module,  # what the training loop calls; wrappers that only add communication are seen through
        configuration: Configuration,
        note: Callable[[str], None],  # called with what the user should know
        *,
        expected: Fingerprint,  # of the script that the bundle is from
        batch_size: int | None = None,  # the micro-batch that the bundle's figures are from
        allow_stale: bool = False,  # run what still fits where the model or torch is another than the bundle's
    ) -> None:
        check_module(model, "autotune.apply")
        core = unwrap(model)
        _check_model(model, core)
        self._note, self._expected, self._allow_stale = note, expected, allow_stale
        self._batch_size = batch_size
        # Weakly: what the model holds must not hold the model, or its memory would wait for the garbage collector.
        self._model = weakref.ref(core)
        self._name = type(core).__name__
        self._configuration = configuration
        self._engine: Engine | None = engine_named(configuration.engine)
        self._choices = MadeChoices(configuration, note)
        made = made_choices(configuration.engine, configuration.choices)
        self._optimizer_choices = [choice.name for choice in made if isinstance(choice, OptimizerChoice)]
        self._compiled: Callable[..., Any] | None = None
        # As from_pretrained() leaves it; until a call in training mode, evaluation mode is the one that trains.
        self._trains_in_evaluation_mode = not core.training
        self._planned = [self._model]
        self._optimizer_hooks: list[Any] = []
        self._backward_hook: Any = None
        self._backward_seen = self._called = self._is_judged = self._is_removed = False
        self.is_confirmed = False
        self.stale = self._found_stale(Fingerprint(torch=str(torch.__version__)))
        serious = [one.said for one in self.stale if not one.is_harmless]
        if serious and not allow_stale:
            raise self._refusal("; ".join(serious), _ALLOW)
        if self._engine is not None:
            self._engine.use(configuration)
            _settings.take()
        core._compiled_call_impl = PlannedCall(self._call)
        weakref.finalize(core, self.remove).atexit = False

    def _call(self, *arguments: Any, **keywords: Any) -> Any:
        core = self._model()
        assert core is not None
        self._trains_in_evaluation_mode &= not core.training
        if not self._is_training_call(core):
            return core._call_impl(*arguments, **keywords)
        again = torch._C._current_graph_task_id() != -1  # the loop's own checkpoint runs it again in a backward
        if not again and not self._is_judged and self._called and not self._backward_seen:
            # No backward through what the model gave was seen: it gave an object of its own, say.
            self._backward_seen = True
            self.judge()
        if not again and not self._called:
            self._compare_batch(arguments, keywords)
        if self._engine is not None:
            if again:
                self._engine.repeat_call(is_root=True)
            else:
                self._engine.begin_call(shapes_of((arguments, keywords)))
        try:
            result = self._choices.around(core, self._planned_call(core))(*arguments, **keywords)
        except Exception as error:
            self._forget_failure(core)
            refusal = self._refusal_for(error)
            if refusal is None:
                raise
            raise refusal from error
        if self._engine is not None:
            self._engine.end_call()
        if not again and not self._is_judged:
            self._await_backward(result)
        return result

    def _forget_failure(self, core: nn.Module) -> None:
        """Have Dynamo look at the model again after a call that failed: inputs of a wrong shape, say, come once."""
        code = getattr(core.forward, "__code__", None)
        if self._engine is not None and not self._is_judged and code is not None:
            from torch._C._dynamo.eval_frame import reset_code

            reset_code(code)
            self._compiled = None

    def _planned_call(self, core: nn.Module) -> Callable[..., Any]:
        if self._engine is None:
            return core._call_impl
        if self._compiled is None:
            self._compiled = self._engine.compile_root(core)
            for module in core.modules():
                # Dynamo goes into no file of torch.nn by itself: behind a graph break these get plans as roots only.
                if module is not core and self._engine.leaves_out(module):
                    self._plan_inner(module, block_of(core, module), self._engine)
        return self._compiled

    def _plan_inner(self, inner: nn.Module, block: Block | None, engine: Engine) -> None:
        from torch._dynamo.eval_frame import skip_code

        reference, compiled = weakref.ref(inner), engine.compile_root(inner, block=block)

        def call(*arguments: Any, **keywords: Any) -> Any:
            module = reference()
            assert module is not None
            run = compiled if self._is_training_call(module) else module._call_impl
            return run(*arguments, **keywords)

        # Otherwise Dynamo, which looks at each frame behind a break, would trace ours, and the module as no block.
        for function in (call, PlannedModel._is_training_call):
            skip_code(function.__code__)
        inner._compiled_call_impl = PlannedCall(call)
        self._planned.append(reference)

    def _is_training_call(self, module: nn.Module) -> bool:
        """Return whether plans are for a call of the module; not while something else compiles or traces it."""
        if torch.compiler.is_compiling() or torch._C._is_tracing():
            return False
        if torch._C._functorch.peek_interpreter_stack() is not None:
            return False
        trains = module.training or self._trains_in_evaluation_mode
        return trains and torch.is_grad_enabled() and not torch.is_inference_mode_enabled()

    def _await_backward(self, result: Any) -> None:
        # A backward that was seen and did not come to the judgement has raised, and the loop has gone on.
        self._called, self._backward_seen = True, False
        self._await_no_more()
        watched = [tensor for tensor in tensors_of(result) if tensor.requires_grad]
        if watched:
            begins = self._backward_begins
            self._backward_hook = torch.autograd.graph.register_multi_grad_hook(watched, begins, mode="any")

    def _await_no_more(self) -> None:
        # What a model gives may be a parameter of it, which stays.
        if self._backward_hook is not None:
            self._backward_hook.remove()
            self._backward_hook = None

    def _backward_begins(self, _: torch.Tensor) -> None:
        if not self._backward_seen:
            self._backward_seen = True
            # Runs when the whole backward is done; what it raises comes out of `backward()`.
            torch.autograd.Variable._execution_engine.queue_callback(self.judge)

    def judge(self) -> None:
        """Raise a BundleError and remove the configuration if something else ran."""
        core = self._model()
        if self._is_removed or self._is_judged or core is None:
            return
        now = {} if self._engine is None else self._engine.recomputed()
        # Counts are of all that a script trained, and this is one of its models.
        counted = now if len(self._expected.models) <= 1 else {}
        stale = self._found_stale(Fingerprint(models=(model_print(core),), occurrences=counted))
        problem = None if self._engine is None else self._engine.problem()
        if problem is not None:
            stale.append(Mismatch("setting", problem.cause))
        if stale and not self._allow_stale:
            self._refuse("; ".join(one.said for one in stale), _ALLOW)
        if self._optimizer_choices and not self._optimizer_hooks:
            cause = f"it says {' and '.join(self._optimizer_choices)}, and knows no optimizer"
            self._refuse(cause, "hand the optimizer to `applied.optimizer(...)` before the first step")
        if not self._optimizer_choices and (cause := self._choice_problem()):
            self._refuse(cause)
        self._is_judged = True
        self._await_no_more()
        self.is_confirmed = not stale
        if stale:
            runs = replace(self._configuration, batch_size=None, accumulation=0)
            self._note(applied_text([*self.stale, *stale], runs, self._expected.occurrences, now))

    def _found_stale(self, found: Fingerprint) -> list[Mismatch]:
        return list(mismatches(self._expected, found, engine=self._configuration.engine))

    def _compare_batch(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        shapes = [tuple(tensor.shape) for tensor in tensors_of((arguments, keywords)) if tensor.dim()]
        if self._batch_size and shapes and not any(self._batch_size in shape[:2] for shape in shapes):
            self._note(
                f"the first batch has the shape {shapes[0]}: the bundle's figures are of batches of {self._batch_size}"
            )

    def _choice_problem(self) -> str:
        problem = self._choices.problem()
        return "" if problem is None else problem.cause

    def _refuse(self, cause: str, hint: str = _AGAIN) -> None:
        self.remove()
        raise self._refusal(cause, hint)

    def _refusal(self, cause: str, hint: str) -> BundleError:
        return BundleError(f"the bundle cannot be applied to {self._name}: {cause}", hint=hint)

    def _refusal_for(self, error: Exception) -> BundleError | None:
        """Return what to raise instead where the engine raised it, and not what it runs."""
        if self._engine is None or isinstance(error, BundleError) or not self._engine.raised(error):
            return None
        self.remove()
        engine = self._configuration.engine
        cause = f"{self._name} cannot run under engine {engine!r}: {type(error).__name__}: {error}"[:500]
        return BundleError(cause, hint=_AGAIN)

    def optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Prepare an optimizer by the configuration before each of its steps, until ``remove``."""
        steps = itertools.count()

        def judge_step(*_: Any) -> None:
            # It stays: a hook that is removed while hooks run would disturb those that come after it.
            cause = "" if next(steps) else self._choice_problem()
            if cause:
                self._refuse(cause)

        if self._is_removed:
            return
        before = optimizer.register_step_pre_hook(lambda own, *_: self._choices.before_step(own))
        judging = optimizer.register_step_post_hook(judge_step)
        self._optimizer_hooks += [before, judging]

    def remove(self) -> None:
        """Have the model run as before; backwards that are under way still find what their forwards saved."""
        if self._is_removed:
            return
        self._is_removed = True
        for reference in self._planned:
            module = reference()
            # The user's own `model.compile()` since then is not ours to take away.
            if module is not None and isinstance(module._compiled_call_impl, PlannedCall):
                del module._compiled_call_impl
        self._await_no_more()
        for hook in self._optimizer_hooks:
            hook.remove()
        self._choices.undo()
        if self._engine is not None:
            _settings.give_back()


def _check_model(model: nn.Module, core: nn.Module) -> None:
    name = type(core).__name__
    if type(model).__name__ == "OptimizedModule" or core._compiled_call_impl is not None:
        raise BundleError(
            f"{name} is compiled already, by torch.compile or by an earlier apply",
            hint="apply the bundle to the module before it is compiled, and leave torch.compile out: the bundle says "
            "how it runs; or remove() what was applied before",
        )
    if any(isinstance(one, nn.DataParallel) and len(one.device_ids) > 1 for one in wrappers(model)):
        # A replica has all that its module has, our call too, which would run the module itself.
        raise BundleError(
            f"{name} is in DataParallel over several GPUs, whose replicas take no plans",
            hint="train with DistributedDataParallel, or on one GPU",
        )
    if isinstance(core, torch.jit.ScriptModule):
        raise BundleError(f"{name} is a ScriptModule, which takes no plans", hint="apply the bundle before scripting")
    if not any(parameter.requires_grad for parameter in core.parameters()):
        raise BundleError(f"{name} has no parameter to train", hint="apply the bundle to the module that is trained")


class _Settings:
    """The settings of torch as they were before the first model got an engine, which changes them."""

    def __init__(self) -> None:
        self._users = 0
        self._before: dict[tuple[str, str], Any] = {}

    def take(self) -> None:
        """Keep the settings for a model that gets an engine."""
        self._users += 1
        if self._users == 1:
            for name, keys in _SET_BY_ENGINES.items():
                module = importlib.import_module(name)
                self._before |= {(name, key): getattr(module, key) for key in keys if hasattr(module, key)}

    def give_back(self) -> None:
        """Let go of a model's engine, and restore the settings with the last one."""
        self._users -= 1
        if self._users == 0:
            for (name, key), value in self._before.items():
                setattr(importlib.import_module(name), key, value)


_settings = _Settings()
