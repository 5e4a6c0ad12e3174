"""Where autograd adds gradients that meet: in place on a GPU, never with fake tensors."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

_Counts = tuple[int, int, int]
_SUMMANDS = 2


class Accumulation:
    """Knows sums that autograd's engine makes in place, where it alone holds the first summand.

    The engine asks that of tensors of torch's own class only (torch/csrc/autograd/input_buffer.cpp). It alone holds a
    tensor that has as few references as one in a backward that is made for comparison. Two gradients that come of one
    operator, as in ``y * y``, are taken for what its formula adds itself.
    """

    def __init__(self) -> None:
        self._alone = _counts_of_one_alone()
        self._node: tuple[str, int] | None = None
        self._made_by_node: set[int] = set()

    def made(self, storages: set[int]) -> None:
        """Note the storages of what an operator returns, by their addresses."""
        node = _running_node()
        if node != self._node:
            self._node, self._made_by_node = node, set()
        if node is not None:
            self._made_by_node |= storages

    def is_in_place(self, func: Any, args: Any) -> bool:
        """Return whether an operator is such a sum."""
        if func is not torch.ops.aten.add.Tensor or torch.is_grad_enabled() or len(args) != _SUMMANDS:
            return False
        if not all(map(_is_followed, args)):
            return False
        node = _running_node()
        if node is None or _counts(args) != self._alone:
            return False
        # The formula of a gradient may add what it has computed itself.
        is_of_formula = node == self._node and args[0].untyped_storage()._cdata in self._made_by_node
        return not is_of_formula and _is_dense(args[0])


def _is_followed(value: Any) -> bool:
    return isinstance(value, FakeTensor) and value.device.type == "cuda" and value.layout == torch.strided


def _is_dense(tensor: torch.Tensor) -> bool:
    """Return whether no two elements share a place, and none lies idle between them."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def _running_node() -> tuple[str, int] | None:
    native: Any = torch._C
    node = native._current_autograd_node()
    return None if node is None else (node.name(), node._sequence_nr())


def _counts(args: Any) -> _Counts:
    first = args[0]
    native: Any = torch._C
    return sys.getrefcount(first), first._use_count(), native._storage_Use_Count(first.untyped_storage()._cdata)


def _counts_of_one_alone() -> _Counts:
    fake, found = FakeTensorMode(), []

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten.add.Tensor and _running_node() is not None:
                found.append(_counts(args))
            with fake:
                return func(*args, **(kwargs or {}))

    with torch.enable_grad(), fake:
        leaf = torch.ones(2, requires_grad=True)
    with torch.enable_grad(), Counting():
        branch = leaf * 2
        outputs = (branch + branch.sin()).sin()
        # As Tensor.backward does, on which the worker has a hook.
        torch.autograd.Variable._execution_engine.run_backward(
            (outputs,), (torch.ones_like(outputs),), False, False, (), allow_unreachable=True, accumulate_grad=True
        )
    (counts,) = found
    return counts
