"""Hooks on saved tensors, and the watch of what a root's call keeps outside of any graph, where no plan reaches."""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch._subclasses import FakeTensor
from torch.multiprocessing.reductions import StorageWeakRef

from ..call_stack import modules_under_way
from ..engines.graphs import Graph, Observer
from ..plans.layers import own_class
from .samples import tensors_of


class Packed:
    """A saved tensor as hooks hold it that only look; it is let go with the graph, or by its backward."""

    __slots__ = ("__weakref__", "tensor", "version")

    def __init__(self, tensor: torch.Tensor) -> None:
        # An output that its own function saves would keep itself alive where no backward follows. Of a leaf, which has
        # no graph, the data may be replaced before the backward: autograd holds the leaf.
        self.tensor = tensor if tensor.is_leaf else tensor.detach()
        self.version = self.tensor._version


def unpack(packed: Packed) -> torch.Tensor:
    """Return the tensor that was saved.

    Raises:
        RuntimeError: it was modified in place since; autograd leaves this check to the hooks.
    """
    if packed.tensor._version != packed.version:
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation: a tensor "
            f"of shape {list(packed.tensor.shape)} is at version {packed.tensor._version}; expected version "
            f"{packed.version} instead"
        )
    return packed.tensor


def is_of_parameter(value: Any) -> bool:
    """Return whether a value is a parameter, or a view of one."""
    return isinstance(value, nn.Parameter) or isinstance(getattr(value, "_base", None), nn.Parameter)


class Lasting:
    """The storages that do not count, as they are there in any case."""

    def __init__(self, tensors: Iterable[torch.Tensor] = ()) -> None:
        self._references: dict[int, StorageWeakRef] = {}
        self.add(tensors)

    def add(self, tensors: Iterable[torch.Tensor]) -> None:
        """Add the storages of these tensors."""
        for reference in map(storage_of, tensors):
            if reference is not None:
                self._references.setdefault(reference.cdata, reference)

    def counted(self, tensor: torch.Tensor) -> StorageWeakRef | None:
        """Return a tensor's storage; None for one that lasts, for any parameter's, and where there is none."""
        reference = None if is_of_parameter(tensor) else storage_of(tensor)
        return None if reference is None or reference.cdata in self._references else reference


def storage_of(tensor: torch.Tensor) -> StorageWeakRef | None:
    """Return the tensor's storage, whose address is not used again as long as this is held; None for one without."""
    if isinstance(tensor, FakeTensor):
        return None  # a compiler's
    try:
        return StorageWeakRef(tensor.untyped_storage())
    except (NotImplementedError, RuntimeError):
        # Sparse tensors have none of their own.
        return None


class Watch(Observer):
    """Notes what autograd saves in calls of roots, by the innermost module that runs outside of a graph.

    It is an engine's observer as well, so as to know what graphs save. ``lasting`` are parameters and buffers.
    """

    def __init__(self, lasting: Iterable[torch.Tensor]) -> None:
        # Of each class of modules, what its calls have kept and no graph made.
        self.saved_bytes: Counter[str] = Counter()
        self.calls = 0
        self._modules: dict[str, set[int]] = {}
        self._lasting = list(lasting)
        self._known = Lasting()

    @property
    def num_modules(self) -> dict[str, int]:
        """Return how many modules of each class have kept something."""
        return {name: len(modules) for name, modules in self._modules.items()}

    def around(self, root: nn.Module, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return what to run in the place of a root's call."""

        def watched(*arguments: Any, **keywords: Any) -> Any:
            self.calls += 1
            self._known = Lasting([*self._lasting, *tensors_of((arguments, keywords))])
            try:
                # Without a frame of its own, which Dynamo would trace.
                pack = functools.partial(self._pack, root)
                with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
                    return call(*arguments, **keywords)
            finally:
                self._known = Lasting()

        return watched

    def forward_ended(self, graph: Graph, results: Sequence[Any]) -> None:
        """Leave out what a graph gives: its outputs, and what it saves."""
        del graph
        self._known.add(result for result in results if isinstance(result, torch.Tensor))

    def _pack(self, root: nn.Module, tensor: torch.Tensor) -> Packed:
        reference = self._known.counted(tensor)
        if reference is not None:
            self._known.add([tensor])
            module = next((one for one, _ in modules_under_way(sys._getframe(1))), root)
            name = own_class(module).__name__
            self.saved_bytes[name] += tensor.untyped_storage().nbytes()
            self._modules.setdefault(name, set()).add(id(module))
        return Packed(tensor)
