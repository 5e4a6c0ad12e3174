"""Count of the data that reach the roots in training, batch by batch."""

from __future__ import annotations

import contextlib
import math
import statistics
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ...records.arrivals import Arrived
from .root_inputs import RootCall

_MOST_DEPTH = 5
# Of longer sequences, such as a list of images, only all elements together have a name.
_MOST_NAMED = 8
# A number of elements is usual where so many batches have it: an epoch's last one may be smaller.
_USUAL_SHARE = 0.75

_Form = tuple[int, tuple[int, ...]]


class ArrivingData:
    """Counts the elements of the tensors in root calls: by argument, and by what is named inside of it."""

    def __init__(self) -> None:
        self._forms: dict[str, Counter[_Form]] = {}
        self._batch: dict[str, _Form] = {}

    def see(self, call: RootCall) -> None:
        """Take in a call: of a new batch, or of one that the script hands on in parts."""
        if call.begins_batch:
            self._end_batch()
        name = type(call.root).__name__
        for place, value in [*enumerate(call.arguments), *call.keywords.items()]:
            # What cannot be counted, as a nested tensor of some layouts, is left out.
            with contextlib.suppress(Exception):
                self._add(f"{name} {place}", value, 0)

    def arrived(self) -> tuple[Arrived, ...]:
        """Return what the batches so far have brought."""
        self._end_batch()
        return tuple(_arrived(name, forms) for name, forms in self._forms.items())

    def _add(self, name: str, value: Any, depth: int) -> int:
        if isinstance(value, torch.Tensor):
            # The sizes of nested tensors are no numbers.
            elements, shape = int(value.numel()), () if value.is_nested else tuple(value.shape)
        elif depth < _MOST_DEPTH:
            elements = sum(self._add(f"{name}.{part}", each, depth + 1) for part, each in _parts(value))
            shape = ()
        else:
            return 0
        if elements and not name.endswith("."):
            known = self._batch.get(name)
            self._batch[name] = (elements, shape) if known is None else (known[0] + elements, ())
        return elements

    def _end_batch(self) -> None:
        for name, form in self._batch.items():
            self._forms.setdefault(name, Counter())[form] += 1
        self._batch.clear()


def _parts(value: Any) -> list[tuple[Any, Any]]:
    """List what an argument holds, by name; parts of a long sequence have no names of their own."""
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, (list, tuple)):
        return list(enumerate(value)) if len(value) <= _MOST_NAMED else [("", each) for each in value]
    is_plain = isinstance(value, (nn.Module, type)) or callable(value)
    return [] if is_plain else list(getattr(value, "__dict__", {}).items())


def _arrived(name: str, forms: Counter[_Form]) -> Arrived:
    numbers: Counter[int] = Counter()
    for (elements, _), count in forms.items():
        numbers[elements] += count
    total = numbers.total()
    (usual, times), ((_, shape), shape_times) = numbers.most_common(1)[0], forms.most_common(1)[0]
    if times < _USUAL_SHARE * total:
        found = [*numbers.elements()]
        mean = statistics.fmean(found)
        return Arrived(name, mean, error=statistics.stdev(found) / math.sqrt(total) / mean)
    return Arrived(name, usual, shape if shape_times >= _USUAL_SHARE * total else ())
