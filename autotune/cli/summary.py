"""The end of a study on the screen: one sentence, the figures, the files, and the command to run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from ..report import batch_sentences, figures_sentence, finalist_table, launch_sentence, verdict_sentence
from .tables import print_rows, print_table

__all__ = ["print_summary"]


def print_summary(console: Console, document: dict[str, Any], bundle: Path | None) -> None:
    """Print the answer; ``bundle`` is where its files are, None if there is nothing to export."""
    console.print()
    console.print(Text(verdict_sentence(document), style="bold"))
    rows = [("Your script", figures_sentence(document["baseline"]))]
    winner, baseline = document["winner"], document["baseline"]
    if winner is not None and (baseline is None or winner["text"] != baseline["text"]):
        rows.append(("Winner", figures_sentence(winner)))
    print_rows(console, rows)
    finalists = finalist_table(document)
    if finalists.rows:
        console.print()
        print_table(console, finalists)
    for sentence in batch_sentences(document):
        console.print(sentence)
    if bundle is not None:
        files = sorted(path.name for path in bundle.iterdir())
        console.print()
        print_rows(console, [("Files", f"{bundle}/: {', '.join(files)}"), ("Run it", launch_sentence(document))])
