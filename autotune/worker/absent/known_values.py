"""Values of tensors on a GPU that is not there, where they follow from the script's data alone.

Labels, masks, lengths and buffers come from the CPU, with values. What operators make of them has values too, so sizes
and branches that depend on them are those that a GPU would have. Nothing has any that comes of a parameter or of a
random number.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves, tree_map_only

# Elements of the largest tensors whose values are kept; images and activations have more.
_MOST_ELEMENTS = 1 << 20
_VALUE = "_autotune_value"
_UNSET = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})


class KnownValues:
    """Keeps, beside a fake tensor, a real one on the CPU that has its values."""

    def __init__(self) -> None:
        # Storages, by their addresses, that were written to with what is not known.
        self._lost: dict[int, Any] = {}

    def of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return a tensor's values; None if they are not known."""
        value = getattr(tensor, _VALUE, None) if isinstance(tensor, FakeTensor) else tensor
        return None if value is None or value.untyped_storage()._cdata in self._lost else value

    def keep(self, tensor: torch.Tensor, value: torch.Tensor) -> None:
        """Keep a tensor's values."""
        setattr(tensor, _VALUE, value)

    def forget(self, tensor: torch.Tensor) -> None:
        """Know a tensor's values no longer, nor those of its views."""
        value = self.of(tensor)
        if isinstance(tensor, FakeTensor) and value is not None:
            self._lose(value)

    def compute(self, operator: Any, args: Any, keywords: Any, given: Sequence[torch.Tensor]) -> Any:
        """Run an operator on the values of the tensors that it is given; return None if they are not known.

        What it writes to is not known from here on if it cannot be run.
        """
        values = [self.of(one) for one in given]
        is_random = torch.Tag.nondeterministic_seeded in operator.tags
        found = None
        if not is_random and all(one is not None and one.numel() <= _MOST_ELEMENTS for one in values):
            found = self._run(operator, args, keywords)
        if found is None and operator._schema.is_mutable:
            for one in values:
                if one is not None:
                    self._lose(one)
        return found

    def keep_all(self, results: Any, values: Any) -> None:
        """Keep the values of all tensors that an operator returned."""
        for result, value in zip(tree_leaves(results), tree_leaves(values), strict=True):
            if isinstance(result, FakeTensor) and result is not value:
                self.keep(result, value)

    def _lose(self, value: torch.Tensor) -> None:
        storage = value.untyped_storage()
        key = storage._cdata
        if key not in self._lost:
            # A later storage may get the address.
            self._lost[key] = weakref.ref(storage, lambda _: self._lost.pop(key, None))

    def _run(self, operator: Any, args: Any, keywords: Any) -> Any:
        args, keywords = tree_map_only(torch.Tensor, self.of, (args, keywords))
        if keywords.get("device") is not None:
            keywords["device"] = torch.device("cpu")
        try:
            results = operator(*args, **keywords)
        except (RuntimeError, NotImplementedError, TypeError, IndexError, ValueError):
            return None  # a GPU may do it, as with some types
        if operator.overloadpacket.__name__ in _UNSET:
            results.zero_()  # every run has the same
        return results


def are_small(results: Any) -> bool:
    """Return whether values of such results would be kept."""
    return all(one.numel() <= _MOST_ELEMENTS for one in tree_leaves(results) if isinstance(one, torch.Tensor))
