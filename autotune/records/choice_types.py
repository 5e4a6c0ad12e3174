"""Choices of a search: each can be made in several ways while a model runs.

Each kind of choice is a class with all that is known of the kind without torch and without ONNX Runtime.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from .facts import Facts


@dataclass(frozen=True)
class StackLine:
    """The settings that a choice puts into the optimizer stack of a bundle.

    ``part`` tells where they go: the engine's layer, a layer of their own around the model, each of the optimizers that
    leaves these settings open, or a layer of their own below all others. Layers of the same name are one.
    """

    part: Literal["engine", "model", "optimizers", "process"]
    settings: dict[str, str]
    layer: str = ""


@dataclass(frozen=True, kw_only=True)
class Choice(ABC):
    """A choice that can be made; its subclasses are the kinds."""

    name: str  # what `run --allow` takes
    does: str  # what it is, in a line
    default: int = 0  # what happens without it, 0 or 1
    changes: str = ""  # of what is computed, beyond rounding; empty for nothing
    excludes: tuple[str, ...] = ()  # names of choices that cannot be made together with it
    needs: str = ""  # a choice without which, at 0, it cannot be made or changes nothing
    made_by: ClassVar[str] = ""  # `module.Class` of `worker/choices`; empty where the engine makes it
    renames_clusters: ClassVar[bool] = False  # graphs have other operators with it, which clusters are named by
    is_free: ClassVar[bool] = False  # it changes nothing that is computed, and is tried without being asked for
    doubt: ClassVar[float] = 1.0  # how far it may change speed and memory, of how far any choice may
    gives_back_idle: ClassVar[bool] = False  # an allocator holds less with it that no tensor uses

    def takes(self, value: str) -> bool:
        """Return whether this is one of its values, as written."""
        return value in ("0", "1")

    def values_for(self, facts: Facts) -> tuple[int, ...]:
        """Return the values to try in ascending order, the engine's own included."""
        del facts
        return (0, 1)

    @property
    def variables(self) -> dict[str, re.Pattern[str]]:
        """Return the environment variables that may make it, each with the values that it may have."""
        return {}

    def variables_for(self, value: str, before: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables that make the choice."""
        del value, before
        return {}

    def refusal_for(self, facts: Facts) -> str:
        """Return why it would change nothing in a script, or what rules it out there; empty where it can be tried."""
        del facts
        return ""

    @property
    def by_hand(self) -> str:
        """Say how to make it without autotune, ``{}`` being a bundle's variables; empty where the engine says."""
        return ""

    @abstractmethod
    def stack_line(self, value: str) -> StackLine:
        """Return its line in a bundle's stack."""


@dataclass(frozen=True, kw_only=True)
class RefusedChoice:
    """A choice that cannot be made, though somebody may ask for it: ``refusal`` says why."""

    name: str
    does: str
    refusal: str
