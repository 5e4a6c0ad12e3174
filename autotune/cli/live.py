"""The live display of a study: a line that moves while something runs, and a line that stays for each trial."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.status import Status
from rich.text import Text

from ..launch import Event
from ..records import Configuration, Facts, Measured, Outcome
from ..records.figures import format_rate, peak_bytes
from ..records.units import format_bytes, format_duration
from ..report import describe_facts
from .tables import print_facts

__all__ = ["Display"]


class Display:
    """A ``pipeline.Watcher`` that prints to a console; on a terminal the last line shows what runs and the time left."""

    def __init__(self, console: Console, time_budget_s: float) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._ends_at = time.monotonic() + time_budget_s
        self._status = Status("", console=console, spinner="dots")
        self._running: dict[int | None, tuple[Configuration, ...]] = {}
        self._limit_bytes: int | None = None
        self._baseline: Configuration | None = None
        self._baseline_rate: float | None = None
        self._best: tuple[float, Configuration] | None = None
        self._stage = ""

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._status.stop()

    def discovering(self) -> None:
        """Say that the script runs as it stands."""
        self._stage = "Discovery"
        self._say(Text("Discovery: running the script as it stands, then listing what can be recomputed"))
        self._update("starting the script")

    def discovered(self, facts: Facts, baseline: Outcome, limit_bytes: int) -> None:
        """Print baseline and plan table."""
        with self._lock:
            self._limit_bytes = limit_bytes
            self._baseline = facts.baseline
            self._console.print()
            print_facts(self._console, describe_facts(facts))
            if isinstance(baseline, Measured):
                self._baseline_rate = baseline.measurement.samples_per_s
                peak = peak_bytes(baseline.measurement.peaks) or 0
                self._console.print()
                self._console.print(
                    Text.assemble(
                        ("Baseline  ", "bold"),
                        f"{format_rate(self._baseline_rate)} samples/s, peak {format_bytes(peak)}",
                        f" (limit {format_bytes(limit_bytes)})",
                    )
                )
                for note in baseline.measurement.notes:
                    self._console.print(Text(f"note: {note}", style="yellow"))
                if baseline.measurement.nonfinite_loss:
                    self._console.print(
                        Text("The baseline's loss is NaN or infinite: look at that first.", style="red")
                    )

    def searching(self, space_size: int) -> None:
        """Say how large the space is."""
        self._stage = "Search"
        self._say(Text(f"\nSearch: {space_size:,} configurations; one line per trial", style="bold"))

    def run_began(self, device: int | None, configurations: tuple[Configuration, ...]) -> None:
        """Note what a device works on."""
        with self._lock:
            self._running[device] = configurations
        self._update("starting")

    def event(self, device: int | None, event: Event) -> None:
        """Move the last line on."""
        if event.kind == "step":
            running = self._running.get(device, ())
            what = str(running[event.index]) if event.index < len(running) else "the script"
            self._update(f"{what}: step {event.steps}")

    def trial_ended(self, number: int, configuration: Configuration, outcome: Outcome) -> None:
        """Print a trial's line."""
        line = Text(f"{number:>5}  ", style="dim")
        if isinstance(outcome, Measured):
            rate = outcome.measurement.samples_per_s
            peak = peak_bytes(outcome.measurement.peaks) or 0
            fits = self._limit_bytes is None or peak <= self._limit_bytes
            line.append(f"{format_rate(rate):>10}/s", style="default" if fits else "dim")
            if self._baseline_rate:
                line.append(f" {rate / self._baseline_rate:6.2f}x")
            line.append(f" {format_bytes(peak):>10}", style="default" if fits else "red")
            line.append("  " if fits else " over the limit  ")
            line.append(str(configuration))
            if fits and (self._best is None or rate > self._best[0]):
                self._best = (rate, configuration)
                line.append("  <- best so far", style="green")
        else:
            line.append(f"{outcome.kind.replace('_', ' '):>12}  ", style="red")
            line.append(f"{configuration}: {outcome.cause}")
        self._say(line)

    def search_ended(self, reason: str) -> None:
        """Say why the search stopped."""
        self._say(Text(f"Search ended: {reason}"))

    def repeating(self, configurations: tuple[Configuration, ...], rounds: int) -> None:
        """Say what is measured again."""
        self._stage = "Finalists"
        self._say(Text(f"\nFinalists: {len(configurations)} settings, {rounds} rounds each, in turns", style="bold"))
        self._update("starting")

    def repeated(self, configuration: Configuration, round_number: int, outcome: Outcome) -> None:
        """Print a round's line."""
        if isinstance(outcome, Measured):
            peak = peak_bytes(outcome.measurement.peaks) or 0
            figures = f"{format_rate(outcome.measurement.samples_per_s):>10}/s {format_bytes(peak):>10}"
        else:
            figures = f"{outcome.kind.replace('_', ' ')}: {outcome.cause}"
        name = "your script as it is" if configuration == self._baseline else str(configuration)
        self._say(Text(f"round {round_number + 1}  {figures}  {name}"))

    def _say(self, line: Text) -> None:
        with self._lock:
            self._console.print(line)

    def _update(self, what: str) -> None:
        left = max(0.0, self._ends_at - time.monotonic())
        best = f", best {format_rate(self._best[0])}/s" if self._best is not None else ""
        self._status.update(Text(f"{self._stage}: {what}{best}, {format_duration(left)} left"))
