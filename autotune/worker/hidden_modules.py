"""Modules that were imported ahead of a script are kept from its sight until it imports them."""

from __future__ import annotations

import dataclasses
import functools
import importlib.abc
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

from ..records.facts import Preload
from .import_watch import is_foreign, package_of
from .torch_import import modules_appeared

REPLACED_BY_TORCH = frozenset({("torch", "manual_seed")})
"""Modules and names of what torch itself replaces as its compiler is imported; the original stays in torch.random."""


class Hidden(importlib.abc.MetaPathFinder):
    """Keeps modules that were imported ahead out of ``sys.modules`` until somebody imports them.

    Torch is put back by itself. All others (also the parts of torch that it does not import itself) are put back
    together, since they refer to each other: ``about_to_reveal`` is called first with the name of the one that is
    imported, and may end the process. ``others`` came with the modules of ``preload``.
    """

    def __init__(self, preload: Preload = Preload(), others: Iterable[str] = ()) -> None:  # noqa: B008
        self.about_to_reveal: Callable[[str], None] = lambda _: None
        self._brings_torch = package_of(preload.modules[0]) if preload.brings_torch else ""
        kept = set(preload.before_torch)
        self._others = {
            name: sys.modules[name]
            for name in others
            if (is_foreign(name) or package_of(name) == "torch") and package_of(name) not in kept
        }
        self._members = [*_parts_in_sight(self._others), *_replaced_by_torch(self._others)]
        for one in self._members:
            one.hide()
        self._torch = {
            name: module
            for name, module in sys.modules.items()
            if package_of(name) == "torch" and name not in self._others
        }
        for name in (*self._torch, *self._others):
            del sys.modules[name]
        sys.meta_path.insert(0, self)

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> Any:
        """A hidden module's own spec; loading by it puts modules back."""
        del path, target
        if fullname == "torch" and self._torch:
            return self._spec(self._torch["torch"], self._reveal_torch)
        module = self._others.get(fullname)
        if module is None or not _is_loaded_by_itself(fullname, module):
            return None
        return self._spec(module, functools.partial(self._reveal_others, fullname))

    def _spec(self, module: ModuleType, reveal: Callable[[], None]) -> Any:
        spec = module.__spec__
        assert spec is not None

        def create(_: object) -> ModuleType:
            reveal()
            return module

        def execute(_: object) -> None:
            shadows.pop("create_module", None)
            if shadows.get("exec_module") is execute:
                del shadows["exec_module"]

        # Instance attributes shadow the loader's methods, as those of ``when_imported`` do.
        shadows = vars(spec.loader)
        shadows.update(create_module=create, exec_module=execute)
        return spec

    def _reveal_torch(self) -> None:
        sys.modules.update(self._torch)
        self._torch = {}
        self._leave()

    def _reveal_others(self, name: str) -> None:
        if self._torch and package_of(name) == self._brings_torch:
            importlib.import_module("torch")
        self.about_to_reveal(name)
        sys.modules.update(self._others)
        for one in self._members:
            one.show()
        self._others, self._members = {}, []
        self._leave()
        modules_appeared()

    def _leave(self) -> None:
        if not self._torch and not self._others and self in sys.meta_path:
            sys.meta_path.remove(self)


@dataclasses.dataclass(frozen=True)
class _Member:
    """A member that a module in sight has only because others were imported; ``before`` is None if it was absent."""

    module: ModuleType
    name: str
    value: object
    before: object = None

    def hide(self) -> None:
        if self.before is None:
            delattr(self.module, self.name)
        else:
            setattr(self.module, self.name, self.before)

    def show(self) -> None:
        # The script may have put a member of its own there.
        if vars(self.module).get(self.name) is self.before:
            setattr(self.module, self.name, self.value)


def _parts_in_sight(hidden: Mapping[str, ModuleType]) -> Iterator[_Member]:
    for name, module in hidden.items():
        parent, _, own = name.rpartition(".")
        package = None if parent in hidden else sys.modules.get(parent)
        if package is not None and vars(package).get(own) is module:
            yield _Member(package, own, module)


def _replaced_by_torch(hidden: Mapping[str, ModuleType]) -> Iterator[_Member]:
    for module, name in REPLACED_BY_TORCH if "torch._dynamo" in hidden else ():
        value, original = (getattr(sys.modules[one], name) for one in (module, "torch.random"))
        if value is not original:
            yield _Member(sys.modules[module], name, value, original)


def _is_loaded_by_itself(name: str, module: ModuleType) -> bool:
    """Return whether a module has a loader of its own, and is no other name of another module."""
    spec = getattr(module, "__spec__", None)
    return (
        spec is not None
        and spec.name == name
        and hasattr(spec.loader, "__dict__")
        and not isinstance(spec.loader, type)
    )
