"""The modules and lines that the operators of a followed script run for."""

from __future__ import annotations

import linecache
import threading
import weakref
from collections import Counter, defaultdict
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

from ...records.allocations import Place, TensorRole, Way
from ..plans.layers import own_class
from .frames import Line, is_in_engine, lines_here, told

# What wrappers of a module call it, and those that hold nothing else.
_WRAPPED = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
_WRAPPERS = frozenset({"DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "OptimizedModule"})


@dataclass(eq=False)
class _Model:
    """A model: a module that is part of no other one."""

    module: weakref.ref[nn.Module]
    class_name: str
    num_modules: int


@dataclass(eq=False)
class _Name:
    """The path of a module in the largest model that it is part of."""

    model: _Model
    path: str


_Key = tuple[_Name | None, Line | None, Line | None, str, Way]


class Places:
    """Knows for each operator which module and which line it runs for.

    In a backward these are what the forward was at: autograd numbers its nodes as the forward makes them.
    """

    def __init__(self) -> None:
        self._thread = threading.local()
        # By identity, as modules may define what is equal to them.
        self._parents: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._names: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._models: list[_Model] = []
        self._at_line: defaultdict[tuple[Line | None, str], set[_Name]] = defaultdict(set)
        self._numbers: dict[_Key, int] = {}
        self._of_nodes: dict[int, _Key] = {}
        self._last: _Key = (None, None, None, "", "forward")

    def install(self) -> None:
        """Follow which modules are made and run, from here on."""
        register_module_module_registration_hook(self._register)
        register_module_forward_pre_hook(self._begin)
        register_module_forward_hook(self._end, always_call=True)

    def here(self, operator: str) -> int:
        """Return the number of the place where an operator runs."""
        native: Any = torch._C
        node = native._current_autograd_node()
        if node is None or (torch.is_grad_enabled() and not is_in_engine()):
            line, own_line = lines_here()
            module = self._module_at((line, operator), node)
            key: _Key = (module, line, own_line, operator, "recompute" if node else "forward")
        else:
            # Gradients that meet a parameter have a node without a number.
            key = (*self._forward_of(node)[:3], operator, "backward")
        # Autograd numbers a node before its operator runs. What runs without a node comes after one that has.
        self._of_nodes.setdefault(native._autograd._get_sequence_nr(), key)
        self._last = key
        return self._numbers.setdefault(key, len(self._numbers))

    def all(self) -> tuple[Place, ...]:
        """Return the places by their numbers."""
        names = self._names_of_models()
        return tuple(
            Place(
                _path(module, names),
                told(line),
                told(own_line),
                operator,
                way,
                code="" if line is None else linecache.getline(*line).strip(),
            )
            for module, line, own_line, operator, way in self._numbers
        )

    def tensors(self) -> Iterator[tuple[TensorRole, str, torch.Tensor]]:
        """Yield the parameters and buffers of all models that have run: which of the two, path, and tensor."""
        names = self._names_of_models()
        modules = {id(module): module for model in self._alive() for module in _modules_of(model)}
        for module in modules.values():
            own: _Name | None = self._names.get(module)
            path = "" if own is None else ".".join(filter(None, (names.get(own.model), own.path)))
            for name, parameter in module.named_parameters(recurse=False):
                yield "parameter", f"{path}.{name}" if path else name, parameter
            for name, buffer in module.named_buffers(recurse=False):
                yield "buffer", f"{path}.{name}" if path else name, buffer

    @property
    def _running(self) -> list[nn.Module]:
        """Return the modules that run in this thread, the innermost last."""
        running: list[nn.Module] = self._thread.__dict__.setdefault("running", [])
        return running

    def _forward_of(self, node: Any) -> _Key:
        return self._of_nodes.get(node._sequence_nr() + 1, self._last)

    def _module_at(self, line: tuple[Line | None, str], node: Any) -> _Name | None:
        """Return the module that runs; ``line`` comes with the operator.

        A function that is computed again runs in none; its module is the one around its node's that was at that line.
        """
        if self._running:
            name: _Name | None = self._names.get(self._running[-1])
            if name is not None:
                self._at_line[line].add(name)
            return name
        inner = None if node is None else self._forward_of(node)[0]
        if inner is None:
            return None
        around = (name for name in self._at_line[line] if name.model is inner.model and _is_in(inner.path, name.path))
        return max(around, key=lambda name: len(name.path), default=inner)

    def _register(self, parent: nn.Module, _: str, module: nn.Module | None) -> None:
        if module is not None and module is not parent:
            self._parents.setdefault(module, []).append(weakref.ref(parent))

    def _begin(self, module: nn.Module, _: Any) -> None:
        if module not in self._names:
            self._name_all(module)
        self._running.append(module)

    def _end(self, module: nn.Module, *_: Any) -> None:
        running = self._running
        while any(one is module for one in running) and running.pop() is not module:
            pass

    def _name_all(self, module: nn.Module) -> None:
        """Name all modules of the model that a module is part of: a script may call parts of its model alone."""
        top, seen = module, {id(module)}
        while parents := [one for one in (each() for each in self._parents.get(top, ())) if one is not None]:
            if id(parents[-1]) in seen:
                break
            top = parents[-1]
            seen.add(id(top))
        root = top
        while type(root).__name__ in _WRAPPERS and (children := list(root.children())):
            root = children[0]
        named = {id(each): path for path, each in root.named_modules()}
        model = _Model(weakref.ref(top), own_class(root).__name__, len(named))
        self._models.append(model)
        for each in (module, *top.modules()):
            parts = named.get(id(each), "").split(".")
            path = ".".join(part for part in parts if part not in _WRAPPED)
            known = self._names.setdefault(each, _Name(model, path))
            if known.model.num_modules < model.num_modules:
                known.model, known.path = model, path

    def _alive(self) -> list[_Model]:
        """Return the models that are no part of another one, in the order in which they ran first."""
        modules = [(model, model.module()) for model in self._models]
        return [model for model, module in modules if module is not None and self._names[module].model is model]

    def _names_of_models(self) -> dict[_Model, str]:
        """Return a name for each model where there are several: its class, and a number if it has that of another."""
        models = [model for model in self._alive() if any(True for module in _modules_of(model) if module._parameters)]
        if len(models) < 2:
            return {}
        seen: Counter[str] = Counter()
        names = {}
        for model in models:
            seen[model.class_name] += 1
            number = seen[model.class_name]
            names[model] = model.class_name if number == 1 else f"{model.class_name}#{number}"
        return names


def _modules_of(model: _Model) -> Iterator[nn.Module]:
    module = model.module()
    return iter(()) if module is None else module.modules()


def _is_in(path: str, around: str) -> bool:
    return not around or path == around or path.startswith(f"{around}.")


def _path(name: _Name | None, models: dict[_Model, str]) -> str:
    """Return a module's path, which begins with its model's name if that has one; a model alone is its class."""
    if name is None:
        return ""
    return ".".join(filter(None, (models.get(name.model), name.path))) or name.model.class_name
