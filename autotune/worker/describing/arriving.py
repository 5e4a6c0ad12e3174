"""Count of the data that DataLoaders bring to the roots in training, batch by batch."""

from __future__ import annotations

import math
import statistics
import weakref
from collections import Counter
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ...records.arrivals import Arrived
from ..hooks.batch_parts import MOST_VALUES, parts_of
from ..plans.layers import own_class
from .root_inputs import RootCall

_MOST_DEPTH = 5
_MOST_NAMES = 100
# A number of elements is usual where so many batches have it: an epoch's last one may be smaller.
_USUAL_SHARE = 0.75

_Form = tuple[int, tuple[int, ...]]


class ArrivingData:
    """Counts the elements of the tensors in root calls: by argument, and by what is named inside of it.

    A tensor that the script gives to every call is no data of a batch. Nor is anything where no DataLoader feeds the
    calls: a call need not be a batch then.
    """

    def __init__(self) -> None:
        self._forms: dict[str, Counter[_Form]] = {}
        self._batch: dict[str, _Form] = {}
        self._batch_number: int | None = None
        self._latest: dict[str, tuple[weakref.ref[torch.Tensor], int]] = {}
        self._fresh: set[str] = set()
        self._left_out: set[str] = set()
        self._tokens: set[str] = set()
        self._embeddings: weakref.WeakKeyDictionary[nn.Module, int] = weakref.WeakKeyDictionary()
        self._values_left = 0

    def see(self, call: RootCall) -> None:
        """Take in a call: of a new batch, or of one that the script hands on in parts."""
        if call.batch_number is None:
            return
        if call.batch_number != self._batch_number:
            self._end_batch()
            self._batch_number = call.batch_number
        name = own_class(call.root).__name__
        if call.root not in self._embeddings:
            self._embeddings[call.root] = sum(isinstance(each, nn.Embedding) for each in call.root.modules())
        for place, value in [*enumerate(call.arguments), *call.keywords.items()]:
            argument, self._values_left = f"{name} {place}", MOST_VALUES
            if argument in self._left_out:
                continue
            try:
                self._add(argument, value, 0)
                self._note_tokens(argument, value, self._embeddings[call.root])
            except Exception:
                # It holds too much, or what cannot be counted. A script's objects may raise anything when looked at.
                self._left_out.add(argument)

    def arrived(self) -> tuple[Arrived, ...]:
        """Return what the batches before the latest have brought: the latest may go on."""
        names = [name for name in self._forms if name in self._fresh and name.partition(".")[0] not in self._left_out]
        arrived = (_arrived(name, self._forms[name]) for name in names)
        return tuple(replace(one, is_tokens=one.name in self._tokens) for one in arrived)

    def _add(self, name: str, value: Any, depth: int) -> tuple[int, bool]:
        """Count the elements of a value, and tell whether one of its tensors is new."""
        self._values_left -= 1
        if self._values_left < 0:
            raise ValueError("it holds too much")
        shape: tuple[int, ...] = ()
        if isinstance(value, torch.Tensor):
            # The sizes of nested tensors are no numbers.
            elements, shape = int(value.numel()), () if value.is_nested else tuple(value.shape)
            is_new = self._is_new(name, value)
        elif depth < _MOST_DEPTH:
            found = [self._add(f"{name}.{part}", each, depth + 1) for part, each in parts_of(value)]
            elements, is_new = sum(count for count, _ in found), any(new for _, new in found)
        else:
            return 0, False
        if elements and not name.endswith(".") and (name in self._batch or len(self._batch) < _MOST_NAMES):
            known = self._batch.get(name)
            self._batch[name] = (elements, shape) if known is None else (known[0] + elements, ())
            if is_new:
                self._fresh.add(name)
        return elements, is_new

    def _note_tokens(self, name: str, value: Any, embeddings: int) -> None:
        is_whole = isinstance(value, torch.Tensor) and value.dtype in (torch.int32, torch.int64) and value.dim() == 2
        # Columns of a table have an embedding each.
        if is_whole and 0 < embeddings < value.shape[1]:
            self._tokens.add(name)

    def _is_new(self, name: str, tensor: torch.Tensor) -> bool:
        before = self._latest.get(name)
        self._latest[name] = (weakref.ref(tensor), tensor._version)
        return before is not None and (before[0]() is not tensor or before[1] != tensor._version)

    def _end_batch(self) -> None:
        for name, form in self._batch.items():
            if name in self._forms or len(self._forms) < _MOST_NAMES:
                self._forms.setdefault(name, Counter())[form] += 1
        self._batch.clear()


def _arrived(name: str, forms: Counter[_Form]) -> Arrived:
    numbers: Counter[int] = Counter()
    for (elements, _), count in forms.items():
        numbers[elements] += count
    found = [*numbers.elements()]
    (usual, times), ((_, shape), shape_times) = numbers.most_common(1)[0], forms.most_common(1)[0]
    least, mean = _USUAL_SHARE * len(found), statistics.fmean(found)
    error = statistics.stdev(found) / math.sqrt(len(found)) / mean if len(found) > 1 else 0.0
    return Arrived(name, mean, error, usual if times >= least else None, shape if shape_times >= least else ())
