"""Root modules: the ones that the script itself calls, with gradients on, to train them."""

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
from ..plans.layers import block_of, own_class
from ..torch_import import when_imported
from .compilation import keep_out
from .samples import shapes_of
from .watch import Watch, unpack


@dataclass
class Root:
    """A root module, with the classes around it, outermost first; ``applied_by`` is empty while it gets no plans."""

    module: weakref.ref[nn.Module]
    name: str
    wrapped_by: tuple[str, ...] = ()
    applied_by: str = ""
    compiled: Callable[..., Any] | None = None
    # A checkpoint of the script's own runs all of it again.
    is_checkpointed: bool = False


class PlannedCall(functools.partial[Any]):
    """The callable in a module's ``_compiled_call_impl``; in a deep copy of the module, and in a pickle, it is None.

    Else a copy of a class with a ``__getstate__`` of its own, such as LightningModule, would run the original.
    """

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()


@dataclass(kw_only=True, eq=False)
class RootHooks:
    """A permanent shim on ``nn.Module.__call__``.

    It passes straight through while Dynamo compiles, while TorchScript traces, inside a root call and under functorch.
    At a root's first training call under an engine it sets the compiled callable, then lets the call go on; evaluation
    calls go to the plain one. A root that runs again inside backward (the script checkpoints it) runs as before.

    A training call is one in training mode with gradients on. Where a script trains in evaluation mode, as
    from_pretrained() leaves it, a call in that mode is a training call of a model that an optimizer holds.

    A module that is called inside of a compiled root's call is in no graph. Where the engine would not come to it by
    itself either, it is compiled as an *inner* root.
    """

    engine: Engine | None  # compiles roots while it is active
    training_call: Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]  # before each of a root
    evaluation_call: Callable[[], None]  # before each other outermost call of a trainable module
    call_done: Callable[[], None]  # after each outermost call, of any module
    inner_call: Callable[[nn.Module, Any], None]  # before each call of a module outside of graphs, with its inputs
    around: Callable[[nn.Module, Callable[..., Any]], Callable[..., Any]]  # gives what a root's training call runs
    is_optimized: Callable[[nn.Module], bool]  # an optimizer holds a parameter of the module
    note: Callable[[str], None]  # with what the user should know
    trains_in_evaluation_mode: bool = False  # the script; no call tells before its first step

    def __post_init__(self) -> None:
        self._inside = threading.local()
        self.roots: dict[int, Root] = {}
        # Also those modules that were looked at and stay as they are: without a compiled callable.
        self._inner_roots: dict[int, Root] = {}
        # The models that were called in evaluation mode where gradients are kept.
        self._evaluated: weakref.WeakSet[nn.Module] = weakref.WeakSet()
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

    def first_step_done(self) -> None:
        """See whether the script trains in evaluation mode: no model was called in training mode, but one in that."""
        if not self.roots and any(map(self.is_optimized, self._evaluated)):
            self.trains_in_evaluation_mode = True

    def rest(self, *, passes: bool) -> None:
        """Tell nobody of calls from here on; ``passes``: nothing is applied to them either."""
        engine = self.engine
        self.training_call = lambda _, *inputs: None if engine is None else engine.begin_call(shapes_of(inputs))
        self.evaluation_call = self.call_done = lambda: None
        self.inner_call = lambda *_: None
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
        """Have Dynamo treat our functions as torch's, which it may have bound before these hooks (in a fork server)."""
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
            if hooks._passes or is_compiling() or is_tracing():
                return real(self, *arguments, **keywords)
            if under_functorch() is not None:
                hooks._transformed(self)
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
        try:
            self._inside.planned = None
            core = unwrap(module)
            if not self._is_training_call(core):
                if next(core.parameters(), None) is not None:
                    # Not a loss function, and not a graph that Dynamo runs while it compiles.
                    self.evaluation_call()
                    if torch.is_grad_enabled():
                        self._evaluated.add(core)
                return None
            root = _known(self.roots, core) or _remember(self.roots, core)
            if module is not core:
                root.wrapped_by = tuple(type(one).__name__ for one in wrappers(module))
            self.training_call(core, arguments, keywords)
            root.is_checkpointed |= self.engine is not None and self.engine.is_in_checkpoint
            call = self._compiled(root, core, module)
            call = functools.partial(self._real, module) if call is None else call
            return self.around(core, call if self.watch is None else self.watch.around(core, call))
        except Exception as error:
            self.note(f"a hook failed, the call went on without it: {type(error).__name__}: {error}")
            return None

    def _leave(self) -> None:
        try:
            if self.engine is not None:
                self.engine.end_call()
            self.call_done()
        except Exception as error:
            self.note(f"a hook failed, the script went on without it: {type(error).__name__}: {error}")

    def _again(self, module: nn.Module) -> Callable[..., Any] | None:
        """Return what ran in the forward where a checkpoint runs a root again; None for the module's own call."""
        is_active = self.engine is not None and self.engine.active
        self._inside.planned = module if is_active and self._inner_roots else None
        inner = _known(self._inner_roots, module)
        root = _known(self.roots, module)
        if self.engine is not None:
            self.engine.repeat_call(is_root=root is not None and root.is_checkpointed)
        if inner is not None:
            return inner.compiled if is_active else None
        if root is None:
            return None
        call = root.compiled if is_active else None
        return self.around(module, functools.partial(self._real, module) if call is None else call)

    def _inner(
        self, module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Callable[..., Any] | None:
        """Return what to call for a module that runs outside of any graph; None for its own call."""
        try:
            is_frozen = not module.training and self._inside.planned.training
            if is_frozen or not torch.is_grad_enabled():
                return None
            root = _known(self._inner_roots, module)
            if root is None:
                if torch._C._current_graph_task_id() != -1:
                    return None
                root = _remember(self._inner_roots, module)
                engine = self.engine
                assert engine is not None
                if self._is_training_call(module) and engine.leaves_out(module):
                    block = block_of(self._inside.planned, module)
                    root.compiled = engine.compile_root(module, block=block)
            self.inner_call(module, (arguments, keywords))
            return root.compiled
        except Exception as error:
            self.note(f"a hook failed, the call went on without it: {type(error).__name__}: {error}")
            return None

    def _transformed(self, module: nn.Module) -> None:
        """Note that a module is called inside a transform of functorch, where it gets no plans."""
        engine = self.engine
        # Told once: this is called for each module of the model too. Parameters of an ensemble ask for no gradients.
        if engine is None or engine.without_plans or getattr(self._inside, "root", False):
            return
        trains = module.training or self.trains_in_evaluation_mode
        if trains and (module._parameters or module._modules):
            engine.take_no_plans("the script calls its model in a transform of torch.func")

    def _is_training_call(self, module: nn.Module) -> bool:
        if not torch.is_grad_enabled() or torch.is_inference_mode_enabled():
            return False
        if not module.training and not self.trains_in_evaluation_mode:
            return False
        if _known(self.roots, module) is not None:
            return True
        return any(one.requires_grad for one in module.parameters()) and (module.training or self.is_optimized(module))

    def _compiled(self, root: Root, core: nn.Module, called: nn.Module) -> Callable[..., Any] | None:
        engine = self.engine
        if engine is None:
            return None
        is_compiled = core._compiled_call_impl is not None and core._compiled_call_impl is not root.compiled
        if is_compiled or type(called).__name__ == "OptimizedModule":
            root.applied_by = "the script's own compilation"
            return None
        if isinstance(core, torch.jit.ScriptModule):
            self.note(f"{root.name} is a ScriptModule: it takes no plans")
            return None
        is_forward_mode = getattr(torch.autograd.forward_ad, "_current_level", -1) >= 0
        if engine.active and is_forward_mode:
            engine.take_no_plans("the script differentiates its model in forward mode")
        if not engine.active or is_forward_mode:
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
    known = roots[number] = Root(reference, own_class(module).__name__)
    return known


def unwrap(module: Any) -> nn.Module:
    """Return the module inside wrappers that only add communication, an optimizer or compilation."""
    for wrapper in wrappers(module):
        module = _inside(wrapper)
    unwrapped: nn.Module = module
    return unwrapped


def wrappers(module: Any) -> Iterator[nn.Module]:
    """Yield the wrappers around a module, outermost first."""
    while (inner := _inside(module)) is not None:
        yield module
        module = inner


def _inside(module: Any) -> Any:
    # Classes that are named need not be installed.
    name = type(module).__name__
    if isinstance(module, (nn.parallel.DistributedDataParallel, nn.DataParallel)) or name == "DeepSpeedEngine":
        return module.module
    return module._orig_mod if name == "OptimizedModule" else None
