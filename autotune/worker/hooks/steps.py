"""Optimizer steps and the phases of a training step."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from ...records.outcome import Phase


@dataclass(kw_only=True, eq=False)
class StepHooks:
    """Counts optimizer steps with torch's global step hooks, and backwards by wrapping ``torch.autograd.backward``.

    Of several optimizers the steps of one count: of the first, until it is gone or another has stepped twice since its
    last step (the script goes on with a new one, say). Of nested optimizers the outermost counts. Without any, a
    backward that starts from empty gradients closes the step before.
    """

    phase: Callable[[Phase], None]  # "optimizer" as that phase begins, "forward" as it or the backward ends
    before_step: Callable[[Optimizer], None]
    backward_begins: Callable[[Any], None]  # with the loss
    backward_done: Callable[[Any], None]  # with the loss
    step_done: Callable[[], None]  # after each counted step
    parameters: Callable[[], Iterable[nn.Parameter]]  # of the root modules; asked where there is no optimizer
    failed: Callable[[Exception], None]  # with what a hook raised, but for SystemExit, which passes
    hands_off: Callable[[], bool]  # asked before each hook, which does nothing if so

    def __post_init__(self) -> None:
        # The frames of the steps under way. An optimizer can be in several: torch calls the hooks for a subclass's
        # step and for the `super().step()` in it.
        self._running: list[FrameType] = []
        self._leader: Callable[[], Optimizer | None] = lambda: None
        # Of each optimizer that has stepped since the leader's last step. Weak, as a script's old model hangs on each.
        self._steps: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()
        self._known: weakref.WeakKeyDictionary[Optimizer, None] = weakref.WeakKeyDictionary()
        self._has_optimizer = False
        self._made: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._backwards_since_step = 0
        self.grad_scaler = False
        self._rests = False

    @property
    def optimizers(self) -> list[Optimizer]:
        """The optimizers that have stepped and are still alive, in the order of their first steps."""
        return list(self._known)

    def optimizes(self, module: nn.Module) -> bool:
        """Return whether an optimizer holds a parameter of the module, stepped or not."""
        parameters = {id(one) for one in module.parameters()}
        groups = [group for optimizer in list(self._made) for group in optimizer.param_groups]
        return any(id(one) in parameters for group in groups for one in group["params"])

    def rest(self) -> None:
        """Count nothing and tell nobody from here on; optimizers are prepared still."""
        self._rests = True
        self._running.clear()

    def entries(self) -> tuple[Callable[..., Any], ...]:
        """Return what torch calls of ours inside a step."""
        return (
            *(self._before_step, self._after_step, self._guarded, self._begin_backward, self._end_backward),
            *(self.before_step, self.phase, self.backward_begins, self.backward_done, self.step_done),
        )

    def install(self) -> None:
        """Register the hooks; called once per process."""
        register_optimizer_step_pre_hook(self._before_step)
        register_optimizer_step_post_hook(self._after_step)
        self._patch_backward()
        self._patch_construction()

    def _before_step(self, optimizer: Optimizer, *_: Any) -> None:
        if self._rests:
            self._guarded(self.before_step, optimizer)
        else:
            self._guarded(self._begin_step, sys._getframe(1), optimizer)

    def _after_step(self, optimizer: Optimizer, *_: Any) -> None:
        if not self._rests:
            self._guarded(self._end_step, sys._getframe(1), optimizer)

    def _guarded(self, hook: Callable[..., None], *arguments: Any) -> None:
        try:
            if not self.hands_off():
                hook(*arguments)
        except Exception as error:
            # The script must not see it: the step is its own, the hook is ours.
            self.failed(error)

    def _begin_step(self, caller: FrameType, optimizer: Optimizer) -> None:
        self._forget_raised(caller)
        self._running.append(caller)
        self.before_step(optimizer)
        self.phase("optimizer")

    def _end_step(self, caller: FrameType, optimizer: Optimizer) -> None:
        self._forget_raised(caller)
        if self._running:
            self._running.pop()
        self.phase("forward")
        if self._running:
            return
        self._known[optimizer] = None
        if self._leads(optimizer):
            self.step_done()

    def _leads(self, optimizer: Optimizer) -> bool:
        """Return whether the step that this optimizer has made counts."""
        leader = self._leader()
        self._steps[optimizer] = self._steps.get(optimizer, 0) + 1
        if leader is not None and leader is not optimizer and self._steps[optimizer] < 2:
            return False
        self._leader = weakref.ref(optimizer)
        self._steps.clear()
        return True

    def _forget_raised(self, frame: FrameType | None) -> None:
        """Drop steps that have raised, of which torch does not tell."""
        active = set()
        while frame is not None:
            active.add(frame)
            frame = frame.f_back
        while self._running and self._running[-1] not in active:
            self._running.pop()

    def _patch_backward(self) -> None:
        original = torch.autograd.backward

        @functools.wraps(original)
        def backward(*arguments: Any, **keywords: Any) -> Any:
            if self._rests or torch._C._current_graph_task_id() != -1:
                return original(*arguments, **keywords)  # a checkpoint's, in the middle of the script's own
            loss = arguments[0] if arguments else keywords.get("tensors")
            self._guarded(self._begin_backward, loss)
            result = original(*arguments, **keywords)
            self._guarded(self._end_backward, loss)
            return result

        torch.autograd.backward = backward

    def _begin_backward(self, loss: Any) -> None:
        if not self._has_optimizer and self._backwards_since_step and self._gradients_are_empty():
            self._backwards_since_step = 0
            self.step_done()
        self.backward_begins(loss)

    def _end_backward(self, loss: Any) -> None:
        self.phase("optimizer" if self._running else "forward")
        self._backwards_since_step += 1
        self.backward_done(loss)

    def _gradients_are_empty(self) -> bool:
        parameters = [parameter for parameter in self.parameters() if parameter.requires_grad]
        found: dict[torch.device, list[torch.Tensor]] = {}
        for parameter in parameters:
            if parameter.grad is not None:
                found.setdefault(parameter.grad.device, []).append(parameter.grad.any())
        # One answer from each device: asking for each gradient's would wait for the device as often.
        return bool(parameters) and not any(bool(torch.stack(each).any()) for each in found.values())

    def _patch_construction(self) -> None:
        # An optimizer that exists will step, so a backward before its first step is no step by itself.
        original = Optimizer.__init__
        original_scaler = torch.amp.GradScaler.__init__

        @functools.wraps(original)
        def __init__(own: Any, *arguments: Any, **keywords: Any) -> None:  # noqa: N807
            self._has_optimizer = True
            original(own, *arguments, **keywords)
            self._made.add(own)

        @functools.wraps(original_scaler)
        def scaler_init(own: Any, *arguments: Any, **keywords: Any) -> None:
            original_scaler(own, *arguments, **keywords)
            self.grad_scaler |= own.is_enabled()

        Optimizer.__init__ = __init__  # type: ignore[method-assign,assignment]
        torch.amp.GradScaler.__init__ = scaler_init  # type: ignore[method-assign,assignment]
