"""The end of a study on the screen: one sentence, the figures, what failed, the files, and the command to run."""

from __future__ import annotations

import os
import shlex
import sys
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.text import Text

from ..records import HostOutOfMemory, Measured, OutOfMemory, StudyRecord
from ..records.printable import first_line
from ..report import (
    batch_sentences,
    build_document,
    figures_sentence,
    finalist_table,
    proof_sentence,
    verdict_sentence,
)
from .options import DEFAULT_STORAGE
from .tables import print_rows, print_table

__all__ = ["how_to_go_on", "how_to_launch", "print_summary"]


def print_summary(console: Console, record: StudyRecord, bundle: Path | None) -> None:
    """Print the answer; ``bundle`` is where its files are, None if nothing was exported."""
    document = build_document(record)
    console.print()
    console.print(Text(verdict_sentence(document), style="bold"))
    rows = [("Your script", figures_sentence(document["baseline"]))]
    winner, baseline = document["winner"], document["baseline"]
    if winner is not None and (baseline is None or winner["text"] != baseline["text"]):
        sure = document["verdict"]["answer"] != "undecided"
        rows.append(("Winner" if sure else "Best so far", figures_sentence(winner)))
    print_rows(console, rows)
    finalists = finalist_table(document)
    if finalists.rows:
        console.print()
        print_table(console, finalists)
    if proof := proof_sentence(document):
        console.print(Text(proof))
    for sentence in batch_sentences(document):
        console.print(Text(sentence))
    for sentence in _failures(record):
        console.print(Text(sentence, style="yellow"))
    if bundle is not None:
        files = sorted(path.name for path in bundle.iterdir())
        console.print()
        print_rows(console, [("Files", f"{bundle}/: {', '.join(files)}"), ("Run it", how_to_launch(record, bundle))])


def how_to_launch(record: StudyRecord, bundle: Path) -> str:
    """The command that runs the study's script with the bundle, from the folder that the user is in."""
    spec = record.spec
    words = ["autotune", "launch", str(bundle), _near(spec.script)]
    if spec.python and os.path.abspath(sys.executable) != spec.python:  # noqa: PTH100
        words += ["--python", spec.python]
    return shlex.join([*words, *(["--", *spec.arguments] if spec.arguments else [])])


def how_to_go_on(record: StudyRecord, storage: str) -> str:
    """The command that resumes the study."""
    words = ["autotune", "resume", record.name]
    words += [] if storage == DEFAULT_STORAGE else ["--storage", storage]
    password = " (with the password)" if ":***@" in storage else ""
    return f"Every finished trial is stored; to go on: {shlex.join(words)}{password}"


def _failures(record: StudyRecord) -> list[str]:
    """How many trials failed, why, and where to look."""
    failed = [(one, one.outcome) for one in record.trials if one.outcome is not None and one.measured is None]
    if not failed:
        return []
    kinds = Counter(outcome.kind.replace("_", " ") for _, outcome in failed)
    counted = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    num_trials = sum(trial.outcome is not None for trial in record.trials)
    sentences = [f"{len(failed)} of {num_trials} trials failed: {counted}."]
    # Running out of memory is what a search for the limit does; anything else the user should hear of.
    odd = [(one, outcome) for one, outcome in failed if not isinstance(outcome, (OutOfMemory, HostOutOfMemory))]
    if odd:
        trial, outcome = odd[0]
        assert not isinstance(outcome, Measured)
        sentences.append(f"Trial {trial.number} ({trial.configuration}): {first_line(outcome.cause)}")
        sentences.append(f"The end of its log: autotune show {shlex.quote(record.name)} --trial {trial.number}")
    return sentences


def _near(path: str) -> str:
    """A path as one would type it from here."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
