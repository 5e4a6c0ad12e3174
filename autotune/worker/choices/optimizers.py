"""torch's optimizers with ``fused=True`` or ``foreach=True``, where the script says nothing about either."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import torch
from torch.optim.optimizer import Optimizer, _default_to_fused_or_foreach

from ...records.choices import OptimizerChoice
from .made import MadeChoice


class OptimizerKeyword(MadeChoice):
    """Gives optimizers a keyword right before they step, as their parameters may move to a device until then."""

    def __init__(self, choice: OptimizerChoice, note: Callable[[str], None]) -> None:
        super().__init__(choice, note)
        self._keyword = choice.keyword
        # The reason why an optimizer is left alone; empty where it is not.
        self._reasons: weakref.WeakKeyDictionary[Optimizer, str] = weakref.WeakKeyDictionary()
        self._is_taken = False

    def before_step(self, optimizer: Optimizer) -> None:
        """Give the optimizer the keyword, unless the optimizer has it, or cannot have it."""
        if optimizer not in self._reasons:
            reason = self._reasons[optimizer] = self._reason(optimizer)
            if reason:
                self.note(f"{self._keyword}=True was not given to an optimizer: {reason}")
        # Looked at in each step: a checkpoint that is loaded brings its own settings.
        if self._reasons[optimizer] or all(group[self._keyword] for group in optimizer.param_groups):
            return
        for settings in (optimizer.defaults, *optimizer.param_groups):
            settings[self._keyword] = True
        if self._keyword == "fused":
            _prepare_fused(optimizer)
        self._is_taken = True

    def undo(self) -> None:
        """Have optimizers step as the script says, which says nothing where they were given the keyword."""
        for optimizer in (one for one, reason in self._reasons.items() if not reason):
            for settings in (optimizer.defaults, *optimizer.param_groups):
                settings[self._keyword] = None
            if self._keyword == "fused":
                _forget_fused(optimizer)

    def problem(self) -> str:
        """Say why nothing has changed, or nothing."""
        if self._is_taken:
            return ""
        return "; ".join(dict.fromkeys(self._reasons.values())) or "no optimizer of torch's has stepped"

    def _reason(self, optimizer: Optimizer) -> str:
        """Return why an optimizer cannot have the keyword; empty where it can."""
        name, keyword = type(optimizer).__name__, self._keyword
        # Who steps in a way of their own need not look at what the class below them can do.
        if keyword not in optimizer.defaults or not type(optimizer).step.__module__.startswith("torch.optim."):
            return f"{name} has no {keyword!r} as torch's optimizers have it"
        for group in optimizer.param_groups:
            given = next((other for other in ("foreach", "fused") if group.get(other) is not None), None)
            if given is not None:
                return f"the script itself gives {name} {given}={group[given]}"
            if group.get("differentiable"):
                return f"{name} is differentiable"
            if keyword == "foreach" and isinstance(group.get("lr"), torch.Tensor) and not group.get("capturable"):
                return f"{name} has a tensor as its learning rate"
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        if any(one.grad is not None and one.grad.is_sparse for one in parameters):
            return f"{name} has sparse gradients"
        if keyword == "fused":
            return _why_not_fused(type(optimizer), parameters)
        _, is_default = _default_to_fused_or_foreach(parameters, differentiable=False, use_fused=False)
        return f"{name} takes it by itself here" if is_default else ""


def _why_not_fused(kind: type[Optimizer], parameters: list[torch.Tensor]) -> str:
    kernels = (f"_fused_{one.__name__.lower()}_" for one in kind.__mro__)
    kernel = next((name for name in kernels if hasattr(torch, name)), None)
    if kernel is None:
        return f"torch has no fused kernel for {kind.__name__}"
    for device in sorted({parameter.device.type for parameter in parameters}):
        # A torch without CUDA has none of the kernels for a GPU that is not there, but those for the CPU.
        key = torch._C._dispatch_key_for_device(device if torch._C._has_cuda else "cpu")
        if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{kernel}", key):
            return f"torch has no fused kernel for {kind.__name__} on {device}"
    supported, _ = _default_to_fused_or_foreach(parameters, differentiable=False, use_fused=True)
    return "" if supported else f"torch has no fused kernel for the type of a parameter of {kind.__name__}"


def _prepare_fused(optimizer: Optimizer) -> None:
    """Do what the constructor does beyond keeping the keyword, and what it would have put into the state."""
    # Lets a GradScaler leave the scale to the kernel.
    optimizer._step_supports_amp_scaling = True  # type: ignore[attr-defined]
    for parameter, state in optimizer.state.items():
        if isinstance(state.get("step"), torch.Tensor):
            state["step"] = state["step"].to(parameter.device, torch.float32)


def _forget_fused(optimizer: Optimizer) -> None:
    """Undo ``_prepare_fused``."""
    optimizer.__dict__.pop("_step_supports_amp_scaling", None)
    for group in optimizer.param_groups:
        for state in (optimizer.state.get(parameter, {}) for parameter in group["params"]):
            # Read in each step: from a device that would be waited for.
            if isinstance(state.get("step"), torch.Tensor) and not group.get("capturable"):
                state["step"] = state["step"].cpu()
