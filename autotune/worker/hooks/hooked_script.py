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
