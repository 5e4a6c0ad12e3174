"""Live display of how many runs have ended."""

from __future__ import annotations

import time
from typing import Self

from rich.console import Console

from ...records.units import format_duration
from ...tuning.budget import Interruption
from .status import StatusLine, ending_words, spinner


class RunCount:
    """Shows on a console how many runs have ended of those asked for; on a terminal the line moves."""

    def __init__(self, console: Console, interruption: Interruption) -> None:
        self._interruption = interruption
        self._began_s = time.monotonic()
        self._ended, self._asked = 0, 1
        self._moves = console.file.isatty()
        self._status = StatusLine(console, self._line, interruption=interruption)

    def __enter__(self) -> Self:
        self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()

    def progress(self, ended: int, asked: int) -> None:
        """Note how many runs have ended, and how many were asked for so far."""
        self._ended, self._asked = ended, asked

    def _line(self) -> str:
        now_s = time.monotonic()
        so_far = f"{format_duration(max(1, round(now_s - self._began_s)))} so far"
        turning = spinner(now_s) if self._moves else ""
        return f"{turning}{self._ended} of {self._asked} runs have ended, {ending_words(self._interruption) or so_far}"
