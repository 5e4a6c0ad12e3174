"""Modules that a fork server may import ahead of a script."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Preload:
    """Installed modules that a script imports before it trains, in its order; what those import in turn is left out.

    ``modules`` are imported after torch, but for the first one where it ``brings_torch``: the script imports torch by
    importing that. Parts of torch are among them that torch imports only as they are needed. ``before_torch`` are the
    packages that the script has imported by then, which are none of them.
    """

    modules: tuple[str, ...] = ()
    before_torch: tuple[str, ...] = ()
    brings_torch: bool = False

    def up_to(self, refused: Collection[str]) -> Preload:
        """The same, but for the first of the modules that is refused and all after it.

        Those may depend on what it does beside: they are to find what they find in the script.
        """
        kept = tuple(itertools.takewhile(lambda name: name not in refused, self.modules))
        return replace(self, modules=kept) if kept else Preload()
