"""The modules and lines that the operators of a followed script run for."""

from __future__ import annotations

import linecache
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_module_registration_hook,
)
from torch.utils.weak import WeakIdKeyDictionary

from ...records.allocations import Place, TensorRole
from .frames import Line, lines_here, told

# What wrappers of a module call it.
_WRAPPED = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})


@dataclass(eq=False)
class _Name:
    """The path of a module in the largest model that it was called in, which has so many modules."""

    model: str
    num_modules: int
    path: str


_Key = tuple[_Name | None, Line | None, Line | None, str, bool]


class Places:
    """Knows for each operator which module and which line it runs for.

    In a backward these are what the forward was at: autograd numbers its nodes as the forward makes them.
    """

    def __init__(self) -> None:
        self._running: list[nn.Module] = []
        # Modules may define what is equal to them.
        self._parents: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._models: list[weakref.ref[nn.Module]] = []
        self._names: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._numbers: dict[_Key, int] = {}
        self._keys: list[_Key] = []
        self._of_nodes: dict[int, _Key] = {}

    def install(self) -> None:
        """Follow which modules are made and run, from here on."""
        register_module_module_registration_hook(self._register)
        register_module_forward_pre_hook(self._begin)
        register_module_forward_hook(self._end, always_call=True)

    def here(self, operator: str) -> int:
        """Return the number of the place where an operator runs."""
        native: Any = torch._C
        node = native._current_autograd_node()
        if node is None or (torch.is_grad_enabled() and self._running):
            module = self._names.get(self._running[-1]) if self._running else None
            key = (module, *lines_here(), operator, False)
            # Autograd numbers a node before its operator runs. What runs without a node comes after one that has.
            self._of_nodes.setdefault(native._autograd._get_sequence_nr(), key)
        else:
            forward = self._of_nodes.get(node._sequence_nr() + 1, self._keys[-1] if self._keys else None)
            key = (*(forward or (None, *lines_here()))[:3], operator, True)
        number = self._numbers.setdefault(key, len(self._keys))
        if number == len(self._keys):
            self._keys.append(key)
        return number

    def all(self) -> tuple[Place, ...]:
        """Return the places by their numbers."""
        has_several = self._has_several_models()
        return tuple(
            Place(
                _path(module, has_several),
                told(line),
                told(own_line),
                operator,
                is_backward,
                code="" if line is None else linecache.getline(*line).strip(),
            )
            for module, line, own_line, operator, is_backward in self._keys
        )

    def tensors(self) -> Iterator[tuple[TensorRole, str, torch.Tensor]]:
        """Yield the parameters and buffers of all models that have run: which of the two, path, and tensor."""
        has_several = self._has_several_models()
        modules = {id(module): module for model in self._alive() for module in model.modules()}
        for module in modules.values():
            inside = _path(self._names.get(module), has_several)
            for name, parameter in module.named_parameters(recurse=False):
                yield "parameter", f"{inside}.{name}", parameter
            for name, buffer in module.named_buffers(recurse=False):
                yield "buffer", f"{inside}.{name}", buffer

    def _register(self, parent: nn.Module, _: str, module: nn.Module | None) -> None:
        if module is not None and module is not parent:
            self._parents[module] = weakref.ref(parent)

    def _begin(self, module: nn.Module, _: Any) -> None:
        if module not in self._names:
            self._name_all(module)
        self._running.append(module)

    def _end(self, module: nn.Module, *_: Any) -> None:
        while self._running and self._running.pop() is not module:
            pass

    def _name_all(self, module: nn.Module) -> None:
        """Name all modules of the model that a module is part of: a script may call parts of its model alone."""
        model, seen = module, {id(module)}
        while (parent := self._parents.get(model, _gone)()) is not None and id(parent) not in seen:
            seen.add(id(parent))
            model = parent
        self._models.append(weakref.ref(model))
        root = model
        while (children := dict(root.named_children())) and children.keys() <= {"module", *_WRAPPED}:
            root = next(iter(children.values()))
        named = {id(each): path for path, each in root.named_modules()}
        for each in (module, *model.modules()):
            parts = named.get(id(each), "").split(".")
            path = ".".join(part for part in parts if part not in _WRAPPED)
            known = self._names.setdefault(each, _Name("", 0, ""))
            if known.num_modules < len(named):
                known.model, known.num_modules, known.path = type(root).__name__, len(named), path

    def _alive(self) -> list[nn.Module]:
        """Return the models that are no part of another one."""
        alive = [model for model in (each() for each in self._models) if model is not None]
        return [model for model in alive if not self._names[model].path]

    def _has_several_models(self) -> bool:
        trained = (model for model in self._alive() if next(model.parameters(), None) is not None)
        return len({self._names[model].model for model in trained}) > 1


def _gone() -> None:
    """Stand for the parent of a module that has none."""


def _path(name: _Name | None, has_several: bool) -> str:
    """Return a module's path, which begins with its model's class where there are several models."""
    if name is None:
        return ""
    return ".".join(filter(None, (name.model if has_several or not name.path else "", name.path)))
