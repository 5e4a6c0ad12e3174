"""Split of the memory that is held between two steps: parameters, gradients, the optimizers' state, buffers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ...records.measurement import MemorySplit


def memory_split(modules: Iterable[nn.Module], optimizers: Iterable[torch.optim.Optimizer]) -> MemorySplit:
    """Measure the memory held between optimizer step and ``zero_grad``, in bytes.

    Each storage is counted once. Activations are left out.
    """
    modules, optimizers = list(modules), list(optimizers)
    parameters: list[torch.Tensor] = [parameter for module in modules for parameter in module.parameters()]
    for optimizer in optimizers:
        parameters += [parameter for group in optimizer.param_groups for parameter in group["params"]]
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    state = [value for optimizer in optimizers for entry in optimizer.state.values() for value in _tensors(entry)]
    buffers = [buffer for module in modules for buffer in module.buffers()]
    return MemorySplit(
        parameters=storage_bytes(parameters),
        gradients=storage_bytes(gradients),
        optimizer_state=storage_bytes(state),
        buffers=storage_bytes(buffers),
    )


def _tensors(entry: Any) -> Iterable[torch.Tensor]:
    values = entry.values() if isinstance(entry, dict) else ()
    return (value for value in values if isinstance(value, torch.Tensor))


def storage_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Return the bytes of the storages behind tensors in this process, each counted once."""
    sizes: dict[int, int] = {}
    for part in (part for tensor in tensors for part in parts_of(tensor)):
        try:
            storage = part.untyped_storage()
        except (NotImplementedError, RuntimeError):
            # Other layouts (compressed rows, oneDNN) have no storage to look at: about as much as their elements.
            sizes[id(part)] = part.numel() * part.element_size()
        else:
            sizes[storage._cdata] = storage.nbytes()
    return sum(sizes.values())


def parts_of(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the tensors that have the memory of another: a DTensor's local one, indices and values of a sparse one."""
    if is_traceable_wrapper_subclass(tensor):
        names, _ = tensor.__tensor_flatten__()
        # Beside tensors there may be what they lie on, such as a mesh of devices.
        for inner in (getattr(tensor, name) for name in names):
            if isinstance(inner, torch.Tensor):
                yield from parts_of(inner)
    elif tensor.layout is torch.sparse_coo:
        yield from (tensor._indices(), tensor._values())
    else:
        yield tensor
