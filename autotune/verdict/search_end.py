"""Ends of searches: the reason for the end, and whether it lets an answer speak of what was not tried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

EVEN_CHANCE: Final = 0.5
"""A setting with less of a chance to fit in each process of a confirmation gives way to one with more."""


@dataclass(frozen=True)
class Believed:
    """Hold what an ended search expects of the settings that it has measured, by their keys.

    ``per_s`` are samples/s: a single trial may have been lucky, and its neighbours tell. It is empty where the search
    looks for something else. ``chances_to_fit`` are those of fitting in each process of a confirmation, 1 where none is
    told. A setting below the first of the ``least_chances`` waits until no likelier one may still win, then below the
    next.
    """

    per_s: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    chances_to_fit: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    least_chances: tuple[float, ...] = (EVEN_CHANCE,)


NOTHING_BELIEVED: Final = Believed()


@dataclass(frozen=True)
class SearchEnd:
    """The end of a search."""

    reason: str  # in a sentence
    cut_short: str = ""  # what stopped it while untried settings might still be better; else empty
    num_configurations: int = 0  # that it could choose from, the script as it stands included
    believed: Believed = NOTHING_BELIEVED
    is_for_time: bool = False  # it had things to try and no time left


def out_of_time(reason: str) -> SearchEnd:
    """Return the end of a search that had things to try and no time left."""
    return SearchEnd(reason, "time was up", is_for_time=True)
