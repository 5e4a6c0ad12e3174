"""The script as the hooks see it, for those who measure, describe or compare what it trains."""

from __future__ import annotations

from dataclasses import dataclass

from .loaders import LoaderHooks
from .roots import RootHooks
from .steps import StepHooks


@dataclass(frozen=True)
class HookedScript:
    """Its root modules, its optimizers and steps, its DataLoaders."""

    roots: RootHooks
    steps: StepHooks
    loaders: LoaderHooks

    def rest(self, *, passes: bool) -> None:
        """Look no further: from here on the script is only run with what was set and applied.

        Args:
            passes: nothing is applied to the calls of modules either.
        """
        self.roots.rest(passes=passes)
        self.steps.rest()
        self.loaders.rest()
