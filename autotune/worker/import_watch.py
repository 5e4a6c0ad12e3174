"""Watch of the installed modules that a script imports before it trains, which a fork server may import ahead of it.

Standard library only: it is needed before the script has imported torch.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ..records.facts import Preload

_INSTALLED = ("/site-packages/", "/dist-packages/")
# Torch is imported ahead in any case, and what answers for a run must not come from another process.
_OWN = frozenset({"torch", "autotune", "_autotune", "_autotune_main", "__main__", "sitecustomize", "usercustomize"})


class ImportWatch(importlib.abc.MetaPathFinder):
    """Notes what the script itself imports, until ``close`` or until it changes what an import may depend on."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._current = ""
        self._before_torch: tuple[str, ...] = ()
        self._brings_torch = ""
        self._change: Callable[[], str] | None = None
        self._is_open = True
        sys.meta_path.insert(0, self)

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> None:
        """Find nothing, and take note."""
        del target
        if not self._is_open or is_under_way(self._current) or is_under_way("torch"):
            return
        # Torch imports parts of itself as they are needed: its compiler with the first optimizer.
        is_part_of_torch = package_of(fullname) == "torch" and self._change is not None
        if not is_part_of_torch and not is_foreign(fullname):
            return
        if self._change is not None and self._change():
            self.close()
            return
        if not _is_installed(fullname, path):
            return
        self._current = fullname
        self._names.append(fullname)

    def torch_begins(self) -> None:
        """Note the packages that were imported completely before torch."""
        packages = dict.fromkeys(package_of(name) for name in list(sys.modules) if is_foreign(name))
        self._before_torch = tuple(package for package in packages if not is_under_way(package))
        self._brings_torch = self._current if is_under_way(self._current) else ""
        self._names = [self._brings_torch] if self._brings_torch else []

    def torch_is_imported(self, change: Callable[[], str]) -> None:
        """Go on after the import of torch; ``change`` says what the script has changed since."""
        self._change = change

    def close(self) -> None:
        """Note nothing more."""
        self._is_open = False
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def preload(self) -> Preload:
        """Return what may be imported ahead; nothing where what brings torch belongs to a package that came without."""
        if self._change is None or package_of(self._brings_torch) in self._before_torch:
            return Preload()
        names = [name for name in dict.fromkeys(self._names) if name in sys.modules]
        names = [name for name in names if package_of(name) not in self._before_torch]
        if not names or names[0] != (self._brings_torch or names[0]):
            return Preload()
        # A package is imported on the way to what is inside of it.
        followed = zip(names, [*names[1:], ""], strict=True)
        kept = tuple(name for name, after in followed if not after.startswith(f"{name}."))
        return Preload(kept, self._before_torch, bool(self._brings_torch))


def package_of(name: str) -> str:
    """The outermost package of a module."""
    return name.partition(".")[0]


def is_foreign(name: str) -> bool:
    """Return whether a module is neither Python's own nor torch's nor ours."""
    package = package_of(name)
    return package not in sys.stdlib_module_names and package not in _OWN


def is_under_way(name: str) -> bool:
    """Return whether a module is being imported at this moment."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


def _is_installed(name: str, path: Any) -> bool:
    try:
        spec = importlib.machinery.PathFinder.find_spec(name, path)
    except Exception:  # the import that follows will show it
        return False
    origin = (spec.origin if spec is not None else None) or ""
    return any(one in origin for one in _INSTALLED)
