"""Values of tensors on a GPU that is not there, where they follow from the script's data alone.

Labels, masks, lengths and buffers come from the CPU, with values. What operators make of them has values too. So sizes
and branches that depend on them are those that a GPU would have. Nothing has values that comes of a parameter, or of a
random number that the device draws.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves, tree_map_only

# Elements of the largest tensors whose values are kept: of whole numbers, which sizes depend on, and of others. Images
# and activations have more.
_MOST_INTEGERS, _MOST_OTHERS = 1 << 23, 1 << 20
_VALUE, _LOST = "_autotune_value", "_autotune_lost"
_UNSET = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})
# Tests for infinite values write here, and find none.
_FOUND_INFINITE = "found_inf"


@dataclass(frozen=True)
class _Value:
    """The values of a fake tensor: a tensor on the CPU, which is a view where the fake one is."""

    tensor: torch.Tensor

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        del memo
        copied = self.tensor.clone()
        if _is_lost(self.tensor):
            _lose(copied)
        return type(self)(copied)


class KnownValues:
    """Keeps, beside a fake tensor, a real one on the CPU that has its values."""

    def of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return a tensor's values; None if they are not known."""
        if not isinstance(tensor, FakeTensor):
            return None if _is_lost(tensor) else tensor
        value = getattr(tensor, _VALUE, None)
        return None if value is None or _is_lost(value.tensor) else value.tensor

    def keep(self, tensor: torch.Tensor, value: torch.Tensor) -> None:
        """Keep a tensor's values."""
        setattr(tensor, _VALUE, _Value(value))

    def forget(self, tensor: torch.Tensor) -> None:
        """Know a tensor's values no longer, nor those of its views."""
        value = self.of(tensor)
        if isinstance(tensor, FakeTensor) and value is not None:
            _lose(value)

    def take_over(self, tensor: torch.Tensor, data: torch.Tensor) -> None:
        """Give a tensor the values of another, whose storage it now has."""
        value = self.of(data)
        if value is not None:
            self.keep(tensor, value)
        elif hasattr(tensor, _VALUE):
            delattr(tensor, _VALUE)

    def compute(self, operator: Any, args: Any, keywords: Any) -> tuple[bool, Any]:
        """Run an operator on the values of the tensors that it is given.

        What it writes to is not known from here on if it cannot be run.

        Returns:
            Whether the values are known, and then the results.
        """
        given = (leaf for leaf in tree_leaves((args, keywords)) if isinstance(leaf, torch.Tensor))
        if all(self._has_small(one) for one in given) and torch.Tag.nondeterministic_seeded not in operator.tags:
            args_known, keywords_known = tree_map_only(torch.Tensor, self.of, (args, keywords))
            if keywords.get("device") is not None:
                keywords_known["device"] = torch.device("cpu")
            try:
                results = operator(*args_known, **keywords_known)
            except (RuntimeError, TypeError, IndexError, ValueError):
                pass  # a GPU may do it, as with some types
            else:
                if operator.overloadpacket.__name__ in _UNSET:
                    results.zero_()  # every run has the same
                return True, results
        for one in _written(operator, args, keywords):
            value = self.of(one)
            if value is not None:
                _lose(value)
        return False, None

    def keep_all(self, results: Any, values: Any) -> None:
        """Keep the values of all tensors that an operator returned."""
        for result, value in zip(tree_leaves(results), tree_leaves(values), strict=True):
            if isinstance(result, FakeTensor) and isinstance(value, torch.Tensor) and result.shape == value.shape:
                self.keep(result, value)

    def _has_small(self, tensor: torch.Tensor) -> bool:
        value = self.of(tensor)
        return value is not None and _is_small(value)


def are_small(results: Any) -> bool:
    """Return whether values of such results would be kept."""
    return all(_is_small(one) for one in tree_leaves(results) if isinstance(one, torch.Tensor))


def _is_small(tensor: torch.Tensor) -> bool:
    is_whole = not (tensor.is_floating_point() or tensor.is_complex())
    return tensor.numel() <= (_MOST_INTEGERS if is_whole else _MOST_OTHERS)


def _is_lost(value: torch.Tensor) -> bool:
    return hasattr(value.untyped_storage(), _LOST)


def _lose(value: torch.Tensor) -> None:
    # The Python object of a storage lives as long as the storage, and views share it.
    setattr(value.untyped_storage(), _LOST, True)


def _written(operator: Any, args: Any, keywords: Any) -> Iterator[torch.Tensor]:
    if not operator._schema.is_mutable:
        return
    for place, argument in enumerate(operator._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write and argument.name != _FOUND_INFINITE:
            written = args[place] if place < len(args) else keywords.get(argument.name)
            yield from (one for one in tree_leaves(written) if isinstance(one, torch.Tensor))
