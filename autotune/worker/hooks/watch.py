"""Measurement of what a root's call keeps for the backward outside of any graph, by the modules that keep it.

No plan reaches what is kept there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from ..engines.graphs import Graph
from .autograd import Packed, storage_of, unpack
from .samples import tensors_of


class Watch:
    """Takes note of what autograd saves in calls of roots, by the innermost module that runs outside of a graph.

    It is an engine's observer as well, so as to know what graphs save.

    Args:
        lasting: tensors that are there in any case: parameters and buffers.

    Attributes:
        saved_bytes: Of each class of modules, what its calls have kept that no graph made.
        calls: How many calls of roots were watched.
    """

    def __init__(self, lasting: Iterable[torch.Tensor]) -> None:
        self.saved_bytes: Counter[str] = Counter()
        self.calls = 0
        self._modules: dict[str, set[int]] = {}
        self._lasting = list(lasting)
        self._running: list[nn.Module] = []
        # Weak, and held until the call is over: no other storage comes to lie where one of them was.
        self._known: dict[int, StorageWeakRef] = {}

    @property
    def num_modules(self) -> dict[str, int]:
        """Return how many modules of each class have kept something."""
        return {name: len(modules) for name, modules in self._modules.items()}

    def around(self, root: nn.Module, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return what to run in the place of a root's call."""

        def watched(*arguments: Any, **keywords: Any) -> Any:
            self.calls += 1
            self._know([*self._lasting, *tensors_of((arguments, keywords))])
            self.enter(root)
            try:
                with torch.autograd.graph.saved_tensors_hooks(self._pack, unpack):
                    return call(*arguments, **keywords)
            finally:
                self.leave()
                self._known.clear()

        return watched

    def enter(self, module: nn.Module) -> None:
        """A module is called outside of any graph."""
        self._running.append(module)

    def leave(self) -> None:
        """The module called last has returned."""
        self._running.pop()

    def forward_begins(self, graph: Graph, arguments: Sequence[Any]) -> None:
        """A graph's inputs are kept by whoever made them."""

    def forward_ended(self, graph: Graph, results: Sequence[Any]) -> None:
        """Leave out what a graph gives: its outputs, and what it saves."""
        del graph
        self._know(result for result in results if isinstance(result, torch.Tensor))

    def backward_begins(self, graph: Graph, arguments: Sequence[Any]) -> None:
        """Nothing is saved in a backward."""

    def backward_ended(self) -> None:
        """Nothing is saved in a backward."""

    def _know(self, tensors: Iterable[torch.Tensor]) -> None:
        for tensor in tensors:
            reference = storage_of(tensor)
            if reference is not None:
                self._known.setdefault(reference.cdata, reference)

    def _pack(self, tensor: torch.Tensor) -> Packed:
        reference = storage_of(tensor)
        if reference is not None and reference.cdata not in self._known:
            self._known[reference.cdata] = reference
            module = self._running[-1]
            name = type(module).__name__
            self.saved_bytes[name] += tensor.untyped_storage().nbytes()
            self._modules.setdefault(name, set()).add(id(module))
        return Packed(tensor)
