"""Measurement of what a root's call keeps for the backward outside of any graph, by the modules that keep it.

No plan reaches what is kept there.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn

from ..engines.graphs import Graph, Observer
from .autograd import Lasting, Packed, modules_under_way, unpack
from .samples import tensors_of


class Watch(Observer):
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
        # What is known in the call under way.
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
                with torch.autograd.graph.saved_tensors_hooks(lambda tensor: self._pack(root, tensor), unpack):
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
            name = type(module).__name__
            self.saved_bytes[name] += tensor.untyped_storage().nbytes()
            self._modules.setdefault(name, set()).add(id(module))
        return Packed(tensor)
