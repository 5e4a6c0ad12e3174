"""A study in a process of its own, as a function with a typed result; see ``autotune.tune``."""

from __future__ import annotations

import html
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..cli import load_command
from ..cli.places import function_script
from ..errors import UsageError, did_you_mean
from ..records.codec import from_json
from ..records.figures import format_measured
from ..records.study import AnswerKind
from ..report.answer import headline
from ..report.page import render_html
from ..report.record import Report, ReportedSetting, winner_word
from .calling import call_command
from .source import is_hosted, script_of

# So many lines stand in a notebook; a study writes one for each trial.
_MOST_LINES = 30


class Progress:
    """Shows lines if ``is_shown``; in a notebook in one place that is written anew. ``lines`` are all that came."""

    def __init__(self, *, is_shown: bool) -> None:
        self.lines: list[str] = []
        self._is_shown = is_shown
        self._handle = _notebook_handle(self) if is_shown else None

    def add(self, line: str) -> None:
        """Show a line beside those before it."""
        self.lines.append(line)
        if self._handle is not None:
            self._handle.update(self)
        elif self._is_shown:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()

    def __repr__(self) -> str:
        return "\n".join(self.lines[-_MOST_LINES:])

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"


def _notebook_handle(shown: Progress) -> Any:
    """Return what updates an output of the cell that runs; None where this is no notebook."""
    if "IPython" not in sys.modules:
        return None
    from IPython import get_ipython
    from IPython.display import display

    shell = get_ipython()
    show: Any = display  # it has no types
    return show(shown, display_id=True) if hasattr(shell, "kernel") else None


_SECONDS = ("time-budget", "start-timeout", "trial-timeout")
_OURS = {"json": "the result is one already", "help": "`help(autotune.tune)` says it"}


@dataclass(frozen=True, repr=False)
class Tuned:
    """The result of a study.

    ``sentence`` is the answer for people, ``answer`` its kind (docs/reference/outcomes.md). ``is_confirmed``: the
    answer is confirmed and checked. ``baseline`` is the unmodified script and ``winner`` the setting to take; None
    where there is none. Each has its ``configuration``, ``batch_size``, ``samples_per_s`` and ``peak_bytes``.
    ``bundle`` is the folder for ``autotune.apply`` and ``autotune launch``, ``command`` the one that runs the script
    with it. ``script`` is the script that was run: for a function the file that was written for it. ``record`` is all
    that ``--json`` prints.
    """

    sentence: str
    answer: AnswerKind | None
    is_confirmed: bool
    study: str
    script: Path
    baseline: ReportedSetting | None
    winner: ReportedSetting | None
    bundle: Path | None
    command: str | None
    record: Report

    def report(self) -> str:
        """The report as a page of HTML that needs nothing else."""
        return render_html(self.record)

    def __str__(self) -> str:
        rows = [] if self.baseline is None else [("Your script", self.baseline)]
        if self.winner is not None and (self.baseline is None or self.winner.text != self.baseline.text):
            rows.append((winner_word(self.record).capitalize(), self.winner))
        figures = (f"{name:12} {format_measured(one)}  {one.text}" for name, one in rows)
        lines = [self.sentence, *figures]
        return "\n".join([*lines, *([f"Run it       {self.command}"] if self.command else [])])

    def __repr__(self) -> str:
        return str(self)  # all of the record would be pages

    def _repr_html_(self) -> str:
        page = html.escape(self.report(), quote=True)
        style = "width: 100%; height: 600px; border: 1px solid #ccc"
        return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{page}"></iframe>'


def tune(
    script: str | os.PathLike[str] | Callable[[], object],
    arguments: Sequence[str] = (),
    *,
    progress: bool = True,
    **options: Any,
) -> Tuned:
    """Tune a script or a function; see ``autotune.tune``."""
    if is_hosted():
        raise UsageError(
            "autotune.tune was called in a process that autotune runs itself: a trial would tune itself",
            hint="call it outside of what is tuned, behind `if __name__ == '__main__'` of another file",
        )
    if isinstance(arguments, str):
        raise UsageError(
            f"autotune.tune takes the script's arguments one by one, not {arguments!r}",
            hint=f"a list: {arguments.split()}",
        )
    if not callable(script) and not isinstance(script, str | os.PathLike):
        raise UsageError(
            f"autotune.tune takes the path of a script or a function, not a {type(script).__name__}",
            hint='autotune.tune("train.py"), say',
        )
    words = _options(options)
    path = function_script(script.__name__, script_of(script)) if callable(script) else Path(script)
    words += [str(path), *(["--", *map(str, arguments)] if arguments else [])]
    shown = Progress(is_shown=progress)
    document = call_command(
        "run", words, show=shown.add, if_silent="finished trials are stored: the same call again goes on"
    )
    record: Report = from_json(Report, document, where="autotune run --json")
    return Tuned(
        sentence=headline(record),
        answer=None if record.verdict is None else record.verdict.answer,
        is_confirmed=record.verdict is not None and record.verdict.is_confirmed,
        study=record.study.name,
        script=path.absolute(),
        baseline=record.baseline,
        winner=record.winner,
        bundle=None if record.launch.bundle is None else Path(record.launch.bundle).absolute(),
        command=record.launch.command,
        record=record,
    )


def _options(options: Mapping[str, Any]) -> list[str]:
    """Options of ``autotune run`` as one would type them; UsageError for one that it does not have."""
    known = {
        one.opts[-1].removeprefix("--"): one for one in load_command("run").params if one.param_type_name != "argument"
    }
    words: list[str] = []
    for name, value in options.items():
        key = name.replace("_", "-")
        if key in _OURS:
            raise UsageError(f"autotune.tune takes no {name!r}: {_OURS[key]}", hint="leave it out")
        if key not in known:
            near = did_you_mean(key, known).replace("-", "_") or "`autotune run --help` lists them"
            raise UsageError(f"autotune.tune has no option {name!r}", hint=near)
        if value is None or value is False:
            continue
        flag = known[key].opts[-1]
        if known[key].is_flag:
            words.append(flag)
            continue
        values = value if known[key].multiple and not isinstance(value, str) else [value]
        words += [word for one in values for word in (flag, _typed(key, one))]
    return words


def _typed(key: str, value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return (":" if key == "batch-sizes" else ",").join(map(str, value))
    return f"{value}s" if key in _SECONDS and isinstance(value, (int, float)) else str(value)
