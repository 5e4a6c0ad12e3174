"""Why a search ended, and whether that lets an answer speak of what was not tried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

__all__ = ["NOTHING_BELIEVED", "STOPPED_FOR_TIME", "Believed", "SearchEnd"]

STOPPED_FOR_TIME = "the search stopped for time"
"""What cut a search short that had things to try and no time left."""


@dataclass(frozen=True)
class Believed:
    """Hold what a search that has ended expects of settings that it has measured, by their keys.

    Attributes:
        per_s: The samples/s: a single trial may have been lucky, and its neighbours tell. Empty where it expects
            nothing, or looks for something else.
        may_not_fit: Settings that fitted in their trials, but have less than an even chance to fit in each process of
            a final.
    """

    per_s: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    may_not_fit: frozenset[str] = frozenset()


NOTHING_BELIEVED: Final = Believed()


@dataclass(frozen=True)
class SearchEnd:
    """Why a search ended.

    Attributes:
        reason: A sentence for people.
        cut_short: What stopped it while untried settings might still be better, as in ``the search stopped for time``;
            empty where it ended because nothing that is untried is expected to be.
        num_configurations: How many settings it could choose from, the script as it stands included.
        believed: What it expects of settings that it has measured.
    """

    reason: str
    cut_short: str = ""
    num_configurations: int = 0
    believed: Believed = NOTHING_BELIEVED
