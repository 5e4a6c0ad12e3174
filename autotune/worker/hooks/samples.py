"""Count of the samples that an optimizer step took."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from ...metering.trial_meter import Window
from ...records.configuration import Shapes
from .arguments import seen as option_values
from .loaders import LoaderHooks


class SampleCounter:
    """Counts samples at training calls; a backward moves them into the step they belong to.

    DataLoaders tell the number where they feed the call, unless the inputs have a dimension of the size that the user
    named, and none of the loader's: a data set may make whole batches. Otherwise the inputs tell the number, by the
    dimension of a known batch size or by dimension 0 as a guess; the same inputs twice in a step (LBFGS closures,
    checkpointing) count once. NumPy's arrays among the arguments tell it too. A list of other objects, such as graphs,
    has one sample each if it has as many as the user or an option of the script says. Inputs that all come out of other
    calls (the steps of a solver, a head behind its model) are no samples of their own.

    Attributes:
        call_samples: of the latest call.
        batch_number: of the batches that DataLoaders have handed out to calls; None while none has fed one.
    """

    def __init__(self, loaders: LoaderHooks, known_batch_size: int | None) -> None:
        self._loaders = loaders
        self._known = known_batch_size
        self.call_samples = 0
        self.batch_number: int | None = None
        # By weak reference and version: addresses are reused, and a strong reference would change the peak.
        self._seen: list[list[tuple[weakref.ref[torch.Tensor], int]]] = []
        self._before_backward = Window()
        self._window = Window()
        self._loaders_feed = False

    def training_call(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> int | None:
        """Count a root's training call; gives the index of the batch dimension of its inputs, None if unknown."""
        drawn = self._loaders.training_call()
        tensors = [tensor for tensor in tensors_of((arguments, keywords)) if tensor.dim()]
        if tensors:
            size, dimension, guessed = self._batch_of(tensors, drawn)
        else:
            size, guessed = self._number_without_tensors((*arguments, *keywords.values()))
            dimension = None
        window = self._before_backward
        window.calls += 1
        drawn = self._samples_drawn(drawn, size, tensors)
        self.call_samples = drawn or size
        if drawn:
            self.batch_number = (self.batch_number or 0) + 1
            self._loaders_feed = True
            window.samples += drawn
            window.batch_size = drawn
        elif not self._loaders_feed and size and not self._derived(tensors) and not self._repeated(tensors):
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
        """End the step and return its counts."""
        if not self._window.calls:
            # The script asks for its gradients by torch.autograd.grad, which no hook sees.
            self._take_called()
        window, self._window = self._window, Window()
        self._seen.clear()
        if not window.calls:
            window.samples = self._loaders.take_drawn()
            window.batch_size = window.samples or None
        return window

    def _samples_drawn(self, drawn: int, size: int, tensors: list[torch.Tensor]) -> int:
        """Return the samples of what a loader has drawn: its items may be batches of the size that the user named."""
        known = self._known
        if not known or not drawn or size == drawn or known % drawn or self._loaders.are_resized:
            return drawn
        # In any tensor: the indices of a sparse feature have another number of rows.
        has_rows = size == known or any(_outer_sizes(tensor)[0] == known for tensor in tensors)
        return known if has_rows else drawn

    def _batch_of(self, tensors: list[torch.Tensor], drawn: int) -> tuple[int, int | None, bool]:
        """Return the batch size, its dimension, and whether that is a guess."""
        outer = [_outer_sizes(tensor) for tensor in tensors]
        shared = set.intersection(*map(set, outer))
        for size in (drawn, self._known, *self._script_sizes.values()):
            if size and size in shared:
                return size, outer[0].index(size), False
        return outer[0][0], 0, True

    def _number_without_tensors(self, values: tuple[Any, ...]) -> tuple[int, bool]:
        """Return the samples of a batch of objects or of NumPy's arrays, and whether that is a guess."""
        sizes = {self._known, *self._script_sizes.values(), *(size for _, size in _batch_sizes(option_values))}
        arrays = [shape[0] for one in values if isinstance(shape := getattr(one, "shape", None), tuple) and shape]
        lists = [len(one) for one in values if isinstance(one, (list, tuple))]
        named = [number for number in (*arrays, *lists) if number in sizes]
        return (named[0], False) if named else (arrays[0] if arrays else 0, True)

    @functools.cached_property
    def _script_sizes(self) -> dict[str, int]:
        names = vars(sys.modules["__main__"]) if "__main__" in sys.modules else {}
        parsed = [each for each in list(names.values()) if type(each).__name__ in ("Namespace", "dict", "DictConfig")]
        scopes = [names, *(each if isinstance(each, dict) else vars(each) for each in parsed)]
        return {name: size for scope in scopes for name, size in _batch_sizes(scope)}

    def _derived(self, tensors: list[torch.Tensor]) -> bool:
        has_samples = bool(self._window.samples or self._before_backward.samples)
        return has_samples and bool(tensors) and all(tensor.grad_fn is not None for tensor in tensors)

    def _repeated(self, tensors: list[torch.Tensor]) -> bool:
        head = tensors[:4]
        if not head:
            return False
        for known in self._seen:
            if len(known) == len(head) and all(
                reference() is tensor and version == tensor._version
                for (reference, version), tensor in zip(known, head, strict=True)
            ):
                return True
        self._seen.append([(weakref.ref(tensor), tensor._version) for tensor in head])
        return False


def _outer_sizes(tensor: torch.Tensor) -> tuple[int, ...]:
    # The other sizes of a nested tensor are no numbers.
    return (tensor.size(0),) if tensor.is_nested else tuple(tensor.shape[:2])


def _batch_sizes(names: dict[str, Any]) -> Iterator[tuple[str, int]]:
    for name, value in list(names.items()):
        is_number = isinstance(value, int) and not isinstance(value, bool) and value > 1
        if is_number and ("batch" in str(name).lower() or str(name).lower() in ("bs", "bsz")):
            yield str(name), value


def shapes_of(inputs: Any) -> Shapes:
    """Return the shapes of all tensors in the inputs of a call."""
    return tuple(tuple(tensor.shape) for tensor in tensors_of(inputs))


def tensors_of(value: Any, depth: int = 0) -> list[torch.Tensor]:
    """The tensors in nested tuples, lists and dicts, a few levels deep, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if depth > 3:
        return []
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [tensor for item in items for tensor in tensors_of(item, depth + 1)]
