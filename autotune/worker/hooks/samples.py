"""Count of the samples that an optimizer step took."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from ...metering.trial_meter import Window
from .loaders import LoaderHooks


class SampleCounter:
    """Counts samples at training calls; a backward moves them into the step they belong to.

    From the DataLoaders where they feed the call; otherwise from the inputs: the dimension that equals a batch size
    known from the run or from the script's own variables, else dimension 0, marked as a guess. The same inputs twice
    in a step (LBFGS closures, checkpointing) count once; they are recognised by weak reference and version, because
    addresses are reused and a strong reference would change the peak.

    Attributes:
        call_samples: How many samples the latest training call has.
    """

    def __init__(self, loaders: LoaderHooks, known_batch_size: int | None) -> None:
        self._loaders = loaders
        self._known = known_batch_size
        self.call_samples = 0
        self._seen: list[list[tuple[weakref.ref[torch.Tensor], int]]] = []
        self._before_backward = Window()
        self._window = Window()
        self._own_names: dict[str, int] | None = None
        self._loaders_feed = False

    def training_call(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> int | None:
        """Count a root's training call; gives the index of the batch dimension of its inputs, None if unknown."""
        drawn = self._loaders.training_call()
        tensors = [tensor for tensor in tensors_of((arguments, keywords)) if tensor.dim()]
        size, dimension, guessed = self._batch_of(tensors, drawn)
        window = self._before_backward
        window.calls += 1
        self.call_samples = drawn or size
        if drawn:
            self._loaders_feed = True
            window.samples += drawn
            window.batch_size = drawn
        elif not self._loaders_feed and tensors and not self._repeated(tensors):
            window.samples += size
            window.batch_size = size
            window.guessed |= guessed
        return dimension

    def backward_done(self) -> None:
        """Count what was called before this backward in the step under way."""
        self._take_called()
        self._window.backwards += 1

    def _take_called(self) -> None:
        self._window.add(self._before_backward)
        self._before_backward = Window()

    def close(self) -> Window:
        """End the step: its counts, and start anew."""
        if not self._window.calls:
            # No backward came that the hooks see: the script asks for its gradients by torch.autograd.grad.
            self._take_called()
        window, self._window = self._window, Window()
        self._seen.clear()
        if not window.calls:
            window.samples = self._loaders.take_drawn()
            window.batch_size = window.samples or None
        return window

    def _batch_of(self, tensors: list[torch.Tensor], drawn: int) -> tuple[int, int | None, bool]:
        """Batch size, its dimension, and whether that is a guess."""
        if not tensors:
            return 0, None, True
        shared = set.intersection(*(set(tensor.shape[:2]) for tensor in tensors))
        for size in (drawn, self._known, *self._script_sizes().values()):
            if size and size in shared:
                return size, list(tensors[0].shape[:2]).index(size), False
        return tensors[0].shape[0], 0, True

    def _script_sizes(self) -> dict[str, int]:
        """Variables of the script that are named like a batch size, in its module and in its parsed arguments."""
        if self._own_names is None:
            names = vars(sys.modules["__main__"]) if "__main__" in sys.modules else {}
            scopes = [names, *_parsed(names)]
            self._own_names = {name: size for scope in scopes for name, size in _batch_sizes(scope)}
        return self._own_names

    def _repeated(self, tensors: list[torch.Tensor]) -> bool:
        head = tensors[:4]
        for known in self._seen:
            if len(known) == len(head) and all(
                reference() is tensor and version == tensor._version
                for (reference, version), tensor in zip(known, head, strict=True)
            ):
                return True
        self._seen.append([(weakref.ref(tensor), tensor._version) for tensor in head])
        return False


def _parsed(names: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The settings that a script keeps in a dictionary, or in what a parser gave it."""
    for value in list(names.values()):
        if type(value).__name__ in ("Namespace", "dict", "DictConfig"):
            yield value if isinstance(value, dict) else vars(value)


def _batch_sizes(names: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """The whole numbers above 1 whose names say that they are a batch's size."""
    for name, value in list(names.items()):
        is_number = isinstance(value, int) and not isinstance(value, bool) and value > 1
        if is_number and ("batch" in str(name).lower() or str(name).lower() in ("bs", "bsz")):
            yield str(name), value


def tensors_of(value: Any, depth: int = 0) -> list[torch.Tensor]:
    """The tensors in nested tuples, lists and dicts, a few levels deep, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if depth > 3:
        return []
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [tensor for item in items for tensor in tensors_of(item, depth + 1)]
