"""Ends of searches: the reason for the end, and whether it lets an answer speak of what was not tried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

STOPPED_FOR_TIME = "the search stopped for time"
"""What cut a search short that had things to try and no time left."""

EVEN_CHANCE: Final = 0.5
"""What fits in each process of a final with less of a chance than this gives way to what does with more."""


@dataclass(frozen=True)
class Believed:
    """Hold what a search that has ended expects of settings that it has measured, by their keys.

    Attributes:
        per_s: The samples/s: a single trial may have been lucky, and its neighbours tell. Empty where it expects
            nothing, or looks for something else.
        chances_to_fit: How likely those that fitted in their trials fit in each process of a final; 1 where it is not
            told.
        least_chances: What is less likely to fit waits until nothing likelier may still win: by the first of these,
            then by the next.
    """

    per_s: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    chances_to_fit: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    least_chances: tuple[float, ...] = (EVEN_CHANCE,)


NOTHING_BELIEVED: Final = Believed()


@dataclass(frozen=True)
class SearchEnd:
    """The end of a search, with its reason.

    Attributes:
        reason: A sentence for people.
        cut_short: What stopped it while untried settings might still be better, as in ``the search stopped for time``.
            Empty where it ended because nothing that is untried is expected to be better.
        num_configurations: How many settings it could choose from, the script as it stands included.
        believed: What it expects of settings that it has measured.
    """

    reason: str
    cut_short: str = ""
    num_configurations: int = 0
    believed: Believed = NOTHING_BELIEVED
