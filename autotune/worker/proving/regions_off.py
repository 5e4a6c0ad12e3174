"""A script's own checkpoints and hooks on saved tensors, switched off."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import _swap_with_cloned, saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import checkpoint

from ..hooks.samples import tensors_of
from ..hooks.saving import GENERATOR, name_of


class RegionsOff:
    """Has checkpointed regions run like any other code, and hooks on saved tensors do nothing.

    ``number`` counts what was switched off. ``cut`` has for each region the leaves of autograd's graph, by ``id``, from
    which something in the region, or what it is called with, was detached; or its parameters, where it computes no
    gradients.
    """

    def __init__(self) -> None:
        self.number = 0
        self.cut: dict[str, set[int]] = {}
        self._inside: list[str] = []  # the regions under way
        self._detached: dict[StorageWeakRef, set[int]] = {}

    def install(self) -> None:
        """Put the patches in place; called once per process. Torch looks these functions up as it calls them."""
        setattr(checkpoint, GENERATOR, self._generator)
        self._patch_reentrant()
        self._patch_hooks()
        self._patch_detach()

    def _generator(self, function: Any, *arguments: Any, **keywords: Any) -> Iterator[None]:
        self._begin(function, (arguments, keywords))
        try:
            yield
        finally:
            self._inside.pop()

    def _begin(self, function: Any, given: Any) -> None:
        self.number += 1
        name = name_of(function)
        self._inside.append(name)
        module = function if isinstance(function, nn.Module) else getattr(function, "__self__", None)
        if isinstance(module, nn.Module) and not torch.is_grad_enabled():
            self._add(name, set(map(id, module.parameters())))
        for tensor in tensors_of(given):
            leaves = self._detached.get(StorageWeakRef(tensor.untyped_storage()))
            if leaves and tensor.is_leaf:
                self._add(name, leaves)

    def _add(self, region: str, leaves: set[int]) -> None:
        self.cut.setdefault(region, set()).update(leaves)

    def _patch_reentrant(self) -> None:
        original = checkpoint.CheckpointFunction.apply

        def apply(cls: Any, function: Any, *arguments: Any) -> Any:
            if cls is not checkpoint.CheckpointFunction:
                return original.__func__(cls, function, *arguments)  # type: ignore[attr-defined]
            # The first of the arguments says whether to preserve the state of random generators.
            self._begin(function, arguments[1:])
            try:
                return function(*arguments[1:])
            finally:
                self._inside.pop()

        checkpoint.CheckpointFunction.apply = classmethod(apply)  # type: ignore[method-assign,assignment]

    def _patch_hooks(self) -> None:
        enter, leave = saved_tensors_hooks.__enter__, saved_tensors_hooks.__exit__

        @functools.wraps(enter)
        def __enter__(own: Any) -> None:  # noqa: N807
            if isinstance(own, _swap_with_cloned):  # what a script relies on, not what it saves memory by
                enter(own)
            else:
                self.number += 1

        @functools.wraps(leave)
        def __exit__(own: Any, *arguments: Any) -> None:  # noqa: N807
            if isinstance(own, _swap_with_cloned):
                leave(own, *arguments)

        saved_tensors_hooks.__enter__ = __enter__  # type: ignore[method-assign]
        saved_tensors_hooks.__exit__ = __exit__  # type: ignore[method-assign]

    def _patch_detach(self) -> None:
        original = torch.Tensor.detach

        @functools.wraps(original)
        def detach(own: torch.Tensor) -> torch.Tensor:
            result = original(own)
            if own.grad_fn is not None and not torch.compiler.is_compiling():
                leaves = {id(leaf) for leaf in _leaves_of(own.grad_fn)}
                self._detached[StorageWeakRef(result.untyped_storage())] = leaves
                for region in self._inside:
                    self._add(region, leaves)
            return result

        torch.Tensor.detach = detach  # type: ignore[assignment]


def _leaves_of(node: Any) -> Iterator[torch.Tensor]:
    """Yield the leaves that a node of autograd's graph leads to."""
    waiting, seen = [node], {node}
    while waiting:
        one = waiting.pop()
        if hasattr(one, "variable"):
            yield one.variable
        following = {each for each, _ in one.next_functions if each is not None} - seen
        seen |= following
        waiting += following
