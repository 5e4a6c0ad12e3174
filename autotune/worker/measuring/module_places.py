"""Names of the modules that save tensors."""

from __future__ import annotations

import re
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import nn

from ..hooks.autograd import modules_under_way
from ..hooks.roots import unwrap
from ..hooks.samples import tensors_of
from ..plans.layers import repeated_modules

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
        under_way = modules_under_way(sys._getframe(1))
        calls = [(module, frame) for module, frame in under_way if unwrap(module) is module][::-1]
        if not calls:
            return before or Place()
        root = calls[0][0] if before is None or before.root is None else self._roots[before.root]()
        if root is None:
            return before or Place()
        number = id(root)
        if number not in self._roots:
            self._roots[number] = weakref.ref(root)
            self._paths[number] = {
                id(one): _WRAPPERS.sub("", group_of(root, path)).strip(".") for path, one in root.named_modules()
            }
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


def group_of(model: nn.Module, path: str) -> str:
    """Return a module's path with ``*`` for indices in lists whose modules are of one class."""
    parent, shown = model, []
    for name in path.split(".") if path else ():
        siblings = [child for other, child in parent.named_children() if other.isdigit()]
        alike = name.isdigit() and len(siblings) > 1 and len({type(one) for one in siblings}) == 1
        shown.append("*" if alike else name)
        parent = parent.get_submodule(name)
    return ".".join(shown)
