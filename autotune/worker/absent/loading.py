"""Reading of files with tensors onto a GPU that is not there: they are read on the CPU, and moved from there."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn


def load_by_the_cpu() -> None:
    """Have ``torch.load`` read tensors on the CPU, and move those that are meant for the device."""
    package: Any = torch
    read = package.load

    @functools.wraps(read)
    def load(f: Any, map_location: Any = None, *arguments: Any, **keywords: Any) -> Any:
        moved = _Moved(map_location)
        is_elsewhere = isinstance(map_location, (str, torch.device)) and torch.device(map_location).type != "cuda"
        return moved.move(read(f, map_location if is_elsewhere else moved.place, *arguments, **keywords))

    package.load = load


class _Moved:
    """Notes which storages of a file are meant for the device, and moves the tensors that have them."""

    def __init__(self, map_location: Any) -> None:
        self._map_location = map_location
        # Storages are kept, so that none gets the address of another.
        self._storages: dict[int, Any] = {}
        self._tensors: dict[tuple[Any, ...], torch.Tensor] = {}

    def place(self, storage: Any, location: str) -> Any:
        """Leave a storage on the CPU, as ``map_location`` is asked to place it."""
        if self._is_for_device(storage, location):
            self._storages[storage._cdata] = storage
        return storage

    def _is_for_device(self, storage: Any, location: str) -> bool:
        wanted: Any = self._map_location
        if isinstance(wanted, dict):
            return str(wanted.get(location, location)).startswith("cuda")
        if not callable(wanted):
            return str(wanted or location).startswith("cuda")
        try:
            wanted(storage, location)
        except RuntimeError:
            return True  # it has the storage move to the device
        return False

    def move(self, loaded: Any) -> Any:
        """Move what a file held, containers in place."""
        if not self._storages:
            return loaded
        if isinstance(loaded, torch.Tensor):
            return self._move_tensor(loaded)
        if isinstance(loaded, nn.Module):
            return loaded.to("cuda")
        if isinstance(loaded, dict):
            for key, value in loaded.items():
                loaded[key] = self.move(value)
        elif isinstance(loaded, list):
            loaded[:] = map(self.move, loaded)
        elif type(loaded) is tuple:
            return tuple(map(self.move, loaded))
        return loaded

    def _move_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        key = tensor.untyped_storage()._cdata
        if key not in self._storages:
            return tensor
        form = key, tensor.storage_offset(), tensor.shape, tensor.stride()
        if form not in self._tensors:
            moved = tensor.detach().to("cuda")
            is_parameter = isinstance(tensor, nn.Parameter)
            self._tensors[form] = nn.Parameter(moved, tensor.requires_grad) if is_parameter else moved
        return self._tensors[form]
