"""Interface of an engine to a run: apply a configuration before the first call, and say whether that is what ran."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

from torch import nn

from ...records.configuration import Configuration, Shapes
from ...records.engines import Engine as EngineName
from ...records.outcome import Fallback, InvalidPlan
from ..plans.layers import Block

Problem = Fallback | InvalidPlan
"""The reason why the configuration is not what ran."""


class NothingRan(Fallback):
    """Nothing has run under the engine yet that could tell."""


class Engine(ABC):
    """An engine of one training process.

    ``active`` says whether the configuration is one of this engine's. ``proves``: the run is to be compared with one
    under other plans, so that what operators draw at random must not depend on plans. With ``leave_out_search`` no
    compiler searches for kernels; the engine calls it where one would have. ``without_plans`` says why parts of the
    script take no plans. ``refusal`` is why the script cannot run under this engine at all.
    """

    name: ClassVar[EngineName]

    def __init__(self) -> None:
        self.active = False
        self.proves = False
        self.leave_out_search: Callable[[], None] | None = None
        self.configuration = Configuration()
        self.failures: list[Problem] = []
        self.without_plans: list[str] = []
        self.refusal = ""

    # -- applying

    @abstractmethod
    def use(self, configuration: Configuration) -> str | None:
        """Make a configuration current; gives the reason when this process cannot be switched to it."""

    @abstractmethod
    def compile_root(self, root: nn.Module, *, block: Block | None = None) -> Callable[..., Any]:
        """Give what is called in the place of a root's own call; ``block``: what it is as a block of another root."""

    def leaves_out(self, module: nn.Module) -> bool:
        """Tell whether a module that a compiled root calls outside of its graphs gets plans only as its own root."""
        del module
        return False

    def take_no_plans(self, reason: str) -> None:
        """Note why a part of the script takes no plans."""
        if reason not in self.without_plans:
            self.without_plans.append(reason)

    def begin_call(self, shapes: Shapes = ()) -> None:  # noqa: B027  (not every engine has to know)
        """Begin a training call of a root with tensors of these shapes."""

    def repeat_call(self, *, is_root: bool) -> None:  # noqa: B027  (not every engine has to know)
        """Begin a call in a backward, where the script's own checkpoint runs a root again, or a part of it."""

    @property
    def is_in_checkpoint(self) -> bool:
        """Return whether the call of a root that has begun is one that a checkpoint of the script's own runs again."""
        return False

    def end_call(self) -> None:  # noqa: B027  (not every engine has to know)
        """End a training call of a root."""

    # -- checking

    @property
    @abstractmethod
    def num_compiled(self) -> int:
        """Return how many graphs have been compiled so far: a step in which it grows is no step to be measured."""

    @property
    @abstractmethod
    def is_compiled(self) -> bool:
        """Return whether what ran was fused, or put in another order, by a compiler: it may round as plans change."""

    def raised(self, error: BaseException) -> bool:
        """Return whether the engine raised it, and not what it runs: something that the script cannot have under it."""
        del error
        return False

    @abstractmethod
    def problem(self) -> Problem | None:
        """Say why what ran is not the current configuration, or None; to be asked after a training step."""

    def ran_unchanged(self) -> bool:
        """Return whether of the graphs that the plans change none has run: what did is the script without them."""
        return False

    def forward_calls(self) -> Counter[Any] | None:
        """Return how often each graph has run under the configuration; None where that does not show."""
        return None

    def frames_given_up(self) -> int:
        """Return how many functions the engine has left alone after compiling them anew too often."""
        return 0

    def saved_bytes(self) -> int | None:
        """Return the bytes handed from forward to backward in one training call; None where that does not show."""
        return None

    @abstractmethod
    def occurrences(self) -> Counter[tuple[str, int]]:
        """Return how often each cluster occurs in the graphs so far, by its id and the strategy that applies to it."""

    def level_occurrences(self) -> int:
        """Return how many occurrences the level recomputes beside the plans; 0 also where that does not show."""
        return 0

    def recomputed(self) -> dict[str, int]:
        """Count the occurrences that each plan recomputes, as in ``Fingerprint``; to be asked after a training step."""
        if not self.active:
            return {}
        counts = self.occurrences()
        plans = self.configuration.plans
        found = {str(plan): plan.applies_to(counts[plan.cluster, plan.strategy]) for plan in plans}
        if self.configuration.level:
            found[f"level {self.configuration.level}"] = self.level_occurrences()
        return found

    # -- describing

    def describe(self) -> tuple[str, ...]:
        """Prepare for a description of the script; return what to know about the plan table."""
        return ()
