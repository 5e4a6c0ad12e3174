"""Detection of where a script decides itself what autograd keeps: checkpointed regions, and hooks on saved tensors."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils import checkpoint

from ...records.audit import RegionKind
from .watch import Packed, in_backward, unpack

_OWN_CALLS = ("forward", "__call__", "_call_impl", "_wrapped_call_impl")


class Region:
    """All regions of one name and kind; what of them was seen is for the watch to keep."""

    def __init__(self, name: str, kind: RegionKind) -> None:
        self.name, self.kind = name, kind


class SavingWatch:
    """Is told what is saved, and how regions come and go; by itself it does nothing.

    Everything may be called in the thread of a backward. ``problem`` says what of a watch failed first.
    """

    problem = ""

    def called(self, region: Region, *, with_gradients: bool) -> None:
        """The forward comes to a region."""

    def enters(self, inputs: Any) -> None:
        """A checkpoint is called with these, and is about to save the tensors among them for its recomputation."""

    def running(self) -> Any:
        """Return what a region that is computed again has to remember of the place where its forward ran."""

    def saved(self, tensor: torch.Tensor, *, stands_in: bool = False) -> None:
        """Autograd saves a tensor as it is, or hooks of the script keep it, which may stand in for another."""

    def offered(self, tensor: torch.Tensor, region: Region, place: Any = None) -> None:
        """Autograd would save this tensor if it were not for a region; ``place`` is what ``running`` gave."""

    def again(self, tensor: torch.Tensor) -> None:
        """A region that is computed again saves this tensor."""

    def outputs(self, result: Any) -> Any:
        """Return what has to be known, when a region is computed again, of what its forward gave."""

    def outputs_again(self, result: Any, outputs: Any) -> None:
        """A region gives this anew; ``outputs`` is what was to be known of its forward's."""

    def recompute_begins(self) -> None:
        """A region is about to be computed again, in backward."""

    def recompute_ends(self) -> None:
        """It was."""

    def hooks_begin(self) -> None:
        """Hooks of the script are about to pack or unpack a tensor."""

    def hooks_end(self) -> None:
        """They have."""

    def leave_out(self, tensors: Iterable[torch.Tensor]) -> None:
        """Do not count these: they are kept by somebody else."""

    def backward_begins(self) -> None:
        """The script's backward is about to begin."""

    def backward_done(self) -> None:
        """It has ended."""


class SavingHooks:
    """Patches what ``torch.utils.checkpoint`` and ``saved_tensors_hooks`` are made of, and tells a watch.

    Only the innermost hooks of a thread are called, so those of the script are wrapped as they are entered, and what
    none of them sees goes to hooks of ours below them, once ``begin`` was called. Results stay what they are.

    Non-reentrant checkpoints save by hooks: what these are offered in forward is what the region frees. A reentrant one
    saves nothing in forward, and shows what it frees as it is computed again. The ``watch`` may be another between two
    steps.
    """

    def __init__(self, watch: SavingWatch) -> None:
        self.watch = watch
        self._regions: dict[tuple[str, RegionKind], Region] = {}
        self._local = threading.local()

    def install(self) -> None:
        """Put the patches in place; called once per process."""
        self._patch_contexts()
        self._patch_non_reentrant()
        self._patch_reentrant()
        self._patch_selective()

    def begin(self) -> None:
        """See what no hooks of the script see, in this thread and from now on; they cannot be taken away again."""
        # Where hooks of the script are open across steps nothing passes them by.
        if not self._depth and not getattr(self._local, "is_based", False):
            self._local.is_based = True
            torch._C._autograd._push_saved_tensors_default_hooks(self._pack, unpack)

    @property
    def _depth(self) -> int:
        """Return how many hooks of the script are open in this thread."""
        return getattr(self._local, "depth", 0)

    def _pack(self, tensor: torch.Tensor) -> Packed:
        self.watch.saved(tensor)
        return Packed(tensor)

    def _region(self, name: str, kind: RegionKind) -> Region:
        return self._regions.setdefault((name, kind), Region(name, kind))

    # -- hooks on saved tensors

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
        """Return what to call in the place of two hooks that are about to be in force."""
        own_pack, own_unpack = own.pack_hook, own.unpack_hook
        if isinstance(own, checkpoint._recomputation_hook):
            self.watch.recompute_begins()

            def saved_again(tensor: torch.Tensor) -> Any:
                self.watch.again(tensor)
                return own_pack(tensor)

            return saved_again, own_unpack
        if isinstance(own, checkpoint._checkpoint_hook):
            region = getattr(self._local, "called", None) or self._region("", "non_reentrant")
            outer = getattr(self._local, "again", None)

            def left_out(tensor: torch.Tensor) -> Any:
                if outer is not None:
                    self.watch.offered(tensor, *outer)
                elif not in_backward():
                    self.watch.offered(tensor, region)
                return own_pack(tensor)

            return left_out, own_unpack
        region = self._region(type(own).__name__, "hooks")
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

    # -- checkpoints

    def _patch_non_reentrant(self) -> None:
        original = checkpoint._checkpoint_without_reentrant_generator

        @functools.wraps(original)
        def generator(function: Any, *arguments: Any, **keywords: Any) -> Any:
            self._local.called = self._called(function, "non_reentrant", with_gradients=torch.is_grad_enabled())
            if torch.is_grad_enabled() and not in_backward():
                self.watch.enters((arguments, keywords))
            return original(function, *arguments, **keywords)

        checkpoint._checkpoint_without_reentrant_generator = generator  # type: ignore[assignment]

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
        """A policy has results of operators cached, which is more than what autograd would save."""
        original = checkpoint._VersionWrapper.__init__

        @functools.wraps(original)
        def __init__(own: Any, value: Any) -> None:  # noqa: N807
            original(own, value)
            if isinstance(value, torch.Tensor) and not torch.compiler.is_compiling():
                self.watch.saved(value, stands_in=True)

        checkpoint._VersionWrapper.__init__ = __init__  # type: ignore[method-assign,assignment]

    def _called(self, function: Any, kind: RegionKind, *, with_gradients: bool) -> Region:
        region = self._region(_name_of(function), kind)
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
    """Hooks of ours while a reentrant checkpoint computes again, in whichever thread that is."""


def _name_of(function: Any) -> str:
    """The class of the module that a checkpoint runs, or the function's name."""
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
