"""The answer of a gate: on the terminal, in files for CI, and as an exit code."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from ..errors import RunError
from ..records.codec import to_json
from ..records.gate import AnyGate, GateAnswer, LimitAnswer
from ..records.printable import printable
from ..records.study import StudySpec
from .command import print_json

EXITS: dict[GateAnswer | LimitAnswer, int] = {
    "pass": 0,
    "improvement": 0,
    "failed": 1,
    "regression": 3,
    "over_limit": 3,
    "not_comparable": 4,
}
"""The exit code of each answer."""


def name_of(spec: StudySpec) -> str:
    """Return the script's path in the folder that the gate runs in, which CI makes the repository's; else its name."""
    path, here = Path(spec.script if spec.module else spec.title).absolute(), Path.cwd()
    return path.relative_to(here).as_posix() if path.suffix == ".py" and path.is_relative_to(here) else path.name


def tell(found: AnyGate, next_steps: Sequence[str], *, as_json: bool) -> None:
    """Print an answer, and what may be done next."""
    if as_json:
        print_json({**to_json(found), "exit_code": EXITS[found.answer]})
    else:
        typer.echo("\n".join(map(printable, (*found.sentences, *next_steps))))


def write_reports(found: AnyGate, name: str, files: Mapping[str, Path | None], console: Any) -> None:
    """Write an answer to the files that were asked for, by ``junit`` and ``markdown``, and to the summary of CI's job.

    Raises:
        RunError: a file cannot be written.
    """
    from ..verdict.gate.rendering import render_junit, render_markdown

    _summarize(render_markdown(found, name), console)
    for format_, render in (("junit", render_junit), ("markdown", render_markdown)):
        file = files[format_]
        if file is not None:
            _write(render(found, name), file)


def _write(text: str, file: Path) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunError(
            f"the answer could not be written to {str(file)!r}: {error.strerror}", hint="name another file"
        ) from error


def _summarize(text: str, console: Any) -> None:
    # Nobody asked for it: the exit code holds without it, too.
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if not summary:
        return
    try:
        with Path(summary).open("a", encoding="utf-8") as opened:
            opened.write(text)
    except OSError as error:
        console.say(f"The answer is not in the job's summary, {summary!r}: {error.strerror}.")
