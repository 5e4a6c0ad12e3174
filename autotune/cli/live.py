"""The live display of a study: a line that moves while something runs, and a line that stays for each trial."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from ..launch import Event
from ..records import (
    Configuration,
    Facts,
    Measured,
    Measurement,
    Objective,
    Outcome,
    OutOfMemory,
    Proof,
    StudySpec,
    Trial,
)
from ..records.figures import format_rate, peak_bytes
from ..records.printable import first_line
from ..records.units import format_bytes, format_duration
from ..report import describe_facts
from ..search import Aim, Given
from ..tuning.budget import Interruption
from .tables import print_facts

__all__ = ["Display"]

_OWN = "your script as it is"
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class Display:
    """A ``tuning.Watcher`` that prints to a console; on a terminal the last line shows what runs and the time left.

    Args:
        console: where it prints.
        spec: what the study was asked for.
        interruption: shown once it is set.
        known: trials of an earlier session.
    """

    def __init__(
        self, console: Console, spec: StudySpec, interruption: Interruption, *, known: Sequence[Trial] = ()
    ) -> None:
        self._console = console
        self._spec = spec
        self._interruption = interruption
        self._known = [trial for trial in known if trial.outcome is not None]
        self._lock = threading.RLock()
        self._began_s = time.monotonic()
        self._running: dict[int | None, tuple[Configuration, ...]] = {}
        self._doing: dict[int | None, str] = {}
        self._aim: Aim | None = None
        self._baseline: Configuration | None = None
        self._baseline_rate: float | None = None
        self._baseline_is_finite = True
        self._able: list[tuple[Configuration, Measurement]] = []
        self._stage = ""
        self._rounds_began_s = 0.0
        self._num_rounds = 0
        self._rounds_done = 0
        # Last: it asks for the line at once.
        self._live = Live(console=console, get_renderable=self._line, refresh_per_second=4, transient=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.stop()

    def discovering(self) -> None:
        """Say that the script runs as it stands, and what that means."""
        self._stage = "Discovery"
        self._say("Discovery: running the script as it stands, then listing what can be recomputed")
        self._say(
            "A trial runs your script for real, the files it writes and its `finally:` blocks included; "
            + ("--scratch keeps that in a folder apart." if not self._is_scratch else f"in {self._folder}."),
            style="dim",
        )
        self._doing[None] = "starting the script"

    def discovered(self, facts: Facts, baseline: Outcome, limit_bytes: int) -> None:
        """Print baseline and plan table."""
        self._aim = Aim(self._spec.objective, limit_bytes)
        self._baseline = facts.baseline
        with self._lock:
            self._console.print()
            print_facts(self._console, describe_facts(facts))
        if isinstance(baseline, Measured):
            self._print_baseline(baseline, self._aim)
            self._note_best(facts.baseline, baseline)
        for trial in self._known:
            self._note_best(trial.configuration, trial.outcome)

    def given(self, plans: Given) -> None:
        """Say what the search begins with, and what of the plans that were given it leaves out."""
        if plans.sets:
            self._say("\nTried first, as given:")
            for one in plans.sets:
                self._say(f"  {' '.join(map(str, one))}")
        else:
            self._say("\nNone of the plans given can be tried first.", style="yellow")
        if plans.unknown:
            engine = self._spec.engine
            self._say(
                f"Left out, since engine {engine} finds no such cluster in this script: "
                f"{', '.join(map(str, plans.unknown))}",
                style="yellow",
            )
            self._say(
                "A cluster's name is that of the operators in its engine's own graph; other engines have other names.",
                style="dim",
            )
        if plans.passed_over:
            count = len(plans.passed_over)
            self._say(f"{count} more of them are in this script, and not tried first: the search stays small.")

    def searching(self, space_size: int) -> None:
        """Say how large the space is, and what is known of it."""
        self._stage = "Search"
        self._doing.clear()
        left = format_duration(max(1.0, self._left_s))
        count = f"{space_size:,} configuration{'s' if space_size != 1 else ''}"
        self._say(f"\nSearch: {count}, at most {self._spec.max_trials} trials, {left} left", style="bold")
        best = self._best()
        if len(self._known) > 1 and best is not None:
            name = self._name(best[0])
            self._say(f"{len(self._known)} trials are done already, the best {self._figure(best[1])}: {name}")

    def searching_again(self) -> None:
        """Say that the search goes on, and why."""
        self._stage = "Search"
        self._doing.clear()
        self._say("\nSearch goes on, as a round rules out the best so far", style="bold")

    def run_began(self, device: int | None, configurations: tuple[Configuration, ...]) -> None:
        """Note what a device works on."""
        self._running[device] = configurations
        self._doing[device] = f"{self._name(configurations[0])}: starting"

    def event(self, device: int | None, event: Event) -> None:
        """Move the last line on."""
        if event.kind == "step":
            running = self._running.get(device, ())
            what = self._name(running[event.index]) if event.index < len(running) else "the script"
            self._doing[device] = f"{what}: step {event.steps}"
        elif event.kind == "ended":
            self._doing.pop(device, None)

    def trial_ended(self, number: int, configuration: Configuration, outcome: Outcome) -> None:
        """Print a trial's line."""
        line = Text.assemble((f"{number:>5}  ", "dim"))
        if isinstance(outcome, Measured):
            measurement = outcome.measurement
            peak = peak_bytes(measurement.peaks) or 0
            fits = self._fits(peak)
            line.append(f"{format_rate(measurement.samples_per_s):>10}/s", style="default" if fits else "dim")
            if self._baseline_rate:
                line.append(f" {measurement.samples_per_s / self._baseline_rate:6.2f}x")
            line.append(f" {format_bytes(peak):>10}", style="default" if fits else "red")
            line.append("  " if fits else f" over the {self._limit_word(peak)}  ")
            line.append(str(configuration))
            if measurement.nonfinite_loss:
                line.append("  the loss is NaN or infinite", style="red")
            if measurement.allocator_retries:
                line.append("  the allocator thrashed", style="red")
            if self._note_best(configuration, outcome):
                line.append("  <- best so far", style="green")
        else:
            line.append(f"{configuration}: ")
            line.append(_told(outcome), style="red")
        self._say(line)

    def search_ended(self, reason: str) -> None:
        """Say why the search stopped."""
        self._doing.clear()
        self._say(f"Search ended: {reason}")

    def repeating(self, configurations: tuple[Configuration, ...], num_runs: int) -> None:
        """Say what is measured again."""
        self._stage = "Finalists"
        self._rounds_began_s, self._num_rounds, self._rounds_done = time.monotonic(), num_runs, 0
        settings = "1 setting" if len(configurations) == 1 else f"{len(configurations)} settings"
        self._say(f"\nFinalists: {settings}, measured again in turns, {num_runs} runs", style="bold")

    def no_time(self, needed_s: float) -> None:
        """Say how much time the rounds would take."""
        needed = format_duration(max(60.0, math.ceil(needed_s / 60) * 60))
        self._say(
            f"No time is left to measure the finalists again; resume with --time-budget {needed}.", style="yellow"
        )

    def repeated(self, configuration: Configuration, round_number: int, outcome: Outcome) -> None:
        """Print a round's line."""
        self._rounds_done += 1
        if isinstance(outcome, Measured):
            peak = peak_bytes(outcome.measurement.peaks) or 0
            figures = f"{format_rate(outcome.measurement.samples_per_s):>10}/s {format_bytes(peak):>10}"
            is_over = not self._fits(peak)
        else:
            figures = _told(outcome)
            is_over = isinstance(outcome, OutOfMemory)
        if is_over:
            self._able = [one for one in self._able if one[0].key != configuration.key]
        self._say(f"round {round_number + 1}  {figures}  {self._name(configuration)}")

    def proving(self, configuration: Configuration) -> None:
        """Say that the winner is checked."""
        self._stage = "Proof"
        self._say(f"\nProof: the first steps of {self._name(configuration)} beside your script's", style="bold")

    def proved(self, proof: Proof) -> None:
        """Say what was wrong, if something was; what is right stands with the answer."""
        if not proof.holds:
            self._say(proof.statement, style="red" if proof.answer == "inexact" else "yellow")

    @property
    def _folder(self) -> str:
        return self._spec.working_directory

    @property
    def _is_scratch(self) -> bool:
        return self._folder.endswith("/.autotune/scratch")

    @property
    def _left_s(self) -> float:
        """The time until everything is done: the budget's, or what the finalists' runs so far let expect."""
        if self._rounds_done:
            each_s = (time.monotonic() - self._rounds_began_s) / self._rounds_done
            return each_s * (self._num_rounds - self._rounds_done)
        return self._began_s + self._spec.time_budget_s - time.monotonic()

    def _fits(self, peak: int) -> bool:
        return self._aim is None or peak <= self._aim.limit_bytes

    def _limit_word(self, peak: int) -> str:
        return "target" if self._aim is not None and peak <= self._aim.run_limit_bytes else "limit"

    def _name(self, configuration: Configuration) -> str:
        return _OWN if configuration == self._baseline else str(configuration)

    def _note_best(self, configuration: Configuration, outcome: Outcome | None) -> bool:
        """Whether this is the best so far."""
        if not isinstance(outcome, Measured) or not self._fits(peak_bytes(outcome.measurement.peaks) or 0):
            return False
        if outcome.measurement.allocator_retries or (outcome.measurement.nonfinite_loss and self._baseline_is_finite):
            return False  # it cannot win
        before = self._best()
        self._able.append((configuration, outcome.measurement))
        best = self._best()
        return best != before and best is not None and best[0] == configuration

    def _best(self) -> tuple[Configuration, Measurement] | None:
        """What is worth most of what is fast enough: beside the script, or where that does not fit, the fastest."""
        aim, able = self._aim, self._able
        if aim is None or not able:
            return None
        own = (one.samples_per_s for configuration, one in able if configuration == self._baseline)
        least = aim.slowest * next(own, max(one.samples_per_s for _, one in able))
        return max((one for one in able if one[1].samples_per_s >= least), key=lambda one: aim.merit_of(one[1]))

    def _figure(self, measurement: Measurement) -> str:
        """What the objective goes by."""
        if self._spec.objective.goal == "memory":
            return format_bytes(peak_bytes(measurement.peaks) or 0)
        return f"{format_rate(measurement.samples_per_s)}/s"

    def _print_baseline(self, baseline: Measured, aim: Aim) -> None:
        measurement = baseline.measurement
        self._baseline_rate = measurement.samples_per_s
        self._baseline_is_finite = not measurement.nonfinite_loss
        figures = (
            f"{format_rate(self._baseline_rate)} samples/s, peak {format_bytes(peak_bytes(measurement.peaks) or 0)}"
        )
        limit, objective = format_bytes(aim.run_limit_bytes), self._spec.objective
        self._say(Text.assemble(("\nBaseline  ", "bold"), f"{figures} (limit {limit})"))
        if objective != Objective():
            self._say(Text.assemble(("Looking for  ", "bold"), str(objective)))
        asked = {"--memory-limit": self._spec.memory_limit_bytes, "--target-memory": objective.target_memory_bytes}
        for option, size in asked.items():
            if size is not None and size > aim.run_limit_bytes:
                self._say(f"note: {option} {format_bytes(size)} is more than there is: {limit}", style="yellow")
        for note in measurement.notes:
            self._say(f"note: {note}", style="yellow")
        if measurement.nonfinite_loss:
            self._say("The baseline's loss is NaN or infinite: look at that first.", style="red")

    def _say(self, line: str | Text, *, style: str = "") -> None:
        with self._lock:
            self._console.print(Text(line, style=style) if isinstance(line, str) else line)

    def _line(self) -> Text:
        """The line that moves, made anew at every refresh."""
        doing = [f"device {device}: {what}" if device is not None else what for device, what in [*self._doing.items()]]
        found = self._best()
        best = f" · best {self._figure(found[1])}" if found is not None else ""
        left = f" · {format_duration(self._left_s)} left" if self._left_s >= 1 else " · finishing what runs"
        if self._stage == "Discovery":
            left = f" · {format_duration(max(1.0, time.monotonic() - self._began_s))} so far"
        if self._interruption.cancel.is_set():
            left = " · stopping"
        elif self._interruption.finish.is_set():
            left = " · finishing what runs, Ctrl-C again stops now"
        turning = _SPINNER[int(time.monotonic() * 10) % len(_SPINNER)]
        # What runs may be long, and is what can be cut.
        return Text(
            f"{turning} {self._stage}{best}{left}: {'; '.join(doing) or 'choosing'}", no_wrap=True, overflow="ellipsis"
        )


def _told(outcome: Outcome) -> str:
    """A failure: what kind, and its cause."""
    assert not isinstance(outcome, Measured)
    kind, cause = outcome.kind.replace("_", " "), first_line(outcome.cause)
    return cause if cause.startswith(kind) else f"{kind}: {cause}"
