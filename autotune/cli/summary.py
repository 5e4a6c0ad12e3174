"""The end of a study on the screen: one sentence, the figures, what failed, the files, and the command to run."""

from __future__ import annotations

import math
import os
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.text import Text

from ..machine.interpreter import find_interpreter
from ..records.figures import format_figures
from ..records.outcome import Measured
from ..records.printable import first_line, launch_command, shell_line, shell_word
from ..records.study import StudyRecord, StudySpec
from ..records.units import format_duration
from ..records.words import cut_names
from ..report.answer import answer_below, compiled_sentence, gain_sentences, headline, keep_sentence, proof_sentence
from ..report.batches import epoch_sentences, sized_in
from ..report.build import build_report
from ..report.record import winner_word
from ..report.sentences import batch_sentences, spent_sentence, undescribed_sentence
from ..report.tables import finalist_table, recomputed_in
from ..verdict.sequential import FIRST_LOOK
from .options import DEFAULT_STORAGE
from .tables import print_rows, print_table


def print_summary(console: Console, record: StudyRecord, bundle: Path | None) -> None:
    """Print the answer; ``bundle`` is where its files are, None if nothing was exported."""
    report = build_report(record)
    console.print()
    console.print(Text(headline(report), style="bold"))
    if below := answer_below(report):
        console.print(Text(below))
    rows = [(f"Your {report.target}", format_figures(report.baseline))]
    winner, baseline = report.winner, report.baseline
    if winner is not None and (baseline is None or winner.text != baseline.text):
        rows.append((winner_word(report).capitalize(), format_figures(winner)))
        rows += [("Its plans", cut_names("  ".join(recomputed_in(winner))))] if recomputed_in(winner) else []
    print_rows(console, rows)
    if len(report.finalists) > 1:  # all of a single one is said already
        console.print()
        print_table(console, finalist_table(report))
    gain = (*gain_sentences(report), compiled_sentence(report), proof_sentence(report))
    batches = (*epoch_sentences(report.ahead, sized_in(report)), *batch_sentences(report))
    for sentence in filter(None, (*gain, *batches)):
        console.print(Text(sentence))
    for sentence in filter(None, (undescribed_sentence(report), *_failures(record))):
        console.print(Text(sentence, style="yellow"), soft_wrap=True)
    for sentence in filter(None, (spent_sentence(report), keep_sentence(report))):
        console.print(Text(sentence))
    if bundle is not None:
        files = sorted(path.name for path in bundle.iterdir())
        console.print()
        print_rows(console, [("Files ", f"{bundle}/: {', '.join(files)}")])
        # Never folded: a shell would take the rest of the line for another command.
        console.print(Text.assemble(("Run it  ", "dim"), how_to_launch(record, bundle)), soft_wrap=True)


def how_to_launch(record: StudyRecord, bundle: Path) -> str:
    """The command that runs the study's script with the bundle, from the folder that the user is in."""
    spec = record.spec
    python = ["--python", spec.python] if spec.python and spec.python != find_interpreter(None) else []
    return launch_command(
        str(bundle), _near(spec.script, spec.python), spec.arguments, module=spec.module, options=python
    )


def how_to_go_on(record: StudyRecord, storage: str, *, is_interrupted: bool = False) -> str:
    """Return the command that resumes the study, or begins another where a busy machine drowned the answer."""
    words = ["autotune", "resume", record.name]
    needed_s = None if record.verdict is None else record.verdict.needed_s
    why = "Every finished trial is stored; to go on"
    trials = [trial.measured for trial in record.trials if trial.measured]
    is_drowned = record.verdict is not None and record.verdict.is_drowned and not is_interrupted
    if is_drowned and 2 * sum(t.contended for t in trials) > len(trials):
        # What a search has learnt of a busy machine would mislead it on a quiet one.
        again = shell_line(["--study", f"{record.name}-2"])
        return f"On a quiet machine, give the `autotune run` command again with {again}"
    is_undecided = record.verdict is not None and record.verdict.kind_of_answer == "undecided"
    if needed_s is not None and is_undecided and record.spec.finalist_repetitions < FIRST_LOOK:
        options = shell_line(["--study", record.name, "--repetitions", str(StudySpec.finalist_repetitions)])
        return (
            f"Fewer than {FIRST_LOOK} repetitions confirm nothing: give its `autotune run` command again with {options}"
        )
    if needed_s is not None:
        whole_s = 60 * math.ceil(needed_s / 60)
        why = f"To confirm what was found takes about {format_duration(round(needed_s))}"
        words += ["--time-budget", format_duration(whole_s)]
    elif sum(trial.outcome is not None for trial in record.trials) > record.spec.max_trials:
        words += ["--max-trials", str(2 * record.spec.max_trials)]
    words += [] if storage == DEFAULT_STORAGE else ["--storage", storage]
    password = " (with the password)" if "***" in storage else ""
    return f"{why}: {shell_line(words)}{password}"


def _failures(record: StudyRecord) -> list[str]:
    own = None if record.facts is None else record.facts.baseline.key
    ended = [one for one in record.shown if one.outcome is not None and one.configuration.key != own]
    failed = [(one, one.outcome) for one in ended if one.outcome is not None and one.measured is None]
    if not failed:
        return []
    kinds = Counter(outcome.label for _, outcome in failed)
    counted = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    sentences = [f"{len(failed)} of {len(ended)} trials failed: {counted}."]
    # Running out of memory is what a search for the limit does; anything else the user should hear of.
    odd = [(one, outcome) for one, outcome in failed if not outcome.for_memory]
    if odd:
        trial, outcome = odd[0]
        assert not isinstance(outcome, Measured)
        sentences.append(f"Trial {trial.number} ({cut_names(str(trial.configuration))}): {first_line(outcome.cause)}")
        show = f"The end of its log: autotune show {shell_word(record.name)} --trial {trial.number}"
        sentences.append(" ".join(filter(None, ["  next:", first_line(outcome.advice), show])))
    return sentences


def _near(path: str, python: str) -> str:
    """A path as one would type it from here; a program beside its interpreter goes by its name."""
    if path == str(Path(python).with_name(Path(path).name)):
        return Path(path).name
    return os.path.relpath(path) if Path(path).is_relative_to(Path.cwd()) else path
