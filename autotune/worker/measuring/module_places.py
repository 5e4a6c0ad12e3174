"""Detection of the module that runs at a moment, from the Python stack.

Nothing has to be put on a module, or compiled anew.
"""

from __future__ import annotations

import re
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch import nn

from ..hooks.roots import unwrap
from ..hooks.samples import tensors_of
from ..plans.layers import repeated_modules

_CALL = nn.Module._call_impl.__code__
_INDEX = re.compile(r"(?<![^.])\d+(?![^.])")
# Wrappers that are no part of a path that anybody wrote.
_WRAPPERS = re.compile(r"(?<![^.])(?:_orig_mod|_checkpoint_wrapped_module|_fsdp_wrapped_module)\.?")


@dataclass(frozen=True)
class Place:
    """A module that runs: its path in the outermost one, ``*`` for an index, and its class; empty outside of any.

    ``block`` is the number of the repeated block around it, the outermost one, None if there is none.
    """

    path: str = ""
    name: str = ""
    block: int | None = None
    root: int | None = None


class ModulePlaces:
    """Tells where a tensor is saved. Weak: it keeps no module.

    Attributes:
        block_names: The class of each repeated block that was met.
    """

    def __init__(self) -> None:
        self.block_names: dict[int, str] = {}
        self._roots: dict[int, weakref.ref[nn.Module]] = {}
        self._paths: dict[int, dict[int, str]] = {}
        self._blocks: dict[int, set[int]] = {}

    def roots(self) -> Iterator[nn.Module]:
        """The outermost modules that were met, as far as they are alive."""
        found = (reference() for reference in self._roots.values())
        return (module for module in found if module is not None)

    def here(self, enters: Callable[[Iterable[torch.Tensor]], None], *, before: Place | None = None) -> Place:
        """The place of the innermost module that runs in this thread.

        Args:
            enters: told the tensors that a repeated block around it was called with.
            before: where the code was first called that runs again, in a backward: what is around it there.
        """
        calls = list(_calls(sys._getframe(1)))[::-1]
        if not calls:
            return before or Place()
        root = calls[0][0] if before is None or before.root is None else self._roots[before.root]()
        if root is None:
            return before or Place()
        number = id(root)
        if number not in self._roots:
            self._roots[number] = weakref.ref(root)
            self._paths[number] = {id(one): _shown(path) for path, one in root.named_modules()}
            # A module without parts has nothing between what enters it and what leaves it.
            self._blocks[number] = {id(one) for one in repeated_modules(root) if any(True for _ in one.children())}
        block = None if before is None else before.block
        for module, frame in calls:
            if block is None and id(module) in self._blocks[number]:
                block = id(module)
                self.block_names[block] = type(getattr(module, "_checkpoint_wrapped_module", module)).__name__
                enters(tensors_of((frame.f_locals["args"], frame.f_locals["kwargs"])))
        innermost = calls[-1][0]
        path = self._paths[number].get(id(innermost), "")
        return Place(path, type(innermost).__name__, block, number)


def _calls(frame: FrameType | None) -> Iterator[tuple[nn.Module, Any]]:
    """The modules whose calls are under way, innermost first, with the frames of these calls."""
    while frame is not None:
        if frame.f_code is _CALL:
            module = frame.f_locals["self"]
            if unwrap(module) is module:
                yield module, frame
        frame = frame.f_back


def _shown(path: str) -> str:
    return _INDEX.sub("*", _WRAPPERS.sub("", path)).strip(".")
