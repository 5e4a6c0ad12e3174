"""What is known of a study at some moment, as far as the block below the lines shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ...records.engines import Target

Stage = Literal["", "Discovery", "Search", "Finalists", "Proof", "Compiling"]


@dataclass(frozen=True)
class Point:
    """A trial that was measured; ``over`` is over the limit, or may not be the answer for another reason."""

    samples_per_s: float
    peak_bytes: int
    kind: Literal["own", "best", "fits", "over"]


@dataclass(frozen=True)
class Best:
    """The best trial so far: its figure as the objective counts, and how many times the script's samples/s it has.

    ``times`` is None where the script has no samples/s to compare with.
    """

    figure: str
    times: float | None
    peak_bytes: int


@dataclass(frozen=True)
class Finalist:
    """Who is measured again: name and rounds so far, and beside the script the ratio and its interval, in words."""

    name: str
    rounds: int
    told: str


@dataclass(frozen=True)
class Forecast:
    """The search makes at most so many more trials, which take until ``ends_at_s``, by ``time.monotonic``."""

    most_trials: int
    ends_at_s: float


@dataclass(frozen=True)
class State:
    """What is known. Times are those of ``time.monotonic``, in seconds.

    Attributes:
        ends_at_s: when the time budget is spent.
        began_s: when the study began.
        stage: what it is at.
        doing: what each device works on; None stands for the one that the script takes.
        doing_since_s: since when the script is being started or described.
        parts: what the script's memory is made of, as (what, bytes), largest first.
        limit_bytes: what the answer may peak at; None before it is known.
        points: the trials that were measured.
        num_trials: trials that have ended, the failed ones included.
        num_failed: those that failed.
        max_trials: how many there may be.
        target: what is tuned.
        best: the best so far.
        forecast: the search's own.
        finalists: who is in the rounds.
        rounds_began_s: when the rounds began.
        rounds_done: runs of the rounds so far.
        most_rounds: runs that there may be.
    """

    ends_at_s: float
    began_s: float = 0.0
    stage: Stage = ""
    doing: Mapping[int | None, str] = field(default_factory=dict)
    doing_since_s: float | None = None
    parts: tuple[tuple[str, int], ...] = ()
    limit_bytes: int | None = None
    points: tuple[Point, ...] = ()
    num_trials: int = 0
    num_failed: int = 0
    max_trials: int = 0
    target: Target = "script"
    best: Best | None = None
    forecast: Forecast | None = None
    finalists: tuple[Finalist, ...] = ()
    rounds_began_s: float = 0.0
    rounds_done: int = 0
    most_rounds: int = 0
