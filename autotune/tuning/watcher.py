"""Watchers of a study, which are told what happens while it is tuned."""

from __future__ import annotations

from typing import Protocol

from ..launch.port import Event
from ..records.configuration import Configuration
from ..records.facts import Facts
from ..records.outcome import Outcome
from ..records.proof import Proof
from ..search.given_plans import Given
from ..search.space import Space


class Watcher(Protocol):
    """Told what happens, for a display; methods may be called from several threads."""

    def discovering(self) -> None:
        """The script is started as it stands, for the first time in this study."""

    def discovered(self, facts: Facts, baseline: Outcome, limit_bytes: int) -> None:
        """Facts and baseline are known, from just now or from an earlier session."""

    def given(self, plans: Given) -> None:
        """Show which of the plans that were brought along the search begins with, and which it leaves out."""

    def searching(self, space: Space) -> None:
        """The search begins, in this space."""

    def run_began(self, devices: tuple[int, ...], configurations: tuple[Configuration, ...]) -> None:
        """A run starts: of the search, or of the finalists' repetitions."""

    def forecast(self, most_s: float) -> None:
        """The search should take at most so many seconds more, by what it knows now."""

    def event(self, devices: tuple[int, ...], event: Event) -> None:
        """Something happened in a run."""

    def trial_ended(self, number: int, configuration: Configuration, outcome: Outcome) -> None:
        """A trial's outcome is stored."""

    def search_ended(self, reason: str) -> None:
        """The search is over."""

    def widened(self, choice: str, idle: str) -> None:
        """The search goes on with a choice that nobody asked for, as torch's allocator did what ``idle`` says."""

    def searching_again(self) -> None:
        """The search goes on: a repetition has ruled out the best so far."""

    def repeating(self, configurations: tuple[Configuration, ...], num_runs: int) -> None:
        """Finalists and baseline are measured again, in so many runs at most."""

    def no_time(self, needed_s: float) -> None:
        """There are finalists, but no time to measure them again; that would take so many seconds."""

    def repeated(self, configuration: Configuration, repetition_number: int, outcome: Outcome) -> None:
        """A finalist's or the baseline's repetition is stored."""

    def proving(self, configuration: Configuration) -> None:
        """A winner's first steps are compared with the script's."""

    def compiling(self, configuration: Configuration) -> None:
        """The answer's setting is run once more, compiled, though the study was not allowed that."""

    def compiled(self, configuration: Configuration, outcome: Outcome | None, *, reason: str) -> None:
        """Show the outcome of the answer's setting compiled; where there is none, ``reason`` says why."""

    def proved(self, proof: Proof) -> None:
        """Show the proof of a winner, whose first steps were compared with the script's."""
