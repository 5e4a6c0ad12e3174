"""Live display of a study: a line that stays for each trial, and below these lines one that moves."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

from rich.console import Console
from rich.text import Text

from ...launch.port import Event
from ...records.configuration import Configuration
from ...records.engines import ENGINES
from ...records.facts import ClusterFacts, Facts
from ...records.figures import format_measured, format_peak
from ...records.measurement import Measurement
from ...records.outcome import Measured, Outcome
from ...records.printable import first_line
from ...records.proof import Proof
from ...records.study import Objective, Repeat, StudySpec, Trial
from ...records.units import format_bytes, format_duration, format_speed
from ...records.words import brief_words, cut_names, joined, setting_words
from ...report.build import describe_facts
from ...search.given_plans import Given
from ...search.space import Space
from ...tuning.budget import Interruption
from ...verdict.aim import Aim
from ...verdict.feasible import flaws_of
from ...verdict.finalists import feasible_trials
from ...verdict.memory_limit import passed
from ..tables import print_facts
from .status import Activity, StatusLine, ending_words, status_text


def told_space(space: Space) -> str:
    """Return what may be tried, in words."""
    sizes, kinds = space.batch_sizes, len(space.counts)
    parts = [f"{len(sizes)} batch sizes ({sizes[0]} to {sizes[-1]})"] if len(sizes) > 1 else []
    parts += [f"{kinds} kind{'' if kinds == 1 else 's'} of plans"] if kinds else []
    parts += space.choices
    if len(sizes) > 1:
        return joined(parts)
    target = ENGINES[space.engine].target
    at = f"at batch size {sizes[0]}" if sizes else f"at the {target}'s own batch size"
    return f"{joined(parts) or f'nothing but the {target}'} {at}"


def print_baseline(console: Console, baseline: Outcome, aim: Aim, spec: StudySpec, *, facts: Facts) -> None:
    """Print what the script comes to as it stands, and what is looked for; ``facts`` were printed before."""
    if not isinstance(baseline, Measured):
        return
    measurement = baseline.measurement
    limit = format_bytes(aim.run_limit_bytes)
    console.print(Text.assemble(("\nBaseline  ", "bold"), f"{format_measured(measurement)} (limit {limit})"))
    if spec.objective != Objective():
        console.print(Text.assemble(("Looking for  ", "bold"), str(spec.objective)))
    asked = {"--memory-limit": spec.memory_limit_bytes, "--target-memory": spec.objective.target_memory_bytes}
    for option, size in asked.items():
        if size is not None and size > aim.run_limit_bytes:
            console.print(Text(f"note: {option} {format_bytes(size)} is more than there is: {limit}", style="yellow"))
    for note in (one for one in measurement.notes if one not in facts.notes):
        console.print(Text(f"note: {note}", style="yellow"))
    if measurement.nonfinite_loss:
        told = "The baseline's loss is NaN or infinite: lower the learning rate, or look at the data, first."
        console.print(Text(told, style="red"))


def told_outcome(outcome: Outcome) -> str:
    """Return what a run came to: its figures, or the kind and the cause of its failure."""
    if isinstance(outcome, Measured):
        return format_measured(outcome.measurement)
    kind, cause = outcome.label, first_line(outcome.cause)
    return cause if cause.startswith(kind) else f"{kind}: {cause}"


class Display:
    """A ``tuning.Watcher`` that prints to a console; on a terminal the last line moves. ``known``: earlier trials."""

    def __init__(
        self, console: Console, spec: StudySpec, interruption: Interruption, *, known: Sequence[Trial] = ()
    ) -> None:
        self._spec = spec
        self._interruption = interruption
        self._known = [trial for trial in known if trial.outcome is not None]
        self._lock = threading.RLock()
        self._aim: Aim | None = None
        self._facts: Facts | None = None
        self._baseline_rate: float | None = None
        self._running: dict[tuple[int, ...], tuple[Configuration, ...]] = {}
        self._trials: list[Trial] = []
        self._repeats: list[Repeat] = []
        self._best: Trial | None = None
        self._finalists: tuple[Configuration, ...] = ()
        self._num_confirmations = 0
        self._console, self._target = console, ENGINES[spec.engine].target
        # Replaced as a whole, so that the thread that paints reads it without a lock.
        now_s = time.monotonic()
        self._activity = Activity(ends_at_s=now_s + spec.time_budget_s, began_s=now_s)
        self._status = StatusLine(console, self._line, interruption=interruption)

    def __enter__(self) -> Self:
        self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()

    def discovering(self) -> None:
        """Say that the script runs as it stands, and what that means."""
        if self._target == "model":
            self._say("Discovery: running the model with ONNX Runtime's defaults")
        else:
            self._say("Discovery: running the unmodified script, then listing what can be recomputed")
            files = self._what_becomes_of_files
            self._say(f"Each trial really runs your script, including its `finally:` blocks; {files}.", style="dim")
        self._note(stage="Discovery", doing={(): f"starting the {self._target}"}, doing_since_s=time.monotonic())

    def discovered(self, facts: Facts, baseline: Outcome, limit_bytes: int) -> None:
        """Print baseline and plan table."""
        self._aim = Aim(self._spec.objective, limit_bytes)
        self._facts = facts
        self._status.said()
        self._console.print()
        print_facts(self._console, describe_facts(facts))
        print_baseline(self._console, baseline, self._aim, self._spec, facts=facts)
        self._status.said()
        if isinstance(baseline, Measured):
            self._baseline_rate = baseline.measurement.samples_per_s
        with self._lock:
            # An earlier session's trials hold the baseline's.
            self._trials = [*self._known] or [Trial(0, facts.baseline, "finished", baseline)]
            self._note_best()

    def given(self, plans: Given) -> None:
        """Say what the search begins with, and what of the plans that were given it leaves out."""
        if plans.sets:
            self._say("\nTried first, as given:")
            for one in plans.sets:
                self._say(cut_names(f"  {' '.join(map(str, one))}"))
        else:
            self._say("\nNone of the plans given can be tried first.", style="yellow")
        if plans.unknown:
            names, engine = ", ".join(map(str, plans.unknown)), self._spec.engine
            self._say(
                f"Left out, because engine {engine} finds no such cluster in this script: {names}", style="yellow"
            )
            self._say(
                "Clusters are named by the operators in their engine's graph, so names differ between engines.",
                style="dim",
            )
        if plans.passed_over:
            count = len(plans.passed_over)
            self._say(f"{count} more of these plans are in this script, but not tried first, to keep the search small.")

    def searching(self, space: Space) -> None:
        """Say what is searched, and what is known of it."""
        self._note(stage="Search", doing={}, doing_since_s=None)
        left = format_duration(max(1.0, self._activity.ends_at_s - time.monotonic()))
        most = self._spec.max_trials
        told = f"Searching {told_space(space)}: at most {most} trial{'' if most == 1 else 's'}, {left} left"
        if all(one.key == space.baseline.key for one in itertools.islice(space.configurations(), 2)):
            told = "There is nothing to search: one batch size, and no plan that may help."
        self._say(f"\n{told}", style="bold")
        best = self._best
        if len(self._known) > 1 and best is not None and best.measured is not None:
            name, figure = self._name(best.configuration), self._figure(best.measured)
            self._say(f"{len(self._known)} trials are done already, the best {figure}: {name}")

    def widened(self, choice: str, idle: str) -> None:
        """Say that the search goes on with a choice, and why."""
        self._note(stage="Search", doing={})
        self._say(f"\nSearch goes on with {choice}, because {idle}. Results do not change.", style="bold")

    def searching_again(self) -> None:
        """Say that the search goes on, and why."""
        self._note(stage="Search", doing={}, repetitions_done=0)
        self._note_best()
        self._say("\nSearch goes on, because a repetition ruled a finalist out", style="bold")

    def run_began(self, devices: tuple[int, ...], configurations: tuple[Configuration, ...]) -> None:
        """Note what devices work on."""
        self._running[devices] = configurations
        self._note_doing(devices, f"starting {self._name(configurations[0])}")

    def forecast(self, most_s: float) -> None:
        """Note how long the search may still take."""
        self._note(forecast_ends_at_s=time.monotonic() + most_s)

    def event(self, devices: tuple[int, ...], event: Event) -> None:
        """Move the last line on."""
        is_discovery = self._activity.stage == "Discovery"
        if event.kind == "step":
            running = self._running.get(devices, ())
            what = self._name(running[event.index]) if event.index < len(running) else f"the {self._target}"
            # The step first: names may be cut.
            self._note_doing(devices, f"step {event.steps}, {what}")
        elif event.kind == "result" and is_discovery and isinstance(event.outcome, Measured):
            listing = "listing what can be recomputed" if self._target == "script" else "looking at its operators"
            self._note_doing(devices, listing, since_s=time.monotonic())
        elif event.kind == "describing":
            self._note(may_take_s=event.may_take_s)
        elif event.kind == "ended":
            with self._lock:
                left = {one: what for one, what in self._activity.doing.items() if one != devices}
                self._note(doing=left, doing_since_s=None, may_take_s=None)

    def trial_ended(self, number: int, configuration: Configuration, outcome: Outcome) -> None:
        """Print a trial's line."""
        line = Text.assemble((f"{number:>5}  ", "dim"))
        if isinstance(outcome, Measured):
            measurement = outcome.measurement
            limit_bytes = math.inf if self._aim is None else self._aim.limit_bytes
            fits = "over_limit" not in flaws_of(measurement, limit_bytes, baseline_is_finite=True)
            run_limit_bytes = None if self._aim is None else self._aim.run_limit_bytes
            line.append(f"{format_speed(measurement.samples_per_s):>18}", style="default" if fits else "dim")
            if self._baseline_rate:
                line.append(f" {measurement.samples_per_s / self._baseline_rate:6.2f}x")
            line.append(f" {format_peak(measurement.peaks):>10}", style="default" if fits else "red")
            line.append("  " if fits else f" over the {passed(measurement.peaks.fit_bytes or 0, run_limit_bytes)}  ")
            line.append(self._words(configuration))
            if measurement.nonfinite_loss:
                line.append("  the loss is NaN or infinite", style="red")
            if measurement.allocator_retries:
                line.append("  the allocator had to free memory and retry", style="red")
        else:
            line.append(f"{self._words(configuration)}: ")
            line.append(told_outcome(outcome), style="red")
        trial = Trial(number, configuration, "finished", outcome)
        with self._lock:
            self._trials.append(trial)
            self._note_best()
            if self._best is trial:
                line.append("  <- best so far", style="green")
        self._say(line)

    def search_ended(self, reason: str) -> None:
        """Say why the search stopped."""
        self._note(doing={}, forecast_ends_at_s=None)
        self._say(f"Search ended: {reason}")

    def repeating(self, configurations: tuple[Configuration, ...], num_runs: int) -> None:
        """Say what is measured again."""
        self._finalists, self._num_confirmations = configurations, self._num_confirmations + 1
        self._note(
            stage="Confirmation", repetitions_began_s=time.monotonic(), repetitions_done=0, most_repetitions=num_runs
        )
        self._note_best()
        own = None if self._facts is None else self._facts.baseline.key
        others = sum(one.key != own for one in configurations)
        settings = "1 setting" if others == 1 else f"{others} settings"
        beside = f" and your {self._target}" if others < len(configurations) else ""
        self._say(f"\nConfirmation: {settings}{beside}, measured again in turns, at most {num_runs} runs", style="bold")

    def no_time(self, needed_s: float) -> None:
        """Say how much time the repetitions would take."""
        needed = format_duration(round(needed_s))
        told = f"Too little time is left to confirm more: repetitions and equivalence check take about {needed}."
        self._say(told, style="yellow")

    def repeated(self, configuration: Configuration, repetition_number: int, outcome: Outcome) -> None:
        """Print a repetition's line."""
        with self._lock:
            self._repeats.append(
                Repeat(configuration, repetition_number, outcome, confirmation=self._num_confirmations)
            )
            self._note(repetitions_done=self._activity.repetitions_done + 1)
            self._note_best()
        self._say(f"repetition {repetition_number + 1}  {told_outcome(outcome)}  {self._name(configuration)}")

    def proving(self, configuration: Configuration) -> None:
        """Say that the winner is checked."""
        self._note(stage="Equivalence check", doing={}, repetitions_done=0)
        words = setting_words(configuration, self._clusters)
        steps = "runs" if self._target == "model" else "steps"
        self._say(
            f"\nEquivalence check: the first {steps} of your {self._target}, unmodified and with {words}", style="bold"
        )

    def compiling(self, configuration: Configuration) -> None:
        """Say that the answer is run compiled, that it is one run, and that the answer is there already."""
        self._note(stage="Compiling", doing={}, repetitions_done=0)
        words = setting_words(configuration, self._clusters)
        self._say(f"\nGain from compiling: {words}, in one run", style="bold")
        self._say("The answer is already stored. This run does not change it.")

    def compiled(self, configuration: Configuration, outcome: Outcome | None, *, reason: str) -> None:
        """Print its figures, or why there are none."""
        if isinstance(outcome, Measured):
            self._say(f"compiled {told_outcome(outcome)}  {self._words(configuration)}")
        else:
            told = reason if outcome is None else told_outcome(outcome)
            self._say(f"The gain from compiling is unknown: {told.rstrip('.')}.", style="yellow")

    def proved(self, proof: Proof) -> None:
        """Say what was wrong, if something was; what is right stands with the answer."""
        if not proof.holds:
            self._say(proof.statement, style="red" if proof.answer == "inexact" else "yellow")

    @property
    def _what_becomes_of_files(self) -> str:
        if self._spec.working_directory.endswith("/.autotune/scratch"):
            return f"in {self._spec.working_directory}"
        if self._spec.leaves_files:
            return "its changes to files stay (--leave-files)"
        return "autotune then undoes its changes to files (--leave-files keeps them)"

    def _name(self, configuration: Configuration) -> str:
        if self._facts is not None and configuration.key == self._facts.baseline.key:
            return f"your {self._target} as it is"
        words = self._words(configuration)
        # What is measured in turns has to be told apart.
        alike = [one for one in self._finalists if one != configuration and self._words(one) == words]
        return cut_names(str(configuration)) if alike else words

    def _words(self, configuration: Configuration) -> str:
        return brief_words(configuration, self._clusters)

    @property
    def _clusters(self) -> tuple[ClusterFacts, ...]:
        return () if self._facts is None else self._facts.clusters

    def _note(self, **changes: Any) -> None:
        with self._lock:
            self._activity = replace(self._activity, **changes)

    def _note_doing(self, devices: tuple[int, ...], what: str, *, since_s: float | None = None) -> None:
        with self._lock:
            self._note(doing={**self._activity.doing, devices: what}, doing_since_s=since_s, may_take_s=None)

    def _note_best(self) -> None:
        if self._aim is not None and self._facts is not None:
            self._best = next(iter(feasible_trials(self._trials, self._facts, self._aim, self._repeats)), None)
        measured = None if self._best is None else self._best.measured
        self._note(figure="" if measured is None else f"best {self._figure(measured)}")

    def _figure(self, measurement: Measurement) -> str:
        """Return what the objective goes by."""
        if self._spec.objective.goal == "memory":
            return format_peak(measurement.peaks)
        return format_speed(measurement.samples_per_s)

    def _say(self, line: str | Text, *, style: str = "") -> None:
        self._console.print(Text(line, style=style) if isinstance(line, str) else line)
        self._status.said()

    def _line(self) -> str:
        ending, moves = ending_words(self._interruption), self._console.file.isatty()
        return status_text(self._activity, time.monotonic(), ending=ending, moves=moves)
