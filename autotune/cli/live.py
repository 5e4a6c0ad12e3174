"""The live display of a study: a line that moves while something runs, and a line that stays for each trial."""

from __future__ import annotations

import itertools
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
    Proof,
    Repeat,
    StudySpec,
    Trial,
)
from ..records.figures import format_rate, peak_bytes
from ..records.printable import first_line
from ..records.units import format_bytes, format_duration
from ..records.words import brief_words, cut_names, joined, setting_words
from ..report import describe_facts
from ..search import Given, Space
from ..tuning.budget import Interruption
from ..verdict import Aim, feasible_trials, flaws_of, passed
from .tables import print_facts

__all__ = ["Display", "print_baseline"]

_OWN = "your script as it is"
_NOTHING_TO_SEARCH = "There is nothing to search: there are no plans to try, and the batch size stays as it is."
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
        self._facts: Facts | None = None
        self._baseline_rate: float | None = None
        self._trials: list[Trial] = []
        self._repeats: list[Repeat] = []
        self._best: Trial | None = None
        self._finalists: tuple[Configuration, ...] = ()
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

    def database(self, told: str) -> None:
        """Say that the database is gone, or back."""
        self._say(told, style="yellow")

    def discovering(self) -> None:
        """Say that the script runs as it stands, and what that means."""
        self._stage = "Discovery"
        self._say("Discovery: running the script as it stands, then listing what can be recomputed")
        self._say(
            f"A trial runs your script for real, its `finally:` blocks included; {self._what_becomes_of_files}.",
            style="dim",
        )
        self._doing[None] = "starting the script"

    def discovered(self, facts: Facts, baseline: Outcome, limit_bytes: int) -> None:
        """Print baseline and plan table."""
        self._aim = Aim(self._spec.objective, limit_bytes)
        self._facts = facts
        with self._lock:
            self._console.print()
            print_facts(self._console, describe_facts(facts))
            print_baseline(self._console, baseline, self._aim, self._spec)
        if isinstance(baseline, Measured):
            self._baseline_rate = baseline.measurement.samples_per_s
        with self._lock:
            # An earlier session's trials hold the baseline's.
            self._trials = [*self._known] or [Trial(0, facts.baseline, "finished", baseline)]
            self._best = self._find_best()

    def given(self, plans: Given) -> None:
        """Say what the search begins with, and what of the plans that were given it leaves out."""
        if plans.sets:
            self._say("\nTried first, as given:")
            for one in plans.sets:
                self._say(cut_names(f"  {' '.join(map(str, one))}"))
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

    def searching(self, space: Space) -> None:
        """Say what is searched, and what is known of it."""
        self._stage = "Search"
        self._doing.clear()
        left = format_duration(max(1.0, self._left_s))
        told = f"Searching {_told_space(space)}: at most {self._spec.max_trials} trials, {left} left"
        if all(one.key == space.baseline.key for one in itertools.islice(space.configurations(), 2)):
            told = _NOTHING_TO_SEARCH
        self._say(f"\n{told}", style="bold")
        best = self._best
        if len(self._known) > 1 and best is not None and best.measured is not None:
            name, figure = self._name(best.configuration), self._figure(best.measured.measurement)
            self._say(f"{len(self._known)} trials are done already, the best {figure}: {name}")

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
            fits = self._fits(measurement)
            line.append(f"{format_rate(measurement.samples_per_s):>10}/s", style="default" if fits else "dim")
            if self._baseline_rate:
                line.append(f" {measurement.samples_per_s / self._baseline_rate:6.2f}x")
            line.append(f" {format_bytes(peak):>10}", style="default" if fits else "red")
            line.append("  " if fits else f" over the {passed(peak, self._run_limit_bytes)}  ")
            line.append(self._words(configuration))
            if measurement.nonfinite_loss:
                line.append("  the loss is NaN or infinite", style="red")
            if measurement.allocator_retries:
                line.append("  the allocator thrashed", style="red")
            if self._note_trial(Trial(number, configuration, "finished", outcome)):
                line.append("  <- best so far", style="green")
        else:
            line.append(f"{self._words(configuration)}: ")
            line.append(_told(outcome), style="red")
        self._say(line)

    def search_ended(self, reason: str) -> None:
        """Say why the search stopped."""
        self._doing.clear()
        self._say(f"Search ended: {reason}")

    def repeating(self, configurations: tuple[Configuration, ...], num_runs: int) -> None:
        """Say what is measured again."""
        self._stage, self._finalists = "Finalists", configurations
        self._rounds_began_s, self._num_rounds, self._rounds_done = time.monotonic(), num_runs, 0
        own = None if self._facts is None else self._facts.baseline.key
        others = sum(one.key != own for one in configurations)
        settings = "1 setting" if others == 1 else f"{others} settings"
        beside = " beside your script" if others < len(configurations) else ""
        self._say(f"\nFinalists: {settings}{beside}, measured again in turns, at most {num_runs} runs", style="bold")

    def no_time(self, needed_s: float) -> None:
        """Say how much time the rounds would take."""
        self._say(
            f"The time left is too short to measure the finalists again: rounds and proof take about "
            f"{format_duration(round(needed_s))}.",
            style="yellow",
        )

    def repeated(self, configuration: Configuration, round_number: int, outcome: Outcome) -> None:
        """Print a round's line."""
        self._rounds_done += 1
        if isinstance(outcome, Measured):
            peak = peak_bytes(outcome.measurement.peaks) or 0
            figures = f"{format_rate(outcome.measurement.samples_per_s):>10}/s {format_bytes(peak):>10}"
        else:
            figures = _told(outcome)
        with self._lock:
            self._repeats.append(Repeat(configuration, round_number, outcome))
            self._best = self._find_best()
        self._say(f"round {round_number + 1}  {figures}  {self._name(configuration)}")

    def proving(self, configuration: Configuration) -> None:
        """Say that the winner is checked."""
        self._stage = "Proof"
        words = setting_words(configuration, () if self._facts is None else self._facts.clusters)
        self._say(f"\nProof: the first steps of your script as it is, beside {words}", style="bold")

    def proved(self, proof: Proof) -> None:
        """Say what was wrong, if something was; what is right stands with the answer."""
        if not proof.holds:
            self._say(proof.statement, style="red" if proof.answer == "inexact" else "yellow")

    @property
    def _folder(self) -> str:
        return self._spec.working_directory

    @property
    def _what_becomes_of_files(self) -> str:
        if self._folder.endswith("/.autotune/scratch"):
            return f"in {self._folder}"
        if self._spec.leaves_files:
            return "files are left as it changes them (--leave-files)"
        return "after each run files are as they were (--leave-files leaves them changed)"

    @property
    def _left_s(self) -> float:
        """The time until everything is done: the budget's, or less if the finalists' runs so far let expect that."""
        left_s = self._began_s + self._spec.time_budget_s - time.monotonic()
        if self._rounds_done:
            each_s = (time.monotonic() - self._rounds_began_s) / self._rounds_done
            left_s = min(left_s, each_s * (self._num_rounds - self._rounds_done))
        return left_s

    def _fits(self, measurement: Measurement) -> bool:
        limit_bytes = math.inf if self._aim is None else self._aim.limit_bytes
        return "over_limit" not in flaws_of(measurement, limit_bytes, baseline_is_finite=True)

    @property
    def _run_limit_bytes(self) -> int | None:
        return None if self._aim is None else self._aim.run_limit_bytes

    def _name(self, configuration: Configuration) -> str:
        is_own = self._facts is not None and configuration.key == self._facts.baseline.key
        if is_own:
            return _OWN
        words = self._words(configuration)
        # What is measured in turns has to be told apart.
        alike = [one for one in self._finalists if one != configuration and self._words(one) == words]
        return cut_names(str(configuration)) if alike else words

    def _words(self, configuration: Configuration) -> str:
        return brief_words(configuration, () if self._facts is None else self._facts.clusters)

    def _note_trial(self, trial: Trial) -> bool:
        """Whether this is the best so far."""
        with self._lock:
            self._trials.append(trial)
            self._best = self._find_best()
            return self._best is trial

    def _find_best(self) -> Trial | None:
        """What is worth most of what may be the answer by its trial and its rounds."""
        if self._aim is None or self._facts is None:
            return None
        return next(iter(feasible_trials(self._trials, self._facts, self._aim, self._repeats)), None)

    def _figure(self, measurement: Measurement) -> str:
        """What the objective goes by."""
        if self._spec.objective.goal == "memory":
            return format_bytes(peak_bytes(measurement.peaks) or 0)
        return f"{format_rate(measurement.samples_per_s)}/s"

    def _say(self, line: str | Text, *, style: str = "") -> None:
        with self._lock:
            self._console.print(Text(line, style=style) if isinstance(line, str) else line)

    def _line(self) -> Text:
        """The line that moves, made anew at every refresh."""
        doing = [f"device {device}: {what}" if device is not None else what for device, what in [*self._doing.items()]]
        found = self._best and self._best.measured
        best = f" · best {self._figure(found.measurement)}" if found else ""
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


def _told_space(space: Space) -> str:
    """What may be tried, in words."""
    sizes, kinds = space.batch_sizes, len(space.counts)
    parts = [f"{len(sizes)} batch sizes ({sizes[0]} to {sizes[-1]})"] if len(sizes) > 1 else []
    parts += [f"{kinds} kind{'' if kinds == 1 else 's'} of plans"] if kinds else []
    parts += space.choices
    if len(sizes) > 1:
        return joined(parts)
    at = f"at batch size {sizes[0]}" if sizes else "at the script's own batch size"
    return f"{joined(parts) or 'nothing but the script'} {at}"


def print_baseline(console: Console, baseline: Outcome, aim: Aim, spec: StudySpec) -> None:
    """Print what the script comes to as it stands, and what is looked for."""
    if not isinstance(baseline, Measured):
        return
    measurement = baseline.measurement
    peak, limit = format_bytes(peak_bytes(measurement.peaks) or 0), format_bytes(aim.run_limit_bytes)
    figures = f"{format_rate(measurement.samples_per_s)} samples/s, peak {peak} (limit {limit})"
    console.print(Text.assemble(("\nBaseline  ", "bold"), figures))
    if spec.objective != Objective():
        console.print(Text.assemble(("Looking for  ", "bold"), str(spec.objective)))
    asked = {"--memory-limit": spec.memory_limit_bytes, "--target-memory": spec.objective.target_memory_bytes}
    for option, size in asked.items():
        if size is not None and size > aim.run_limit_bytes:
            console.print(Text(f"note: {option} {format_bytes(size)} is more than there is: {limit}", style="yellow"))
    for note in measurement.notes:
        console.print(Text(f"note: {note}", style="yellow"))
    if measurement.nonfinite_loss:
        console.print(
            Text(
                "The baseline's loss is NaN or infinite: lower the learning rate, or look at the data, first.",
                style="red",
            )
        )


def _told(outcome: Outcome) -> str:
    """A failure: what kind, and its cause."""
    assert not isinstance(outcome, Measured)
    kind, cause = outcome.kind.replace("_", " "), first_line(outcome.cause)
    return cause if cause.startswith(kind) else f"{kind}: {cause}"
