"""Common parts of all our hooks on autograd's saved tensors."""

from __future__ import annotations

import torch
from torch import nn
from torch._subclasses import FakeTensor
from torch.multiprocessing.reductions import StorageWeakRef


class Packed:
    """A saved tensor as hooks hold it that only look; it is let go with the graph, or by its backward."""

    __slots__ = ("__weakref__", "tensor", "version")

    def __init__(self, tensor: torch.Tensor) -> None:
        # Not itself: an output that its own function saves would keep itself alive where no backward follows. A leaf
        # has no graph, and its data may be replaced before the backward: autograd holds the leaf.
        self.tensor = tensor if tensor.is_leaf else tensor.detach()
        self.version = self.tensor._version


def unpack(packed: Packed) -> torch.Tensor:
    """The tensor that was saved.

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


def in_backward() -> bool:
    """Return whether this thread runs a backward, where a checkpoint calls modules again."""
    return bool(torch._C._current_graph_task_id() != -1)


def is_of_parameter(tensor: torch.Tensor) -> bool:
    """Return whether it is a parameter of any model, or a view of one: it is there in any case."""
    return isinstance(tensor, nn.Parameter) or isinstance(tensor._base, nn.Parameter)


def storage_of(tensor: torch.Tensor) -> StorageWeakRef | None:
    """The tensor's storage, whose address is not used again as long as this is held; None for one without."""
    if isinstance(tensor, FakeTensor):
        return None  # a compiler's
    try:
        return StorageWeakRef(tensor.untyped_storage())
    except (NotImplementedError, RuntimeError):
        # Sparse tensors have none of their own.
        return None
