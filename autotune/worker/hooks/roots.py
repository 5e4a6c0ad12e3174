"""Root modules: the ones that the script itself calls, in training mode, with gradients on."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..engines.port import Engine
from ..plans.layers import repeated_class
from ..torch_import import when_imported
from .compilation import keep_out
from .samples import tensors_of
from .watch import Watch, unpack


@dataclass
class Root:
    """A root module, weakly held. ``applied_by`` says how it gets its plans, empty while it gets none.

    ``wrapped_by`` are the classes around it, outermost first.
    """

    module: weakref.ref[nn.Module]
    name: str
    wrapped_by: tuple[str, ...] = ()
    applied_by: str = ""
    compiled: Callable[..., Any] | None = None


class PlannedCall(functools.partial[Any]):
    """The callable in a module's ``_compiled_call_impl``; in a deep copy of the module, and in a pickle, it is None.

    nn.Module leaves that attribute out of its state, but a class with a ``__getstate__`` of its own, as LightningModule
    is one, takes it along. A copy's call would then run the original, with the weights of the original.
    """

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()


class RootHooks:
    """A permanent shim on ``nn.Module.__call__``.

    It passes straight through while Dynamo compiles, while TorchScript traces, inside a root call and under functorch.
    At a root's first training call under an engine it sets the compiled callable, then lets the call go on; evaluation
    calls go to the plain one. A root that runs again inside backward (the script checkpoints it) runs as before.

    What is called inside of a compiled root's call is in no graph: a graph calls no modules. Where the engine would not
    come to it by itself either, such a module is compiled as an *inner* root.

    Args:
        engine: compiles roots while it is active; None never does.
        training_call: called before each training call with the root's module, arguments and keywords.
        evaluation_call: called before each other outermost call of a trainable module.
        call_done: called after each outermost call, of whatever module.
        inner_call: called before each call of an inner root with its tensors.
        around: given a root and what a training call of it is to run, gives what to run instead.
        note: called with what the user should know.
    """

    def __init__(
        self,
        *,
        engine: Engine | None,
        training_call: Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None],
        evaluation_call: Callable[[], None],
        call_done: Callable[[], None],
        inner_call: Callable[[list[torch.Tensor]], None],
        around: Callable[[nn.Module, Callable[..., Any]], Callable[..., Any]],
        note: Callable[[str], None],
    ) -> None:
        self._engine = engine
        self._training_call = training_call
        self._evaluation_call = evaluation_call
        self._call_done = call_done
        self._inner_call = inner_call
        self._around = around
        self._note = note
        self._inside = threading.local()
        self.roots: dict[int, Root] = {}
        # Also those modules that were looked at and stay as they are: without a compiled callable.
        self._inner_roots: dict[int, Root] = {}
        # Set for a step, it takes note of what runs outside of graphs.
        self.watch: Watch | None = None
        self.shim: Any = None
        self._passes = False
        self._real: Callable[..., Any] = nn.Module.__call__

    def modules(self) -> Iterator[nn.Module]:
        """The root modules that are still alive."""
        for root in list(self.roots.values()):
            module = root.module()
            if module is not None:
                yield module

    def rest(self, *, passes: bool) -> None:
        """Tell nobody of calls from here on; ``passes``: nor is anything run in the place of what is called."""
        engine = self._engine
        self._training_call = lambda *_: None if engine is None else engine.begin_call()
        self._evaluation_call = self._call_done = lambda: None
        self._inner_call = lambda _: None
        self._passes = passes

    def entries(self) -> tuple[Callable[..., Any], ...]:
        """Return what the shim calls of ours."""
        return self._enter, self._again, self._leave

    def install(self) -> None:
        """Put the shim in place; called once per process."""
        real = self._real = nn.Module.__call__
        self.shim = self._make_shim(real)
        nn.Module.__call__ = self.shim  # type: ignore[method-assign]
        when_imported(self._tell_dynamo, "torch._dynamo")

    def _tell_dynamo(self) -> None:
        """Have Dynamo take what hooks have put in the place of torch's functions for these.

        It compares with the class's original call to inline submodules, and has a rule for each function. It binds them
        when it is imported. That is right by itself, unless that was before: in a fork server, say.
        """
        from torch._dynamo import trace_rules, utils
        from torch._dynamo.eval_frame import skip_code
        from torch._dynamo.variables import nn_module

        skip_code(self.shim.__code__)
        for module in (utils, nn_module):
            if getattr(module, "unpatched_nn_module_call", None) is self._real:
                module.unpatched_nn_module_call = self.shim  # type: ignore[attr-defined]
        rules = trace_rules.get_torch_obj_rule_map()
        for function in (torch.compile, torch.autograd.backward):
            rule = rules.pop(getattr(function, "__wrapped__", None), None)
            if rule is not None:
                rules[function] = rule

    def _make_shim(self, real: Callable[..., Any]) -> Callable[..., Any]:
        is_compiling = torch.compiler.is_compiling
        is_tracing = torch._C._is_tracing
        in_backward = torch._C._current_graph_task_id
        under_functorch = torch._C._functorch.peek_interpreter_stack
        inside, hooks = self._inside, self

        def __call__(self: nn.Module, *arguments: Any, **keywords: Any) -> Any:  # noqa: N807
            if hooks._passes or is_compiling() or under_functorch() is not None or is_tracing():
                return real(self, *arguments, **keywords)
            if getattr(inside, "root", False):
                if getattr(inside, "planned", None) is None:
                    return real(self, *arguments, **keywords)
                call = hooks._inner(self, arguments, keywords)
                return real(self, *arguments, **keywords) if call is None else call(*arguments, **keywords)
            inside.root = True
            try:
                is_again = in_backward() != -1
                call = hooks._again(self) if is_again else hooks._enter(self, arguments, keywords)
                result = real(self, *arguments, **keywords) if call is None else call(*arguments, **keywords)
                if not is_again:
                    hooks._leave()
                return result
            finally:
                inside.root, inside.planned = False, None

        return __call__

    def _enter(
        self, module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Callable[..., Any] | None:
        """Return what to call instead of the module's own call, or None for just that."""
        try:
            self._inside.planned = None
            core = unwrap(module)
            if not self._is_training_call(core):
                if next(core.parameters(), None) is not None:
                    # Not a loss function, and not a graph that Dynamo runs while it compiles.
                    self._evaluation_call()
                return None
            root = self._register(core)
            if module is not core:
                root.wrapped_by = tuple(type(one).__name__ for one in wrappers(module))
            self._training_call(core, arguments, keywords)
            call = self._compiled(root, core, module)
            call = functools.partial(self._real, module) if call is None else call
            return self._around(core, call if self.watch is None else self.watch.around(core, call))
        except Exception as error:
            self._note(f"a hook failed, the call went on without it: {type(error).__name__}: {error}")
            return None

    def _leave(self) -> None:
        try:
            self._call_done()
        except Exception as error:
            self._note(f"a hook failed, the script went on without it: {type(error).__name__}: {error}")

    def _again(self, module: nn.Module) -> Callable[..., Any] | None:
        """Return what to call in a backward, where the script's own checkpoint runs a root again.

        That is what ran in the forward, or None for the module's own call.
        """
        is_active = self._engine is not None and self._engine.active
        self._inside.planned = module if is_active and self._inner_roots else None
        inner = _known(self._inner_roots, module)
        if inner is not None:
            return inner.compiled if is_active else None
        root = _known(self.roots, module)
        if root is None:
            return None
        call = root.compiled if is_active else None
        return self._around(module, functools.partial(self._real, module) if call is None else call)

    def _inner(
        self, module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Callable[..., Any] | None:
        """Return what to call for a module that runs outside of any graph, or None for the module's own call."""
        try:
            if not module.training or not torch.is_grad_enabled():
                return None
            root = _known(self._inner_roots, module)
            if root is None:
                if torch._C._current_graph_task_id() != -1:
                    return None
                root = _remember(self._inner_roots, module)
                engine = self._engine
                assert engine is not None
                if self._is_training_call(module) and engine.leaves_out(module):
                    block = repeated_class(self._inside.planned, module)
                    root.compiled = engine.compile_root(module, block=block)
            if root.compiled is not None:
                self._inner_call(tensors_of((arguments, keywords)))
            return root.compiled
        except Exception as error:
            self._note(f"a hook failed, the call went on without it: {type(error).__name__}: {error}")
            return None

    def _is_training_call(self, module: nn.Module) -> bool:
        if not module.training or not torch.is_grad_enabled() or torch.is_inference_mode_enabled():
            return False
        if _known(self.roots, module) is not None:
            return True
        return any(parameter.requires_grad for parameter in module.parameters())

    def _register(self, module: nn.Module) -> Root:
        return _known(self.roots, module) or _remember(self.roots, module)

    def _compiled(self, root: Root, core: nn.Module, called: nn.Module) -> Callable[..., Any] | None:
        engine = self._engine
        if engine is None:
            return None
        if core._compiled_call_impl is not None and core._compiled_call_impl is not root.compiled:
            root.applied_by = "the script's own compilation"
            return None
        if type(called).__name__ == "OptimizedModule":
            root.applied_by = "the script's own compilation"
            return None
        if isinstance(core, torch.jit.ScriptModule):
            self._note(f"{root.name} is a ScriptModule: it takes no plans")
            return None
        if not engine.active:
            core._compiled_call_impl = None
            return None
        if root.compiled is None:
            from torch._dynamo.eval_frame import skip_code

            skip_code(self.shim.__code__)
            for function in (self._inner, Watch._pack, unpack):
                keep_out(function)
            root.compiled = PlannedCall(engine.compile_root(core))
            root.applied_by = engine.name
        self._inside.planned = core
        if called is core:
            return root.compiled
        # A wrapper (DistributedDataParallel) calls the module itself; it finds the compiled callable there.
        core._compiled_call_impl = root.compiled
        return None


def _known(roots: dict[int, Root], module: nn.Module) -> Root | None:
    known = roots.get(id(module))
    return known if known is not None and known.module() is module else None


def _remember(roots: dict[int, Root], module: nn.Module) -> Root:
    # Forgotten with its module: what was compiled for it goes too.
    number = id(module)
    reference = weakref.ref(module, lambda _: roots.pop(number, None))
    known = roots[number] = Root(reference, type(module).__name__)
    return known


def unwrap(module: Any) -> nn.Module:
    """The module inside wrappers that only add communication, an optimizer or compilation."""
    for wrapper in wrappers(module):
        module = _inside(wrapper)
    unwrapped: nn.Module = module
    return unwrapped


def wrappers(module: Any) -> Iterator[nn.Module]:
    """The wrappers around a module, outermost first."""
    while (inner := _inside(module)) is not None:
        yield module
        module = inner


def _inside(module: Any) -> Any:
    """Return what a wrapper is around; None for a module that is none."""
    # Classes that are named need not be installed.
    name = type(module).__name__
    if isinstance(module, (nn.parallel.DistributedDataParallel, nn.DataParallel)) or name == "DeepSpeedEngine":
        return module.module
    return module._orig_mod if name == "OptimizedModule" else None
