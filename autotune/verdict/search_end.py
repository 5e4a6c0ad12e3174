"""Why a search ended, and whether that lets an answer speak of what was not tried."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["STOPPED_FOR_TIME", "SearchEnd"]

STOPPED_FOR_TIME = "the search stopped for time"
"""What cut a search short that had things to try and no time left."""


@dataclass(frozen=True)
class SearchEnd:
    """Why a search ended.

    Attributes:
        reason: A sentence for people.
        cut_short: What stopped it while untried settings might still be better, as in ``the search stopped for time``;
            empty where it ended because nothing that is untried is expected to be.
        num_configurations: How many settings it could choose from, the script as it stands included.
    """

    reason: str
    cut_short: str = ""
    num_configurations: int = 0
