"""Run something at the moment a script has imported torch, say. Standard library only, no relative imports.

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

LIBRARIES = (
    "accelerate.accelerator",
    "lightning.pytorch.trainer.trainer",
    "pytorch_lightning.trainer.trainer",
    "transformers.trainer",
    "transformers.training_args",
)
"""Modules that hooks patch once they are imported (``hooks/training_libraries.py``); each of them imports torch."""


def when_imported(
    action: Callable[[], None], name: str = "torch", *, before: Callable[[], None] = lambda: None
) -> None:
    """Call ``before`` and ``action`` around the import of a module, ``action`` once, or now if that has happened."""
    if name in sys.modules:
        action()
    else:
        sys.meta_path.insert(0, _Finder(action, name, before))


def modules_appeared() -> None:
    """Act for modules that were put into ``sys.modules`` without an import."""
    for finder in [one for one in sys.meta_path if isinstance(one, _Finder)]:
        finder.look()


class _Finder(importlib.abc.MetaPathFinder):
    """Stays until the module was imported: libraries look for torch's spec long before."""

    def __init__(self, action: Callable[[], None], name: str, before: Callable[[], None]) -> None:
        self._action = action
        self._before = before
        self._name = name
        self._is_looking = False
        self._is_done = False

    def look(self) -> None:
        """Act if the module is there."""
        if self._name in sys.modules and not self._is_done:
            self._is_done = True
            sys.meta_path.remove(self)
            self._action()

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> Any:
        """Find the module with the other finders, and wrap its loading."""
        del path, target
        if fullname != self._name or self._is_looking:
            return None
        self._is_looking = True
        try:
            spec = importlib.util.find_spec(self._name)
        finally:
            self._is_looking = False
        if spec is None or spec.loader is None:
            return spec
        loader, execute = spec.loader, spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            self._before()
            execute(module)
            # An instance attribute shadows the method; a module keeps its loader, so leave none of ours behind.
            del loader.exec_module
            self.look()

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
