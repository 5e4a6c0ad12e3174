"""A script's own checkpoints and hooks on saved tensors, switched off."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.modules.module import register_module_forward_hook
from torch.utils import checkpoint

from ..hooks.samples import tensors_of
from ..hooks.saving import GENERATOR, name_of


class RegionsOff:
    """Has checkpointed regions run like any other code, and hooks on saved tensors do nothing.

    ``cut`` names the regions that were called with a detached tensor: a module has computed it with a graph, and the
    region gets it without one.
    """

    def __init__(self) -> None:
        self.cut: dict[str, None] = {}
        self._followed: set[StorageWeakRef] = set()

    def install(self) -> None:
        """Put the patches in place; called once per process, before the script gets hold of torch's functions."""
        setattr(checkpoint, GENERATOR, self._generator)
        checkpoint.CheckpointFunction.apply = self._apply  # type: ignore[method-assign]
        for name in ("__enter__", "__exit__"):
            setattr(saved_tensors_hooks, name, _do_nothing)
        register_module_forward_hook(self._computed)

    def _generator(self, function: Any, *arguments: Any, **keywords: Any) -> Iterator[None]:
        self._look(function, (arguments, keywords))
        yield

    def _apply(self, function: Any, preserves_random_state: bool, *arguments: Any) -> Any:
        del preserves_random_state
        self._look(function, arguments)
        return function(*arguments)

    def _look(self, function: Any, given: Any) -> None:
        if any(map(self._is_cut, tensors_of(given))):
            self.cut[name_of(function)] = None

    def _is_cut(self, tensor: torch.Tensor) -> bool:
        return tensor.is_leaf and StorageWeakRef(tensor.untyped_storage()) in self._followed

    def _computed(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        del module, inputs
        followed = (tensor for tensor in tensors_of(outputs) if tensor.grad_fn is not None)
        self._followed.update(StorageWeakRef(tensor.untyped_storage()) for tensor in followed)


def _do_nothing(*_: Any) -> None:
    """Stand in for a context's methods."""
