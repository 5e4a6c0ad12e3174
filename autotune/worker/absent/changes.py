"""Changes of a script that is followed, made as a user would make them in its lines."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
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
_LAYERS = ("Addmm", "Mm", "Bmm")


class ScriptChange:
    """A change of the script in this process, which is in place from the start."""

    def backward_begins(self) -> None:
        """Act before the script's backward."""

    def problem(self) -> str:
        """Say why the change was not made, or nothing; to be asked after the steps."""
        return ""


def make_change(change: WorkerChange, recorder: AllocationRecorder) -> ScriptChange:
    """Make a change in this process, before the script uses torch."""
    if change == "chunked loss":
        return ChunkedLoss(recorder)
    if change == "accumulation":
        return KeptGradients()
    if change == "offloading":
        torch.autograd.graph.save_on_cpu(pin_memory=True).__enter__()
    elif change == "early gradients":
        register_optimizer_step_post_hook(_free_gradients)
    return ScriptChange()


def checkpoint_block(block: nn.Module, *, keeps_products: bool) -> None:
    """Have a block compute its activations again in the backward; or all but its products and its attention."""
    forward = block.forward
    how: dict[str, Any] = {"use_reentrant": False}
    if keeps_products:
        how["context_fn"] = functools.partial(create_selective_checkpoint_contexts, _KEPT)

    def checkpointed(*arguments: Any, **keywords: Any) -> Any:
        return checkpoint(forward, *arguments, **how, **keywords)

    block.forward = checkpointed


class ChunkedLoss(ScriptChange):
    """Computes the last layer and its cross entropy in chunks, each of which the backward computes again.

    The script has made the logits already when it asks for their loss. Their values do not exist, so the recorder
    takes their allocations back; unless the script reads the logits for something else, which ``problem`` tells.
    """

    def __init__(self, recorder: AllocationRecorder) -> None:
        self._recorder = recorder
        self._linear, self._cross_entropy = functional.linear, functional.cross_entropy
        self._signature = inspect.signature(self._cross_entropy)
        # Only the largest outputs are worth it. A later batch may be smaller, so their layers are known by the weights.
        self._most = 0
        self._weights: dict[int, Any] = {}
        self._outputs: dict[int, _Output] = {}  # until the backward, by the number of the node in autograd
        self._is_done = False
        self._why_not = "no cross entropy is computed from the largest output of torch.nn.functional.linear"
        functional.linear = self._see_linear
        functional.cross_entropy = self._chunked

    def backward_begins(self) -> None:
        """Let go of the layers' inputs."""
        self._outputs.clear()

    def problem(self) -> str:
        """Say why the change was not made, or nothing."""
        if not self._is_done:
            return self._why_not
        reader = self._recorder.reader
        return f"the logits are read once more, by {reader}" if reader else ""

    def _see_linear(self, input: Any, weight: Any, bias: Any = None) -> Any:  # noqa: A002 - as torch names it
        output = self._linear(input, weight, bias)
        number = self._recorder.number_of(output)
        if number is None or output.grad_fn is None:
            return output
        if output.numel() > self._most:
            self._most = output.numel()
            self._weights.clear()
            self._outputs.clear()
        if output.numel() == self._most:
            self._weights[id(weight)] = weight
        if id(weight) in self._weights:
            self._recorder.watch(number)
            kind = input.device.type
            dtype, enabled = torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)

            def again(rows: Any) -> Any:
                with torch.autocast(kind, dtype, enabled):
                    return self._linear(rows, weight, bias)

            self._outputs[output.grad_fn._sequence_nr()] = _Output(output, number, input, again)
        return output

    def _chunked(self, *arguments: Any, **keywords: Any) -> Any:
        call = self._signature.bind(*arguments, **keywords)
        call.apply_defaults()
        given = dict(call.arguments)
        logits, target, reduction = given.pop("input"), given.pop("target"), given.pop("reduction")
        found = None if target.is_floating_point() else self._output_behind(logits)
        if found is not None and logits.shape[1:] != found.output.shape[-1:]:
            self._why_not = "the loss does not take the rows of the last layer's output as they are"
            found = None
        if found is None:
            return self._cross_entropy(*arguments, **keywords)
        dtype = logits.dtype
        self._recorder.forget(found.number)
        self._is_done = True
        # The script may hold the logits, and with them what their backward would need.
        if not found.output._is_view():
            found.output.detach_()

        def part(hidden: Any, target: Any) -> Any:
            kind = "none" if reduction == "none" else "sum"
            return self._cross_entropy(found.again(hidden).to(dtype), target, reduction=kind, **given)

        rows = found.input.reshape(-1, found.input.shape[-1])
        if len(rows) != target.numel():
            rows = rows[: target.numel()]
        chunks = zip(rows.chunk(LOSS_CHUNKS), target.reshape(-1).chunk(LOSS_CHUNKS), strict=True)
        parts = [checkpoint(part, *chunk, use_reentrant=False) for chunk in chunks]
        if reduction == "none":
            return torch.cat(parts).reshape(target.shape)
        return sum(parts) / (target.numel() if reduction == "mean" else 1)

    def _output_behind(self, logits: Any) -> _Output | None:
        """Return the output that logits are, in another shape or type; None if something was computed of it."""
        node = logits.grad_fn
        while node is not None and self._outputs:
            if found := self._outputs.pop(node._sequence_nr(), None):
                return found
            name = node.name().rstrip("01").removesuffix("Backward")
            if name not in _PASSED:
                if name not in _LAYERS:
                    self._why_not = f"{name} lies between the last layer and the loss"
                return None
            node = node.next_functions[0][0]
        return None


@dataclass(frozen=True)
class _Output:
    """Holds what a linear layer returned, the number of its storage, and what computes the same of some rows."""

    output: Any
    number: int
    input: Any
    again: Callable[[Any], Any]


class KeptGradients(ScriptChange):
    """Has gradients stay from step to step, as they do between the batches of a step that accumulates."""

    def __init__(self) -> None:
        self._stepped: list[Any] = []
        self._are_gone = False
        Optimizer.zero_grad = nn.Module.zero_grad = self._keep  # type: ignore[method-assign]
        register_optimizer_step_post_hook(lambda optimizer, *_: self._stepped.append(optimizer))

    def backward_begins(self) -> None:
        """See whether the gradients of the last step are still there."""
        groups = (group for optimizer in self._stepped for group in optimizer.param_groups)
        gradients = [parameter.grad for group in groups for parameter in group["params"]]
        self._are_gone = self._are_gone or (bool(gradients) and all(one is None for one in gradients))
        self._stepped.clear()

    def problem(self) -> str:
        """Say why the change was not made, or nothing."""
        return "the script frees its gradients otherwise than by zero_grad" if self._are_gone else ""

    @staticmethod
    def _keep(*_: Any, **__: Any) -> None:
        """Free nothing."""


def _free_gradients(optimizer: Optimizer, *_: Any) -> None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None
