"""Run something at the moment a script has imported torch. Standard library only, no relative imports.

Importing torch ahead of the script would be simpler and wrong: thread counts, ``CUDA_VISIBLE_DEVICES`` and allocator
settings that the script puts into ``os.environ`` first would come too late.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

__all__ = ["when_imported"]


def when_imported(action: Callable[[], None]) -> None:
    """Call ``action`` once, after the import of torch, or now if that has happened."""
    if "torch" in sys.modules:
        action()
    else:
        sys.meta_path.insert(0, _TorchFinder(action))


class _TorchFinder(importlib.abc.MetaPathFinder):
    """Stays until torch was imported: libraries look for its spec, to see whether it is there, long before that."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action
        self._is_looking = False

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> Any:
        """Find torch with the other finders, and wrap the loading of its module."""
        del path, target
        if fullname != "torch" or self._is_looking:
            return None
        self._is_looking = True
        try:
            spec = importlib.util.find_spec("torch")
        finally:
            self._is_looking = False
        if spec is None or spec.loader is None:
            return spec
        loader, execute = spec.loader, spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            # An instance attribute shadows the method; torch keeps its loader, so leave none of ours behind.
            del loader.exec_module
            sys.meta_path.remove(self)
            self._action()

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
