"""Changes of a script that is followed, made as a user would make them in its lines."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from ...records.memory_changes import LOSS_CHUNKS, WorkerChange
from .recorder import AllocationRecorder

_aten = torch.ops.aten
# Results of matrix products and attention take long to compute again.
_KEPT = [
    _aten.mm.default,
    _aten.bmm.default,
    _aten.addmm.default,
    _aten.baddbmm.default,
    _aten.convolution.default,
    _aten._scaled_dot_product_flash_attention.default,
    _aten._scaled_dot_product_efficient_attention.default,
    _aten._scaled_dot_product_cudnn_attention.default,
]
# What lies between a linear layer and its loss without computing anything but another type.
_PASSED = (
    *("View", "UnsafeView", "ReshapeAlias", "Alias", "Slice", "Clone", "ToCopy", "Transpose", "T", "Permute"),
    *("Squeeze", "Unsqueeze", "Select", "Split", "Expand"),
)


def make_change(change: WorkerChange, recorder: AllocationRecorder) -> Callable[[], str]:
    """Make a change in this process, before the script uses torch; return what says why it changed nothing, if so."""
    if change == "chunked loss":
        return ChunkedLoss(recorder).problem
    if change == "offloading":
        torch.autograd.graph.save_on_cpu(pin_memory=True).__enter__()
    elif change == "early gradients":
        register_optimizer_step_post_hook(_free_gradients)
    elif change == "accumulation":
        _keep_gradients()
    return str


def checkpoint_block(block: nn.Module, *, keeps_products: bool) -> None:
    """Have a block compute its activations again in the backward; or all but its products and its attention."""
    forward = block.forward
    how: dict[str, Any] = {"use_reentrant": False}
    if keeps_products:
        how["context_fn"] = functools.partial(create_selective_checkpoint_contexts, _KEPT)

    def checkpointed(*arguments: Any, **keywords: Any) -> Any:
        return checkpoint(forward, *arguments, **how, **keywords)

    block.forward = checkpointed


class ChunkedLoss:
    """Computes the last layer and its cross entropy in chunks, each of which the backward computes again.

    The script has made the logits already when it asks for their loss. Their values do not exist, so the recorder
    takes their allocations back; unless the script reads the logits for something else, which ``problem`` tells.
    """

    def __init__(self, recorder: AllocationRecorder) -> None:
        self._recorder = recorder
        self._linear, self._cross_entropy = functional.linear, functional.cross_entropy
        self._signature = inspect.signature(self._cross_entropy)
        self._most = 0
        self._last: tuple[int, Callable[[Any], Any], Any, Any] | None = None
        self._is_done = False
        functional.linear = self._see_linear
        functional.cross_entropy = self._chunked

    def problem(self) -> str:
        """Say why nothing has changed, or nothing."""
        if not self._is_done:
            return "no cross entropy is computed from the largest output of a linear layer"
        reader = self._recorder.reader
        return f"the logits are also read by {reader}" if reader else ""

    def _see_linear(self, input: Any, weight: Any, bias: Any = None) -> Any:  # noqa: A002 - as torch names it
        output = self._linear(input, weight, bias)
        number = self._recorder.number_of(output)
        # Only the largest output is worth it. What it was computed from must not be held for others.
        if number is None or output.grad_fn is None or output.numel() < self._most:
            return output
        self._recorder.watch(number)
        kind = input.device.type
        dtype, enabled = torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)

        def again(rows: Any) -> Any:
            with torch.autocast(kind, dtype, enabled):
                return self._linear(rows, weight, bias)

        self._most = output.numel()
        self._last = (output.grad_fn._sequence_nr(), again, input, output)
        return output

    def _chunked(self, *arguments: Any, **keywords: Any) -> Any:
        call = self._signature.bind(*arguments, **keywords)
        call.apply_defaults()
        given = dict(call.arguments)
        logits, target, reduction = given.pop("input"), given.pop("target"), given.pop("reduction")
        last, self._last = self._last, None
        if last is None or target.is_floating_point() or not _comes_from(logits, last[0]):
            self._recorder.watch(None)
            return self._cross_entropy(*arguments, **keywords)
        dtype = logits.dtype
        _, linear, hidden, output = last
        self._recorder.forget()
        self._is_done = True
        # The script may hold the logits, and with them what their backward would need.
        if not output._is_view():
            output.detach_()

        def part(hidden: Any, target: Any) -> Any:
            kind = "none" if reduction == "none" else "sum"
            return self._cross_entropy(linear(hidden).to(dtype), target, reduction=kind, **given)

        rows = hidden.reshape(-1, hidden.shape[-1])
        if len(rows) != target.numel():
            rows = rows[: target.numel()]
        chunks = zip(rows.chunk(LOSS_CHUNKS), target.reshape(-1).chunk(LOSS_CHUNKS), strict=True)
        parts = [checkpoint(part, *chunk, use_reentrant=False) for chunk in chunks]
        if reduction == "none":
            return torch.cat(parts).reshape(target.shape)
        return sum(parts) / (target.numel() if reduction == "mean" else 1)


def _comes_from(logits: Any, number: int) -> bool:
    """Return whether logits are what a node of that number returned, in another shape or type."""
    node = logits.grad_fn
    while node is not None and node._sequence_nr() != number:
        if node.name().rstrip("01").removesuffix("Backward") not in _PASSED:
            return False
        node = node.next_functions[0][0]
    return node is not None


def _free_gradients(optimizer: Optimizer, *_: Any) -> None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None


def _keep_gradients() -> None:
    """Have gradients stay from step to step, as they do between the batches of a step that accumulates."""

    def keep(self: Any, set_to_none: bool = True) -> None:
        del self, set_to_none

    Optimizer.zero_grad = nn.Module.zero_grad = keep  # type: ignore[method-assign]
