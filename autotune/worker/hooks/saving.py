"""Detection of a script's own checkpointed regions and hooks on saved tensors."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils import checkpoint

from ...records.audit import RegionKind
from ..call_stack import in_backward
from .watch import Packed, unpack

# Torch 2.15 keeps the older name for callers outside of torch.
_GENERATORS = ("_checkpoint_without_reentrant_generator_impl", "_checkpoint_without_reentrant_generator")
GENERATOR = next((name for name in _GENERATORS if hasattr(checkpoint, name)), _GENERATORS[-1])
"""The name of torch's function that a region without reentrant autograd goes through."""

_OWN_CALLS = ("forward", "__call__", "_call_impl", "_wrapped_call_impl")


@dataclass(frozen=True)
class Region:
    """All checkpointed regions of one name and kind, or all hooks of one class."""

    name: str
    kind: RegionKind


class SavingWatch:
    """Is told what is saved, and how regions come and go; by itself it does nothing.

    Everything may be called in the thread of a backward. ``problem`` says what of a watch failed first.
    """

    problem = ""

    def called(self, region: Region, *, with_gradients: bool) -> None:
        """Hear that the forward comes to a region."""

    def enters(self, inputs: Any) -> None:
        """Hear what a checkpoint is called with, whose tensors it is about to save."""

    def running(self) -> Any:
        """Return the place where a region's forward runs, to be known when it is computed again."""

    def saved(self, tensor: torch.Tensor, *, stands_in: bool = False) -> None:
        """Hear of a saved tensor; ``stands_in``: the script keeps it in the place of another."""

    def offered(self, tensor: torch.Tensor, region: Region, place: Any = None) -> None:
        """Hear of a tensor that is not saved because of a region; ``place`` is what ``running`` gave."""

    def again(self, tensor: torch.Tensor) -> None:
        """Hear of a tensor that a region saves as it is computed again."""

    def outputs(self, result: Any) -> Any:
        """Return what has to be known of a forward's result when the region is computed again."""

    def outputs_again(self, result: Any, outputs: Any) -> None:
        """Hear the result of a region that was computed again; ``outputs`` is what ``outputs`` gave."""

    def recompute_begins(self) -> None:
        """Hear that a region is about to be computed again, in backward."""

    def recompute_ends(self) -> None:
        """Hear that the region was computed again."""

    def hooks_begin(self) -> None:
        """Hear that hooks of the script are about to pack or unpack a tensor."""

    def hooks_end(self) -> None:
        """Hear that the hooks have packed or unpacked the tensor."""

    def leave_out(self, tensors: Iterable[torch.Tensor]) -> None:
        """Do not count these tensors, which somebody else keeps."""

    def backward_begins(self) -> None:
        """Hear that the script's backward is about to begin."""

    def backward_done(self) -> None:
        """Hear that the script's backward has ended."""


class SavingHooks:
    """Patches ``torch.utils.checkpoint`` and ``saved_tensors_hooks``, and tells a watch, which each step may replace.

    Only the innermost hooks of a thread are called: those of the script are wrapped as they are entered, and hooks of
    ours below them see the rest, once ``begin`` was called. A non-reentrant checkpoint frees what its hooks are offered
    in forward. A reentrant one shows what it frees as it is computed again.
    """

    def __init__(self, watch: SavingWatch) -> None:
        self.watch = watch
        self._local = threading.local()

    def install(self) -> None:
        """Put the patches in place; called once per process."""
        self._patch_contexts()
        self._patch_non_reentrant()
        self._patch_reentrant()
        self._patch_selective()

    def begin(self) -> None:
        """See what no hooks of the script see, in this thread and from now on."""
        # Where hooks of the script are open across steps nothing passes them by.
        if not self._depth and not getattr(self._local, "is_based", False):
            self._local.is_based = True
            torch._C._autograd._push_saved_tensors_default_hooks(self._pack, unpack)

    @property
    def _depth(self) -> int:
        return getattr(self._local, "depth", 0)

    def _pack(self, tensor: torch.Tensor) -> Packed:
        self.watch.saved(tensor)
        return Packed(tensor)

    def _patch_contexts(self) -> None:
        enter, leave = saved_tensors_hooks.__enter__, saved_tensors_hooks.__exit__

        @functools.wraps(enter)
        def __enter__(own: Any) -> None:  # noqa: N807
            if torch.compiler.is_compiling() or isinstance(own, _Again):
                return enter(own)
            self._local.depth = self._depth + 1
            before = own.pack_hook, own.unpack_hook
            own.pack_hook, own.unpack_hook = self._wrapped(own)
            try:
                return enter(own)
            finally:
                own.pack_hook, own.unpack_hook = before

        @functools.wraps(leave)
        def __exit__(own: Any, *arguments: Any) -> None:  # noqa: N807
            if not torch.compiler.is_compiling() and not isinstance(own, _Again):
                self._local.depth = self._depth - 1
                if isinstance(own, checkpoint._recomputation_hook):
                    self.watch.recompute_ends()
            return leave(own, *arguments)

        saved_tensors_hooks.__enter__ = __enter__  # type: ignore[method-assign]
        saved_tensors_hooks.__exit__ = __exit__  # type: ignore[method-assign]

    def _wrapped(self, own: Any) -> tuple[Callable[[torch.Tensor], Any], Callable[[Any], torch.Tensor]]:
        own_pack, own_unpack = own.pack_hook, own.unpack_hook
        if isinstance(own, checkpoint._recomputation_hook):
            self.watch.recompute_begins()

            def saved_again(tensor: torch.Tensor) -> Any:
                self.watch.again(tensor)
                return own_pack(tensor)

            return saved_again, own_unpack
        if isinstance(own, checkpoint._checkpoint_hook):
            region = getattr(self._local, "called", None) or Region("", "non_reentrant")
            outer = getattr(self._local, "again", None)

            def left_out(tensor: torch.Tensor) -> Any:
                if outer is not None:
                    self.watch.offered(tensor, *outer)
                elif not in_backward():
                    self.watch.offered(tensor, region)
                return own_pack(tensor)

            return left_out, own_unpack
        region = Region(type(own).__name__, "hooks")
        self.watch.called(region, with_gradients=torch.is_grad_enabled())

        def packed(tensor: torch.Tensor) -> Any:
            self.watch.hooks_begin()
            result = own_pack(tensor)
            self.watch.hooks_end()
            self.watch.offered(tensor, region)
            for kept in result if isinstance(result, (tuple, list)) else (result,):
                if isinstance(kept, torch.Tensor):
                    self.watch.saved(kept, stands_in=True)
            return result

        def unpacked(result: Any) -> torch.Tensor:
            self.watch.hooks_begin()
            tensor = own_unpack(result)
            self.watch.hooks_end()
            return tensor

        return packed, unpacked

    def _patch_non_reentrant(self) -> None:
        original = getattr(checkpoint, GENERATOR)

        @functools.wraps(original)
        def generator(function: Any, *arguments: Any, **keywords: Any) -> Any:
            self._local.called = self._called(function, "non_reentrant", with_gradients=torch.is_grad_enabled())
            if torch.is_grad_enabled() and not in_backward():
                self.watch.enters((arguments, keywords))
            return original(function, *arguments, **keywords)

        setattr(checkpoint, GENERATOR, generator)

    def _patch_reentrant(self) -> None:
        cls = checkpoint.CheckpointFunction
        original = cls.forward

        def forward(ctx: Any, function: Any, preserves: Any, *arguments: Any) -> Any:
            needs = any(isinstance(one, torch.Tensor) and one.requires_grad for one in arguments)
            region = self._called(function, "reentrant", with_gradients=needs)
            place, outputs = self.watch.running(), None

            def run(*inputs: Any) -> Any:
                nonlocal outputs
                if in_backward():
                    result = self._again(function, inputs, region, place)
                    self.watch.outputs_again(result, outputs)
                else:
                    result = self._without_gradients(function, inputs)
                    outputs = self.watch.outputs(result)
                    self.watch.enters(arguments if needs else ())
                return result

            return original(ctx, run, preserves, *arguments)

        cls.forward = staticmethod(forward)  # type: ignore[method-assign]

    def _patch_selective(self) -> None:
        # A policy caches results of operators, which is more than what autograd would save.
        original = checkpoint._VersionWrapper.__init__

        @functools.wraps(original)
        def __init__(own: Any, value: Any, *arguments: Any, **keywords: Any) -> None:  # noqa: N807
            original(own, value, *arguments, **keywords)
            if isinstance(value, torch.Tensor) and not torch.compiler.is_compiling():
                self.watch.saved(value, stands_in=True)

        checkpoint._VersionWrapper.__init__ = __init__  # type: ignore[method-assign,assignment]

    def _called(self, function: Any, kind: RegionKind, *, with_gradients: bool) -> Region:
        region = Region(name_of(function), kind)
        # One inside of another counts as a part of that.
        if not in_backward() and not getattr(self._local, "is_inside", False):
            self.watch.called(region, with_gradients=with_gradients)
        return region

    def _without_gradients(self, function: Any, inputs: Any) -> Any:
        before, self._local.is_inside = getattr(self._local, "is_inside", False), True
        try:
            return function(*inputs)
        finally:
            self._local.is_inside = before

    def _again(self, function: Any, inputs: Any, region: Region, place: Any) -> Any:
        before = getattr(self._local, "again", None)
        region, place = before or (region, place)
        self._local.again = region, place
        self.watch.recompute_begins()
        try:
            if self._depth or before is not None:
                return function(*inputs)

            def pack(tensor: torch.Tensor) -> Packed:
                self.watch.offered(tensor, region, place)
                return Packed(tensor)

            with _Again(pack, unpack):
                return function(*inputs)
        finally:
            self._local.again = before
            self.watch.recompute_ends()


class _Again(saved_tensors_hooks):
    """Hooks of ours while a reentrant checkpoint computes again."""


def name_of(function: Any) -> str:
    """Return the name of a region, by the function that a checkpoint is called with."""
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, nn.Module):
        return type(function).__name__
    owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
    if isinstance(owner, nn.Module):
        return type(owner).__name__ + ("" if name in _OWN_CALLS else f".{name}")
    # Of a function in a function the outer one is what somebody has written a checkpoint for.
    outer = str(getattr(function, "__qualname__", "")).partition(".<locals>")[0]
    return (outer or name or type(function).__name__).removesuffix(".forward")
