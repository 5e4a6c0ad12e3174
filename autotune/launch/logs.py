"""The last lines of a run's logs, which are shown where it failed."""

from __future__ import annotations

import re
from pathlib import Path

LOG_TAIL_LINES = 15

_BYTES_READ = 16_384
# CSI sequences: colours and cursor movement. Source: ECMA-48, section 5.4.
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
# A frame of ours in a traceback or in faulthandler's stacks, with the source lines that follow it in a traceback.
_PACKAGE = re.escape(str(Path(__file__).resolve().parent.parent))
_OWN_FRAME = re.compile(rf'^  File "{_PACKAGE}/.*\n(?:    .*\n)*', re.MULTILINE)
# What faulthandler writes after the stacks, hundreds of names on one line.
_EXTENSIONS = re.compile(r"^Extension modules: .*\n", re.MULTILINE)


def log_tail(directory: Path, *, lines: int = LOG_TAIL_LINES) -> tuple[str, ...]:
    """Return the last non-empty lines of both logs: standard output's as far as there is room, then standard error's.

    Colours and autotune's own stack frames are taken out, and of a progress bar that redraws its line only the last
    drawing is kept.
    """
    errors = _last_lines(directory / "stderr.log", lines)
    output = _last_lines(directory / "stdout.log", lines - len(errors))
    return (*output, *errors)


def _last_lines(path: Path, lines: int) -> list[str]:
    if lines <= 0:
        return []
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _BYTES_READ))
            text = _EXTENSIONS.sub("", _OWN_FRAME.sub("", file.read().decode(errors="replace")))
    except OSError:
        return []  # the run ended before it had a log
    drawn = (_CONTROL.sub("", line).rstrip().rpartition("\r")[2].rstrip() for line in text.split("\n"))
    return [line for line in drawn if line][-lines:]
